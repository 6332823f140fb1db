//! The registry actor: looks connections up by uaid. It never waits and has nothing to panic at.

use std::time::Duration;

use actix::{
    Actor, ActorFutureExt, AsyncContext, Context, Handler, MessageResult, SpawnHandle, WrapFuture,
};
use slog::{Logger, debug};
use state_machine::delivery::NodeAnswer;
use state_machine::registry::Registry;
use state_machine::{ConnectionId, Time, Uaid};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use crate::drain_schedule::DrainSchedule;
use crate::handle::{ClientHandle, DirectPush, Disconnected, Signal};

/// Who is connected to this node.
pub struct RegistryActor {
    registry: Registry<ClientHandle>,
    mailbox_max: usize,
    /// Who is still to be told that the node shuts down; none while it does not.
    drain: Option<DrainSchedule<ClientHandle>>,
    /// What looks for those who are due.
    next_close: Option<SpawnHandle>,
    log: Logger,
}

/// A connection is found under `uaid` from now on.
#[derive(actix::Message)]
#[rtype(result = "()")]
pub struct Register {
    /// Under which name.
    pub uaid: Uaid,
    /// Which connection.
    pub connection: ConnectionId,
    /// How it is reached.
    pub handle: ClientHandle,
}

/// A connection is no longer found under `uaid`.
#[derive(actix::Message)]
#[rtype(result = "()")]
pub struct Deregister {
    /// Under which name.
    pub uaid: Uaid,
    /// Which connection.
    pub connection: ConnectionId,
}

/// A message was stored for `uaid`.
#[derive(actix::Message)]
#[rtype(result = "NotifyResult")]
pub struct MessageStored {
    /// For whom.
    pub uaid: Uaid,
}

/// The agent is connected to another node. A connection here that is newer does not mind.
#[derive(actix::Message)]
#[rtype(result = "NotifyResult")]
pub struct ConnectedElsewhere {
    /// Who.
    pub uaid: Uaid,
    /// Since when.
    pub connected_at: Time,
}

/// Whether there is a connection that was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotifyResult {
    /// It finds the signal, even if its mailbox is full.
    Delivered,
    /// The agent is not connected here.
    NotConnected,
}

/// The node shuts down: every connection is told at its own moment, those that still come at once.
///
/// The moments lie evenly in `spread`; all are over when it ends. Said again, it can only end earlier.
#[derive(actix::Message)]
#[rtype(result = "()")]
pub struct ShutDown {
    /// How long it takes; with [`Duration::ZERO`] all are told at once.
    pub spread: Duration,
}

/// How many are connected. That it answers shows that the registry is alive.
#[derive(actix::Message)]
#[rtype(result = "usize")]
pub struct CountConnections;

/// Which connection is found under `uaid`, if one is.
#[derive(actix::Message)]
#[rtype(result = "Option<ConnectionId>")]
pub struct Lookup {
    /// Under which name.
    pub uaid: Uaid,
}

impl RegistryActor {
    /// A registry whose mailbox holds `mailbox_max` messages.
    pub fn new(mailbox_max: usize, log: Logger) -> Self {
        let registry = Registry::new();
        Self { registry, mailbox_max, drain: None, next_close: None, log }
    }

    /// Leaves a signal, and forgets a connection that is gone without having said so.
    fn notify(&mut self, uaid: Uaid, signal: Signal) -> NotifyResult {
        let Some(entry) = self.registry.find(uaid) else { return NotifyResult::NotConnected };
        if let Err(Disconnected) = entry.handle.signal(signal) {
            let connection = entry.connection;
            self.registry.remove(uaid, connection);
            return NotifyResult::NotConnected;
        }
        NotifyResult::Delivered
    }

