//! The registry actor: registers the connections of this node by uaid.
//!
//! Architecture Invariant: it never waits and cannot panic.

use std::sync::Arc;
use std::time::Duration;

use actix::dev::MessageResponse;
use actix::{Actor, ActorFutureExt, AsyncContext, Context, Handler, SpawnHandle, WrapFuture};
use parking_lot::RwLock;
use slog::{Logger, debug};
use state_machine::access::AccessId;
use state_machine::delivery::NodeAnswer;
use state_machine::registry::{Entry, Registry};
use state_machine::{ConnectionId, Time, Uaid};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use crate::access::Access;
use crate::drain_schedule::DrainSchedule;
use crate::handle::{ClientHandle, DirectPush, Disconnected, Signal};
use crate::mailbox::{BoundedActor, Mailbox, Queued};
use crate::nodes::NodeDirectory;
use crate::observe::{ClientCounters, ClientState, Observe, RegistryState, observed};

/// The connections of this node, and its peers.
pub struct RegistryActor {
    pub(crate) connections: LiveConnections,
    pub(crate) clients: Arc<ClientCounters>,
    pub(crate) peers: Arc<dyn NodeDirectory>,
    /// None on a node that knows no access tokens.
    access: Option<Access>,
    mailbox: Mailbox,
    /// The sessions that are still to be closed; none while the node does not shut down.
    drain: Option<DrainSchedule<ClientHandle>>,
    /// The task that closes the next of them.
    next_close: Option<SpawnHandle>,
    log: Logger,
}

/// The connections of this node. The registry actor registers and removes them; a push finds its
/// connection here without waiting for that actor's thread.
#[derive(Clone, Default)]
pub struct LiveConnections(Arc<RwLock<Registry<ClientHandle>>>);

/// A connection is found under `uaid` from now on.
#[derive(actix::Message)]
#[rtype(result = "()")]
pub struct Register {
    pub uaid: Uaid,
    pub connection: ConnectionId,
    /// The handle of the connection's client actor.
    pub handle: ClientHandle,
}

/// A connection is no longer found under `uaid`.
#[derive(actix::Message)]
#[rtype(result = "()")]
pub struct Deregister {
    pub uaid: Uaid,
    /// Its connection. A newer one stays registered.
    pub connection: ConnectionId,
}

/// A message was stored for `uaid`.
#[derive(actix::Message)]
#[rtype(result = "NotifyResult")]
pub struct MessageStored {
    pub uaid: Uaid,
}

/// The agent connected to another node. A connection here that is newer ignores it.
#[derive(actix::Message)]
#[rtype(result = "NotifyResult")]
pub struct ConnectedElsewhere {
    pub uaid: Uaid,
    /// Its `connected_at` on the other node.
    pub connected_at: Time,
}

/// Whether a connection was notified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, MessageResponse)]
pub enum NotifyResult {
    /// Its client finds the signal, even if its mailbox is full.
    Delivered,
    /// The agent is not connected here.
    NotConnected,
}

/// The node shuts down: each session is closed at its own moment, later ones when they register.
///
/// The moments are spread evenly over `spread`. A second request can only shorten what is left.
#[derive(actix::Message)]
#[rtype(result = "()")]
pub struct ShutDown {
    /// How long the drain takes; with [`Duration::ZERO`] all sessions are closed at once.
    pub spread: Duration,
}

/// An access token has ended or was replaced: the connections of its agents are closed. After its end, later ones are
/// closed when they register.
#[derive(actix::Message)]
#[rtype(result = "()")]
pub struct CloseAccess {
    pub id: AccessId,
}

/// The clock was moved: the sessions look at their deadlines.
#[derive(actix::Message)]
#[rtype(result = "()")]
pub struct ClockMoved;

/// How many connections are registered. An answer shows that the registry is alive.
#[derive(actix::Message)]
#[rtype(result = "usize")]
pub struct CountConnections;

/// Those of these agents that are connected, and then others, up to `max` together.
#[derive(actix::Message)]
#[rtype(result = "Vec<Uaid>")]
pub struct FirstConnections {
    pub wanted: Vec<Uaid>,
    pub max: usize,
}

/// The connection found under `uaid`.
#[derive(actix::Message)]
#[rtype(result = "Option<ConnectionId>")]
pub struct Lookup {
    pub uaid: Uaid,
}

/// Asks one client for its state.
#[derive(actix::Message)]
#[rtype(result = "()")]
pub struct ObserveClient {
    pub uaid: Uaid,
    /// Takes the state. It is dropped if the agent is not connected here or its client's mailbox is
    /// full.
    pub reply: oneshot::Sender<ClientState>,
}

