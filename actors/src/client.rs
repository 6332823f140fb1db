//! The client actor: the only caller of `Connection::step`.
//!
//! [`Client::feed`] steps the machine, [`Client::execute`] executes one effect, and the client is
//! woken at the machine's deadline.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix::dev::SendError;
use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Running, StreamHandler, WrapFuture,
};
use slog::{Logger, debug, warn};
use state_machine::connection::{
    BroadcastsDue, CloseReason, Config, Connection, ConnectionSeed, Effect, Effects, Event,
    PhaseName, PushAnswer,
};
use state_machine::delivery::NodeAnswer;
use state_machine::feed::FeedSyncId;
use state_machine::store::{RegisterResult, Registration, StoreAnswer, StoreFailed, StoreOp};
use state_machine::wire::{ClientMessage, EndpointUrls, ServerMessage};
use state_machine::{ConnectionId, MessageId, MessageKey, OpId, PushId, Time, Uaid};
use storage::{Store, StoreError};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::admission::Admission;
use crate::broadcasts::{BroadcastView, Subscribe, Unsubscribe};
use crate::clock::Clock;
use crate::counters::{MonthMove, StoreCall};
use crate::feeds::Feeds;
use crate::frame_limits::FrameLimits;
use crate::handle::{ClientHandle, ClientMail, ClientMailbox, DirectPush, Inbox, Signal, answer};
use crate::mailbox::BoundedAddr;
use crate::nodes::NodeDirectory;
use crate::observe::{ClientCounters, ClientState};
use crate::registry::{Deregister, Register, RegistryActor};
use crate::store_executor::{self, PendingAnswer};
use crate::wake_ups::WakeUp;

/// What all clients of a node share.
pub struct ClientShared {
    /// The node's name, its limits, its month.
    pub config: Arc<Config>,
    pub store: Arc<dyn Store>,
    /// The registry of this node.
    pub registry: BoundedAddr<RegistryActor>,
    /// Finds the node that an agent was connected to before.
    pub nodes: Arc<dyn NodeDirectory>,
    /// Counts the clients by phase.
    pub counters: Arc<ClientCounters>,
    /// The broadcasts; none on a node without them.
    pub broadcasts: Option<BroadcastView>,
    /// Publishes the receipts of acked messages; a sweep does it for a node without.
    pub receipts: Option<Feeds>,
    pub urls: Box<dyn EndpointUrls + Send + Sync>,
    /// Hears of each refused `register`: its status and the reason.
    pub register_refused: Box<dyn Fn(u16, &'static str) + Send + Sync>,
    pub clock: Clock,
    /// The bound of a client's mailbox, in messages.
    pub mailbox_max: usize,
    pub frame_limits: Arc<FrameLimits>,
    pub log: Logger,
    /// The id of the next connection.
    pub connections: AtomicU64,
}

/// How a client's frames travel: over a WebSocket in the product, to a test otherwise.
pub trait Transport: StepObserver + Sized + Unpin + 'static {
    /// The actor context that carries it.
    type Context: ActorContext + AsyncContext<Client<Self>>;

    /// Sends a text frame.
    fn text(&mut self, ctx: &mut Self::Context, json: String);

    fn ping(&mut self, ctx: &mut Self::Context);

    /// Sends the close frame that the reason requires for this agent, if any. The actor stops right after.
    fn close(&mut self, ctx: &mut Self::Context, reason: CloseReason);
}

/// Observes the steps of a connection's machine. The product's observer does nothing; the trace
/// tests record each step.
pub trait StepObserver {
    fn step(&mut self, connection: &mut Connection, now: Time, event: Event) -> Effects {
        connection.step(now, event)
    }
}

/// One user agent's connection.
pub struct Client<T> {
    connection: Connection,
    id: ConnectionId,
    /// Its slot in the staggered fan-out of broadcasts.
    slot: u32,
    shared: Arc<ClientShared>,
    mailbox: Arc<ClientMailbox>,
    /// The endpoints that wait for the answer to a push.
    pushes: Vec<(PushId, oneshot::Sender<NodeAnswer>)>,
    next_push: u64,
    /// The phase that it is counted in.
    phase: PhaseName,
    admission: Box<dyn Admission>,
    /// When [`Event::TimePassed`] is due.
    wake_up: WakeUp,
    /// Whether a stream of its transport has its mail.
    is_inbox_taken: bool,
    pub(crate) transport: T,
}

