//! The client actor: the only caller of `Connection::step`.
//!
//! [`Client::feed`] steps the machine, [`Client::run`] carries one effect out, and one timer is
//! re-armed from the machine's deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix::dev::{SendError, ToEnvelope};
use actix::{
    Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Handler, Running, SpawnHandle,
    WrapFuture,
};
use futures_util::FutureExt;
use slog::{Logger, debug, warn};
use state_machine::connection::{
    CloseReason, Config, Connection, ConnectionSeed, Effect, Effects, Event, PhaseName, PushAnswer,
};
use state_machine::delivery::NodeAnswer;
use state_machine::feed::FeedSyncId;
use state_machine::store::{StoreFailed, StoreOp};
use state_machine::wire::{ClientMessage, EndpointUrls};
use state_machine::{ConnectionId, MessageKey, OpId, PushId, Time, Uaid};
use storage::Store;
use tokio::sync::oneshot;

use crate::broadcasts::{BroadcastView, Subscribe, Unsubscribe};
use crate::clock::Clock;
use crate::detached_registration::finish_detached;
use crate::handle::{ClientHandle, DirectPush, Signal, Signals, SignalsPending, answer};
use crate::nodes::NodeDirectory;
use crate::registry::{Deregister, Register, RegistryActor};
use crate::store_executor;

/// What all connections of a node share.
pub struct ClientShared {
    /// Node, limits, month.
    pub config: Arc<Config>,
    /// The store.
    pub store: Arc<dyn Store>,
    /// The registry.
    pub registry: Addr<RegistryActor>,
    /// Where agents were before they came here.
    pub nodes: Arc<dyn NodeDirectory>,
    /// The broadcasts; none on a node that tells of none.
    pub broadcasts: Option<BroadcastView>,
    /// Makes endpoint URLs.
    pub urls: Box<dyn EndpointUrls + Send + Sync>,
    /// The clock.
    pub clock: Clock,
    /// Messages a client's mailbox holds.
    pub mailbox_max: usize,
    /// The log.
    pub log: Logger,
    /// Numbers connections.
    pub connections: AtomicU64,
}

/// How a client's frames travel. The product has one, a WebSocket; a test can have another.
pub trait Transport: Sized + Unpin + 'static {
    /// The actor context that carries it.
    type Context: ActorContext
        + AsyncContext<Client<Self>>
        + ToEnvelope<Client<Self>, DirectPush>
        + ToEnvelope<Client<Self>, SignalsPending>;

    /// Bounds the mailbox.
    fn bound_mailbox(ctx: &mut Self::Context, max: usize);

    /// Sends a text frame.
    fn text(&mut self, ctx: &mut Self::Context, json: String);

    /// Sends a ping.
    fn ping(&mut self, ctx: &mut Self::Context);

    /// Sends a close frame where the reason has a code. The actor stops right after.
    fn close(&mut self, ctx: &mut Self::Context, reason: CloseReason);

    /// Has the machine step. A test that keeps a record of its steps looks on here.
    fn step(&mut self, connection: &mut Connection, now: Time, event: Event) -> Effects {
        connection.step(now, event)
    }
}

/// One user agent's connection.
pub struct Client<T> {
    connection: Connection,
    id: ConnectionId,
    /// Where it sits on the wheel that wakes those who follow broadcasts.
    point: u32,
    shared: Arc<ClientShared>,
    signals: Arc<Signals>,
    /// Endpoints that wait for the answer to a push.
    pushes: Vec<(PushId, oneshot::Sender<NodeAnswer>)>,
    next_push: u64,
    /// When [`Event::TimePassed`] will be fed.
    timer: Option<(Time, SpawnHandle)>,
    pub(crate) transport: T,
}

impl<T: Transport> Client<T> {
    /// A client for a socket that was just accepted.
    pub fn new(shared: Arc<ClientShared>, seed: ConnectionSeed, transport: T) -> Self {
        let id = ConnectionId(shared.connections.fetch_add(1, Ordering::Relaxed));
        let connection = Connection::new(Arc::clone(&shared.config), seed, shared.clock.now());
        Self {
            connection,
            id,
            point: seed.slot(),
            shared,
            signals: Arc::default(),
            pushes: Vec::new(),
            next_push: 0,
            timer: None,
            transport,
        }
    }