impl RegistryActor {
    /// A registry whose mailbox holds `mailbox_max` messages.
    pub fn new(mailbox_max: usize, peers: Arc<dyn NodeDirectory>, log: Logger) -> Self {
        Self {
            connections: LiveConnections::default(),
            clients: Arc::default(),
            peers,
            access: None,
            mailbox: Mailbox::new(mailbox_max),
            drain: None,
            next_close: None,
            log,
        }
    }

    /// Closes a connection that registers after its access token has ended.
    pub fn with_access(self, access: Access) -> Self {
        Self { access: Some(access), ..self }
    }

    fn state(&self) -> RegistryState {
        RegistryState {
            mailbox: self.mailbox.state(),
            connections: self.connections.0.read().len(),
            clients: self.clients.counts(),
            draining: self.drain.as_ref().map(DrainSchedule::open),
            peers: self.peers.peers(),
        }
    }

    fn count_replaced(&self, uaid: Uaid) {
        self.clients.rivals.replaced(uaid, Instant::now());
    }

    /// Closes the sessions that are due, and schedules the next ones.
    fn close_due(&mut self, ctx: &mut Context<Self>) {
        let Some(drain) = &mut self.drain else { return };
        for handle in drain.pop_due(Instant::now()) {
            // A client that has ended is closed.
            let _ = handle.signal(Signal::ShutdownBegan);
        }
        let Some(wait) = drain.wait(Instant::now()) else {
            debug!(self.log, "signalled every session to close");
            return;
        };
        let next = pause(wait).into_actor(self).map(|(), registry, ctx| {
            registry.next_close = None;
            registry.close_due(ctx);
        });
        self.next_close = Some(ctx.spawn(next));
    }
}

impl LiveConnections {
    /// Delivers a push to the connection of its agent, which answers it. Returns the push if the agent is not found:
    /// its registration may still be in the registry's mailbox, and only the registry knows.
    pub(crate) fn deliver(&self, push: DirectPush) -> Result<(), Box<DirectPush>> {
        match self.find(push.uaid) {
            Some(entry) => entry.handle.deliver(push),
            None => Err(Box::new(push)),
        }
    }

    /// Signals a connection. One that ended without deregistering is forgotten.
    fn notify(&self, uaid: Uaid, signal: Signal) -> NotifyResult {
        let Some(entry) = self.find(uaid) else { return NotifyResult::NotConnected };
        match entry.handle.signal(signal) {
            Ok(()) => NotifyResult::Delivered,
            Err(Disconnected) => {
                self.0.write().remove(uaid, entry.connection);
                NotifyResult::NotConnected
            }
        }
    }

    /// The connection of an agent. What is sent to it is sent without the lock.
    fn find(&self, uaid: Uaid) -> Option<Entry<ClientHandle>> {
        self.0.read().find(uaid).cloned()
    }
}

/// Waits at least until the other tasks of this thread have run.
async fn pause(wait: Duration) {
    match wait {
        Duration::ZERO => yield_now().await,
        wait => sleep(wait).await,
    }
}

impl Actor for RegistryActor {
    type Context = Context<Self>;
}

impl BoundedActor for RegistryActor {
    fn mailbox(&self) -> Mailbox {
        self.mailbox.clone()
    }
}

impl Handler<Queued<Register>> for RegistryActor {
    type Result = ();

    fn handle(&mut self, register: Queued<Register>, _: &mut Self::Context) {
        let Register { uaid, connection, handle } = register.take();
        let displaced = self.connections.0.write().insert(uaid, connection, handle);
        match displaced.map(|old| old.handle.signal(Signal::Replaced)) {
            Some(Ok(())) => self.count_replaced(uaid),
            Some(Err(Disconnected)) => {
                debug!(self.log, "a connection had ended without deregistering");
            }
            None => {}
        }
        if self.access.as_ref().is_some_and(|access| access.has_ended(uaid)) {
            self.connections.notify(uaid, Signal::AccessEnded);
        }
        if self.drain.is_some() {
            self.connections.notify(uaid, Signal::ShutdownBegan);
        }
    }
}

impl Handler<Queued<Deregister>> for RegistryActor {
    type Result = ();

    fn handle(&mut self, deregister: Queued<Deregister>, _: &mut Self::Context) {
        let Deregister { uaid, connection } = deregister.take();
        self.connections.0.write().remove(uaid, connection);
    }
}