impl<T: Transport> Client<T> {
    /// A client for a socket that was just accepted.
    pub fn new(
        shared: Arc<ClientShared>,
        seed: ConnectionSeed,
        admission: Box<dyn Admission>,
        transport: T,
    ) -> Self {
        let id = ConnectionId(shared.connections.fetch_add(1, Ordering::Relaxed));
        let mailbox = Arc::new(ClientMailbox::new(shared.mailbox_max));
        let connection = Connection::new(Arc::clone(&shared.config), seed, shared.clock.now());
        let phase = connection.phase();
        shared.counters.moved(None, Some(phase));
        Self {
            connection,
            id,
            slot: seed.slot(),
            shared,
            mailbox,
            pushes: Vec::new(),
            next_push: 0,
            phase,
            admission,
            wake_up: WakeUp::default(),
            is_inbox_taken: false,
            transport,
        }
    }

    pub(crate) fn frame_limits(&self) -> Arc<FrameLimits> {
        Arc::clone(&self.shared.frame_limits)
    }

    /// The stream of its mail, for a transport that polls it before its frames.
    pub(crate) fn take_inbox(&mut self) -> Inbox {
        self.is_inbox_taken = true;
        Inbox(Arc::clone(&self.mailbox))
    }

    /// Steps the machine and executes its effects, then handles the pending signals.
    pub fn feed(&mut self, event: Event, ctx: &mut T::Context) {
        if let Event::MessageReceived(message) = &event {
            self.shared.counters.count_acks(message);
        }
        let event = self.admit_hello(event);
        self.poll_broadcasts(&event, ctx);
        self.step(event, ctx);
        while let Some(signal) = self.mailbox.signals.take() {
            self.on_signal(signal, ctx);
        }
        self.set_wake_up();
    }

    /// Replaces the first hello by its refusal if it is over a limit.
    fn admit_hello(&self, event: Event) -> Event {
        match &event {
            Event::MessageReceived(ClientMessage::Hello { uaid, .. })
                if self.phase == PhaseName::AwaitingHello =>
            {
                self.admission.hello(*uaid).map_or_else(Event::HelloOverLimit, |()| event)
            }
            _ => event,
        }
    }

    /// The answer to a new record or a new channel that is refused. A session that moves to another month copies its
    /// channels at any pace, and on a disk that is nearly full too.
    fn refusal(&self, request: &StoreOp) -> Option<StoreAnswer> {
        let uaid = match request {
            StoreOp::Register(Registration { create_in: Some(_), .. }) => None,
            StoreOp::AddChannels { uaid, .. } if self.phase == PhaseName::Ready => Some(*uaid),
            _ => return None,
        };
        if !self.shared.store.admits_subscription() {
            return Some(StoreAnswer::NoSpace);
        }
        let is_within =
            uaid.map_or_else(|| self.admission.new_agent(), |uaid| self.admission.register(uaid));
        (!is_within).then_some(StoreAnswer::OverLimit)
    }

    /// The connection decides when a message is answered with the current broadcasts.
    fn poll_broadcasts(&mut self, event: &Event, ctx: &mut T::Context) {
        match self.connection.broadcasts_due(event) {
            Some(BroadcastsDue::Before) => self.on_signal(Signal::BroadcastsChanged, ctx),
            Some(BroadcastsDue::After) => self.mailbox.signals.raise(Signal::BroadcastsChanged),
            None => {}
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
            Signal::AccessEnded => Event::AccessEnded,
            Signal::BroadcastsChanged => match &self.shared.broadcasts {
                Some(view) => Event::BroadcastsChanged(Arc::clone(&view.now.borrow())),
                None => return,
            },
        };
        self.step(event, ctx);
    }

    fn step(&mut self, event: Event, ctx: &mut T::Context) {
        let now = self.shared.clock.now();
        let effects = self.transport.step(&mut self.connection, now, event);
        let phase = self.connection.phase();
        if phase != self.phase {
            self.shared.counters.moved(Some(self.phase), Some(phase));
            self.phase = phase;
        }
        for effect in effects {
            self.execute(effect, ctx);
        }
    }