    /// Steps the machine and carries its effects out, then the signals that wait.
    pub fn feed(&mut self, event: Event, ctx: &mut T::Context) {
        self.poll_broadcasts(&event, ctx);
        self.step(event, ctx);
        while let Some(signal) = self.signals.take() {
            self.on_signal(signal, ctx);
        }
        self.arm_timer(ctx);
    }

    /// An agent that names broadcasts is answered from what they are now.
    fn poll_broadcasts(&mut self, event: &Event, ctx: &mut T::Context) {
        match event {
            Event::MessageReceived(ClientMessage::Hello { broadcasts, .. })
                if !broadcasts.is_empty() =>
            {
                self.on_signal(Signal::BroadcastsChanged, ctx);
            }
            Event::MessageReceived(ClientMessage::BroadcastSubscribe { broadcasts })
                if !broadcasts.is_empty() =>
            {
                self.signals.raise(Signal::BroadcastsChanged);
            }
            _ => {}
        }
    }

    fn on_signal(&mut self, signal: Signal, ctx: &mut T::Context) {
        let event = match signal {
            Signal::MessageStored => Event::MessageStored,
            Signal::Replaced => Event::Replaced,
            Signal::ConnectedElsewhere { connected_at } => {
                Event::ConnectedElsewhere { connected_at }
            }
            Signal::ShutdownBegan => Event::ShutdownBegan,
            Signal::BroadcastsChanged => match &self.shared.broadcasts {
                Some(view) => Event::BroadcastsChanged(Arc::clone(&view.now.borrow())),
                None => return,
            },
        };
        self.step(event, ctx);
    }

    fn step(&mut self, event: Event, ctx: &mut T::Context) {
        let now = self.shared.clock.now();
        for effect in self.transport.step(&mut self.connection, now, event) {
            self.run(effect, ctx);
        }
    }

    fn run(&mut self, effect: Effect, ctx: &mut T::Context) {
        match effect {
            Effect::Send(message) => {
                self.transport.text(ctx, message.to_json(&*self.shared.urls));
            }
            Effect::Ping => self.transport.ping(ctx),
            Effect::SubmitStoreOp { op, order } => self.ask(op, order, ctx),
            Effect::AnswerPush { push, answer, message } => {
                self.answer_push(push, answer, message, ctx);
            }
            Effect::Register { uaid } => self.register(uaid, ctx),
            Effect::Deregister { uaid } => self.deregister(uaid),
            Effect::NotifyPreviousNode { node, uaid, connected_at } => {
                self.shared.nodes.notify_moved(&node, uaid, connected_at);
            }
            Effect::SubscribeBroadcasts { last_sent: told } => self.subscribe_broadcasts(told, ctx),
            Effect::UnsubscribeBroadcasts => self.unsubscribe_broadcasts(),
            Effect::Close(reason) => {
                debug!(self.shared.log, "connection closed";
                    "connection" => self.id.0, "reason" => reason.text());
                self.transport.close(ctx, reason);
                ctx.stop();
            }
        }
    }

    /// The order is the store's before this returns: an actor that stops cancels none of it.
    fn ask(&self, op: OpId, order: StoreOp, ctx: &mut T::Context) {
        let registration = match &order {
            StoreOp::Register(registration) => Some(registration.clone()),
            _ => None,
        };
        let answer = store_executor::submit(&*self.shared.store, order);
        let answer = match registration {
            Some(registration) => {
                finish_detached(answer, &registration, &self.shared).left_future()
            }
            None => answer.right_future(),
        };
        ctx.spawn(answer.into_actor(self).map(move |answer, client, ctx| {
            let answer = answer.map_err(|error| {
                warn!(client.shared.log, "the store failed a connection, it will ask again";
                    "connection" => client.id.0, "error" => %error);
                StoreFailed
            });
            client.feed(Event::StoreAnswered { op, answer }, ctx);
        }));
    }

    fn answer_push(
        &mut self,
        push: PushId,
        push_answer: PushAnswer,
        message: MessageKey,
        ctx: &mut T::Context,
    ) {
        let Some(at) = self.pushes.iter().position(|(waiting, _)| *waiting == push) else {
            return;
        };
        let (_, reply) = self.pushes.swap_remove(at);
        if !answer(reply, push_answer) && push_answer == PushAnswer::Accepted {
            self.step(Event::AckReplyLost(message), ctx);
        }
    }