/// A push whose agent was not found by its endpoint. Registrations that were sent before it have been handled now.
impl Handler<Queued<DirectPush>> for RegistryActor {
    type Result = ();

    fn handle(&mut self, push: Queued<DirectPush>, _: &mut Self::Context) {
        let Err(push) = self.connections.deliver(push.take()) else { return };
        if let Some(ended) = self.connections.find(push.uaid) {
            self.connections.0.write().remove(push.uaid, ended.connection);
        }
        // An endpoint that no longer waits has stored the message.
        let _ = push.reply.send(NodeAnswer::NotHere);
    }
}

impl Handler<Queued<MessageStored>> for RegistryActor {
    type Result = NotifyResult;

    fn handle(&mut self, stored: Queued<MessageStored>, _: &mut Self::Context) -> NotifyResult {
        self.connections.notify(stored.take().uaid, Signal::MessageStored)
    }
}

impl Handler<Queued<ConnectedElsewhere>> for RegistryActor {
    type Result = NotifyResult;

    fn handle(&mut self, moved: Queued<ConnectedElsewhere>, _: &mut Self::Context) -> NotifyResult {
        let ConnectedElsewhere { uaid, connected_at } = moved.take();
        let notified = self.connections.notify(uaid, Signal::ConnectedElsewhere { connected_at });
        if notified == NotifyResult::Delivered {
            self.count_replaced(uaid);
        }
        notified
    }
}

impl Handler<Queued<CloseAccess>> for RegistryActor {
    type Result = ();

    fn handle(&mut self, close: Queued<CloseAccess>, _: &mut Self::Context) {
        let id = close.take().id;
        let handles: Vec<_> =
            self.connections.0.read().of_access(id).map(|entry| entry.handle.clone()).collect();
        for handle in handles {
            // A client that has ended is closed.
            let _ = handle.signal(Signal::AccessEnded);
        }
    }
}

impl Handler<Queued<ShutDown>> for RegistryActor {
    type Result = ();

    fn handle(&mut self, shut_down: Queued<ShutDown>, ctx: &mut Self::Context) {
        let (ShutDown { spread }, now) = (shut_down.take(), Instant::now());
        match &mut self.drain {
            Some(drain) => drain.expedite(spread, now),
            None => {
                let connections = self.connections.0.read();
                let all = connections.iter().map(|(_, entry)| entry.handle.clone()).collect();
                self.drain = Some(DrainSchedule::begin(all, spread, now));
            }
        }
        if let Some(next) = self.next_close.take() {
            ctx.cancel_future(next);
        }
        self.close_due(ctx);
    }
}

impl Handler<Queued<ClockMoved>> for RegistryActor {
    type Result = ();

    fn handle(&mut self, _: Queued<ClockMoved>, _: &mut Self::Context) {
        let handles: Vec<_> =
            self.connections.0.read().iter().map(|(_, entry)| entry.handle.clone()).collect();
        for handle in handles {
            // A client that has ended waits for nothing.
            let _ = handle.wake();
        }
    }
}

impl Handler<Queued<CountConnections>> for RegistryActor {
    type Result = usize;

    fn handle(&mut self, _: Queued<CountConnections>, _: &mut Self::Context) -> usize {
        self.connections.0.read().len()
    }
}

impl Handler<Queued<FirstConnections>> for RegistryActor {
    type Result = Vec<Uaid>;

    fn handle(&mut self, first: Queued<FirstConnections>, _: &mut Self::Context) -> Vec<Uaid> {
        let (FirstConnections { wanted, max }, connections) =
            (first.take(), self.connections.0.read());
        let connected = |uaid: &&Uaid| connections.find(**uaid).is_some();
        let others = connections.iter().map(|(uaid, _)| uaid);
        let others = others.filter(|uaid| !wanted.contains(uaid));
        wanted.iter().filter(connected).copied().chain(others).take(max).collect()
    }
}

impl Handler<Queued<Lookup>> for RegistryActor {
    type Result = Option<ConnectionId>;

    fn handle(&mut self, lookup: Queued<Lookup>, _: &mut Self::Context) -> Option<ConnectionId> {
        self.connections.find(lookup.take().uaid).map(|entry| entry.connection)
    }
}

observed!(RegistryActor, RegistryState);

impl Handler<Queued<ObserveClient>> for RegistryActor {
    type Result = ();

    fn handle(&mut self, observe: Queued<ObserveClient>, _: &mut Self::Context) {
        let ObserveClient { uaid, reply } = observe.take();
        if let Some(entry) = self.connections.find(uaid) {
            entry.handle.observe(reply);
        }
    }
}