    fn execute(&mut self, effect: Effect, ctx: &mut T::Context) {
        match effect {
            Effect::Send(message) => {
                if let ServerMessage::RegisterRefused { status, reason, .. } = message {
                    (self.shared.register_refused)(status, reason);
                }
                self.transport.text(ctx, message.to_json(&*self.shared.urls));
            }
            Effect::Ping => self.transport.ping(ctx),
            Effect::SubmitStoreOp { op, operation } => self.submit(op, operation, ctx),
            Effect::AnswerPush { push, answer, message } => {
                self.answer_push(push, answer, message, ctx);
            }
            Effect::Register { uaid } => self.register(uaid),
            Effect::Deregister { uaid } => self.deregister(uaid),
            Effect::NotifyPreviousNode { node, uaid, connected_at } => {
                self.shared.nodes.notify_moved(&node, uaid, connected_at);
            }
            Effect::SubscribeBroadcasts { last_sent } => self.subscribe_broadcasts(last_sent),
            Effect::UnsubscribeBroadcasts => self.unsubscribe_broadcasts(),
            Effect::Close(reason) => {
                debug!(self.shared.log, "connection closed";
                    "connection" => self.id.0, "reason" => reason.text());
                self.transport.close(ctx, reason);
                ctx.stop();
            }
        }
    }

    /// The store has the operation when this returns: an actor that stops does not cancel it.
    fn submit(&self, op: OpId, request: StoreOp, ctx: &mut T::Context) {
        let registration = match &request {
            StoreOp::Register(Registration { uaid, connected_at, .. }) => {
                Some((*uaid, *connected_at))
            }
            _ => None,
        };
        let (call, began, deleted) =
            (StoreCall::from(&request), Instant::now(), ids_deleted(&request));
        let mut answer = match self.refusal(&request) {
            None => {
                store_executor::submit(&*self.shared.store, self.shared.receipts.as_ref(), request)
            }
            Some(refusal) => Box::pin(ready(Ok(refusal))),
        };
        if let Some((uaid, connected_at)) = registration {
            answer = outlive_connection(answer, uaid, connected_at, Arc::clone(&self.shared));
        }
        ctx.spawn(answer.into_actor(self).map(move |answer, client, ctx| {
            client.count_store_answer((call, began.elapsed()), &deleted, answer.as_ref().ok());
            let answer = answer.map_err(|error| {
                warn!(client.shared.log, "a store operation of a connection failed, it will be retried";
                    "connection" => client.id.0, "error" => %error);
                StoreFailed
            });
            client.feed(Event::StoreAnswered { op, answer }, ctx);
        }));
    }

    fn count_store_answer(
        &self,
        (call, took): (StoreCall, Duration),
        deleted: &[MessageId],
        answer: Option<&StoreAnswer>,
    ) {
        let counters = &self.shared.counters;
        counters.store_times.add(call, took);
        if let Some(step) = answer.and_then(MonthMove::of) {
            counters.moves.count(step as usize);
        }
        if let Some(StoreAnswer::Deleted(_)) = answer {
            let now = self.shared.clock.now();
            for minted in deleted.iter().filter_map(|id| id.minted_at()) {
                counters.time_in_storage.add(Duration::from_millis(now.since(minted).0));
            }
        }
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
        self.shared.counters.pushes_ended(1);
        self.shared.counters.count_answer(push_answer);
        if !answer(reply, push_answer) && push_answer == PushAnswer::Accepted {
            self.step(Event::AckReplyLost(message), ctx);
        }
    }

    fn register(&self, uaid: Uaid) {
        let register = Register { uaid, connection: self.id, handle: self.own_handle() };
        if self.shared.registry.try_send(register).is_err() {
            // No push would find this connection: the agent is to reconnect.
            warn!(self.shared.log, "the registry's mailbox is full or closed, closing a connection";
                "connection" => self.id.0);
            self.mailbox.signals.raise(Signal::ShutdownBegan);
        }
    }

    fn deregister(&self, uaid: Uaid) {
        // If it is refused, the registry forgets the connection when it finds its mailbox closed.
        drop(self.shared.registry.try_send(Deregister { uaid, connection: self.id }));
    }

    fn subscribe_broadcasts(&self, last_sent: FeedSyncId) {
        let Some(view) = &self.shared.broadcasts else { return };
        let (connection, slot, handle) = (self.id, self.slot, self.own_handle());
        match view.subscribe.try_send(Subscribe { connection, slot, last_sent, handle }) {
            Ok(()) => {}
            Err(SendError::Full(_)) => {
                // The connection would miss all changes: the agent is to reconnect.
                warn!(self.shared.log, "the broadcaster's mailbox is full, closing a connection";
                    "connection" => self.id.0);
                self.mailbox.signals.raise(Signal::ShutdownBegan);
            }
            // Reconnecting would not help, and messages are delivered without broadcasts.
            Err(SendError::Closed(_)) => {
                warn!(self.shared.log, "the broadcaster has stopped, restart the server to send broadcasts";
                    "connection" => self.id.0);
            }
        }
    }