    fn register(&self, uaid: Uaid, ctx: &T::Context) {
        let register = Register { uaid, connection: self.id, handle: self.own_handle(ctx) };
        if self.shared.registry.try_send(register).is_err() {
            // Nobody would find this connection: the agent had better come again.
            warn!(self.shared.log, "the registry is overrun or gone, closing a connection";
                "connection" => self.id.0);
            self.signals.raise(Signal::ShutdownBegan);
        }
    }

    fn deregister(&self, uaid: Uaid) {
        // Refused: the registry forgets a connection when it finds its mailbox closed.
        drop(self.shared.registry.try_send(Deregister { uaid, connection: self.id }));
    }

    fn subscribe_broadcasts(&self, told: FeedSyncId, ctx: &T::Context) {
        let Some(view) = &self.shared.broadcasts else { return };
        let (connection, point, handle) = (self.id, self.point, self.own_handle(ctx));
        match view.subscribe.try_send(Subscribe { connection, point, told, handle }) {
            Ok(()) => {}
            Err(SendError::Full(_)) => {
                // It would hear of no change: the agent had better come again.
                warn!(self.shared.log, "too many follow broadcasts at once, closing a connection";
                    "connection" => self.id.0);
                self.signals.raise(Signal::ShutdownBegan);
            }
            // Coming again would not help, and messages are delivered without broadcasts too.
            Err(SendError::Closed(_)) => {
                warn!(self.shared.log, "nobody tells of broadcasts"; "connection" => self.id.0);
            }
        }
    }

    fn unsubscribe_broadcasts(&self) {
        if let Some(view) = &self.shared.broadcasts {
            // Refused: the connection is forgotten when its mailbox is found closed.
            drop(view.unsubscribe.try_send(Unsubscribe { connection: self.id, point: self.point }));
        }
    }

    fn own_handle(&self, ctx: &T::Context) -> ClientHandle {
        let address = ctx.address();
        let (pushes, wake) = (address.clone().recipient(), address.recipient());
        ClientHandle::new(pushes, wake, Arc::clone(&self.signals))
    }

    /// One timer at a time. A timer that is early is kept: it steps the machine for nothing once,
    /// which is cheaper than a new one for every message.
    fn arm_timer(&mut self, ctx: &mut T::Context) {
        let Some((deadline, _)) = self.connection.deadline() else {
            return;
        };
        match self.timer {
            Some((at, _)) if at <= deadline => return,
            Some((_, handle)) => drop(ctx.cancel_future(handle)),
            None => {}
        }
        let wait = Duration::from_millis(deadline.since(self.shared.clock.now()).0);
        let handle = ctx.run_later(wait, |client, ctx| {
            client.timer = None;
            client.feed(Event::TimePassed, ctx);
        });
        self.timer = Some((deadline, handle));
    }
}

impl<T: Transport> Actor for Client<T> {
    type Context = T::Context;

    fn started(&mut self, ctx: &mut Self::Context) {
        debug!(self.shared.log, "connection opened"; "connection" => self.id.0);
        T::bound_mailbox(ctx, self.shared.mailbox_max);
        self.arm_timer(ctx);
    }

    /// However the actor comes to its end, the machine hears of it.
    fn stopping(&mut self, ctx: &mut Self::Context) -> Running {
        if self.connection.phase() != PhaseName::Closed {
            self.step(Event::SocketClosed, ctx);
        }
        Running::Stop
    }
}

impl<T: Transport> Handler<DirectPush> for Client<T> {
    type Result = ();

    fn handle(&mut self, DirectPush { message, reply, .. }: DirectPush, ctx: &mut Self::Context) {
        // An endpoint that waited for a frozen connection for too long has stored the message.
        if reply.is_closed() {
            return;
        }
        let push = PushId(self.next_push);
        self.next_push += 1;
        self.pushes.push((push, reply));
        self.feed(Event::PushArrived { push, message }, ctx);
    }
}

impl<T: Transport> Handler<SignalsPending> for Client<T> {
    type Result = ();

    fn handle(&mut self, SignalsPending: SignalsPending, ctx: &mut Self::Context) {
        self.feed(Event::TimePassed, ctx);
    }
}