    /// Tells those whose moment has come, and sees to it that the others are told at theirs.
    fn close_due(&mut self, ctx: &mut Context<Self>) {
        let Some(drain) = &mut self.drain else { return };
        for handle in drain.pop_due(Instant::now()) {
            // One that is gone needs no telling.
            let _ = handle.signal(Signal::ShutdownBegan);
        }
        let Some(wait) = drain.wait(Instant::now()) else {
            debug!(self.log, "told every connection to close");
            return;
        };
        let next = pause(wait).into_actor(self).map(|(), registry, ctx| {
            registry.next_close = None;
            registry.close_due(ctx);
        });
        self.next_close = Some(ctx.spawn(next));
    }
}

/// Waits; in any case until others had their turn.
async fn pause(wait: Duration) {
    match wait {
        Duration::ZERO => yield_now().await,
        wait => sleep(wait).await,
    }
}

impl Actor for RegistryActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(self.mailbox_max);
    }
}

impl Handler<Register> for RegistryActor {
    type Result = ();

    fn handle(&mut self, Register { uaid, connection, handle }: Register, _: &mut Self::Context) {
        let displaced = self.registry.insert(uaid, connection, handle);
        // One that is gone needs no telling.
        if let Some(Err(Disconnected)) = displaced.map(|old| old.handle.signal(Signal::Replaced)) {
            debug!(self.log, "a connection had gone without leaving the registry");
        }
        if self.drain.is_some() {
            self.notify(uaid, Signal::ShutdownBegan);
        }
    }
}

impl Handler<Deregister> for RegistryActor {
    type Result = ();

    fn handle(&mut self, Deregister { uaid, connection }: Deregister, _: &mut Self::Context) {
        self.registry.remove(uaid, connection);
    }
}

impl Handler<DirectPush> for RegistryActor {
    type Result = ();

    fn handle(&mut self, push: DirectPush, _: &mut Self::Context) {
        let uaid = push.uaid;
        let (push, connection) = match self.registry.find(uaid) {
            None => (push, None),
            Some(entry) => match entry.handle.deliver(push) {
                Ok(()) => return,
                Err(push) => (*push, Some(entry.connection)),
            },
        };
        if let Some(connection) = connection {
            self.registry.remove(uaid, connection);
        }
        // An endpoint that no longer waits has stored the message by itself.
        let _ = push.reply.send(NodeAnswer::NotHere);
    }
}

impl Handler<MessageStored> for RegistryActor {
    type Result = MessageResult<MessageStored>;

    fn handle(
        &mut self,
        MessageStored { uaid }: MessageStored,
        _: &mut Self::Context,
    ) -> Self::Result {
        MessageResult(self.notify(uaid, Signal::MessageStored))
    }
}

impl Handler<ConnectedElsewhere> for RegistryActor {
    type Result = MessageResult<ConnectedElsewhere>;

    fn handle(&mut self, moved: ConnectedElsewhere, _: &mut Self::Context) -> Self::Result {
        let ConnectedElsewhere { uaid, connected_at } = moved;
        MessageResult(self.notify(uaid, Signal::ConnectedElsewhere { connected_at }))
    }
}

impl Handler<ShutDown> for RegistryActor {
    type Result = ();

    fn handle(&mut self, ShutDown { spread }: ShutDown, ctx: &mut Self::Context) {
        let now = Instant::now();
        match &mut self.drain {
            Some(drain) => drain.expedite(spread, now),
            None => {
                let all = self.registry.iter().map(|entry| entry.handle.clone()).collect();
                self.drain = Some(DrainSchedule::begin(all, spread, now));
            }
        }
        if let Some(next) = self.next_close.take() {
            ctx.cancel_future(next);
        }
        self.close_due(ctx);
    }
}

impl Handler<CountConnections> for RegistryActor {
    type Result = MessageResult<CountConnections>;

    fn handle(
        &mut self,
        CountConnections: CountConnections,
        _: &mut Self::Context,
    ) -> Self::Result {
        MessageResult(self.registry.len())
    }
}

impl Handler<Lookup> for RegistryActor {
    type Result = MessageResult<Lookup>;

    fn handle(&mut self, Lookup { uaid }: Lookup, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.registry.find(uaid).map(|entry| entry.connection))
    }
}