    fn unsubscribe_broadcasts(&self) {
        if let Some(view) = &self.shared.broadcasts {
            // If it is refused, the broadcast actor forgets the connection when it finds its
            // mailbox closed.
            drop(view.unsubscribe.try_send(Unsubscribe { connection: self.id, slot: self.slot }));
        }
    }

    fn own_handle(&self) -> ClientHandle {
        ClientHandle::new(Arc::clone(&self.mailbox))
    }

    fn set_wake_up(&mut self) {
        let deadline = self.connection.deadline().map(|(at, _)| at);
        self.wake_up.set(deadline, &self.shared.clock, &self.mailbox);
    }

    /// Delivers a push to the agent.
    pub fn push_arrived(&mut self, push: DirectPush, ctx: &mut T::Context) {
        let DirectPush { message, reply, .. } = push;
        // An endpoint that no longer waits has stored the message.
        if reply.is_closed() {
            return;
        }
        let push = PushId(self.next_push);
        self.next_push += 1;
        self.pushes.push((push, reply));
        self.shared.counters.push_arrived();
        self.feed(Event::PushArrived { push, message }, ctx);
    }

    fn state(&self) -> ClientState {
        ClientState {
            connection: self.id,
            mailbox: self.mailbox.state(),
            phase: self.phase,
            unacked: self.connection.unacked(),
            overdue: self.connection.overdue(),
            oldest_unacked: self.connection.oldest_unacked(),
            pushes_waiting: self.pushes.len(),
            deadline: self.connection.deadline(),
        }
    }
}

/// The messages that an operation deletes.
fn ids_deleted(op: &StoreOp) -> Vec<MessageId> {
    match op {
        StoreOp::Delete { messages, .. } => messages.iter().map(|message| message.id).collect(),
        _ => Vec::new(),
    }
}

/// The answer to a registration. If the connection ends first, a task notifies the agent's previous
/// node all the same: the agent's next connection here finds this node in the record, and does not
/// know of the previous one.
fn outlive_connection(
    answer: PendingAnswer,
    uaid: Uaid,
    connected_at: Time,
    shared: Arc<ClientShared>,
) -> PendingAnswer {
    let (connection, answered) = oneshot::channel();
    actix::spawn(async move {
        let Err(Ok(unread)) = connection.send(answer.await) else { return };
        if let StoreAnswer::Registered(RegisterResult::Registered(_, Some(before))) = unread
            && before.node != shared.config.node
        {
            shared.nodes.notify_moved(&before.node, uaid, connected_at);
        }
    });
    Box::pin(async { answered.await.unwrap_or(Err(StoreError::Closed)) })
}

impl<T: Transport> Actor for Client<T> {
    type Context = T::Context;

    fn started(&mut self, ctx: &mut Self::Context) {
        debug!(self.shared.log, "connection opened"; "connection" => self.id.0);
        if !self.is_inbox_taken {
            Self::add_stream(self.take_inbox(), ctx);
        }
        self.set_wake_up();
    }

    /// Closes the machine, however the actor ends.
    fn stopping(&mut self, ctx: &mut Self::Context) -> Running {
        if self.connection.phase() != PhaseName::Closed {
            self.step(Event::SocketClosed, ctx);
        }
        Running::Stop
    }
}

impl<T: Transport> StreamHandler<ClientMail> for Client<T> {
    fn handle(&mut self, mail: ClientMail, ctx: &mut Self::Context) {
        match mail {
            ClientMail::Push(push) => self.push_arrived(push, ctx),
            ClientMail::Wake => {
                self.wake_up.cancel(&self.mailbox);
                self.feed(Event::TimePassed, ctx);
            }
            // An observer that no longer waits has no use for it.
            ClientMail::Observe(reply) => drop(reply.send(self.state())),
        }
    }
}

/// However a client ends, it is no longer counted, and nothing reaches it.
impl<T> Drop for Client<T> {
    fn drop(&mut self) {
        self.mailbox.close();
        self.wake_up.cancel(&self.mailbox);
        self.shared.counters.pushes_ended(self.pushes.len());
        self.shared.counters.moved(Some(self.phase), None);
    }
}
