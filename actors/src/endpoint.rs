//! The endpoint actor: drives a `Delivery` for each push.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix::{Actor, Context, Handler, ResponseFuture};
use slog::{Logger, info, warn};
use state_machine::bridged_call::BridgedError;
use state_machine::delivery::{
    Delivery, DeliveryEffect, DeliveryEvent, NodeAnswer, Outcome, PushParams, Route, WriteError,
};
use state_machine::store::{FullScope, StoreFailed, StoreOp, Stored};
use state_machine::{
    BridgeOutcome, BridgeRecipient, Message, Month, NodeBinding, NodeId, RouterRecord, RouterType,
    Span, Uaid,
};
use storage::{Store, StoreError, StoreFuture};
use tokio::time::{Instant, timeout};

use crate::ack_waiters::{AckWaiter, AckWaiters};
use crate::bridge::Bridge;
use crate::bridged_agents::BridgedAgents;
use crate::clock::Clock;
use crate::counters::{StoreCall, StoreTimes};
use crate::mailbox::{BoundedActor, Mailbox, Queued};
use crate::nodes::NodeDirectory;
use crate::observe::{EndpointState, Observe, observed};
use crate::shared_log_limiter::SharedLogLimiter;

/// Minimum time between two log lines of pushes that were refused for the bound of waiting messages.
const FULL_LOG_EVERY: Span = Span::from_secs(10);

/// Minimum time between two log lines of pushes that were refused for `agent_pushes_awaiting_bridge_max`.
const BRIDGE_LOG_EVERY: Span = Span::from_secs(60);

/// What all endpoint actors of a process share.
pub struct EndpointShared {
    pub store: Arc<dyn Store>,
    /// Finds the node that an agent is connected to.
    pub nodes: Arc<dyn NodeDirectory>,
    /// Sends to the agents behind bridges. It bounds the pushes that wait for it.
    pub bridge: Arc<dyn Bridge>,
    pub bridged_agents: Arc<BridgedAgents>,
    pub clock: Clock,
    pub limits: EndpointLimits,
    pub log: Logger,
    /// Pushes in flight that wait for the store.
    in_flight: AtomicUsize,
    /// Pushes in flight that wait for an ack, or have waited for one.
    ack_waiters: AckWaiters,
    /// Pushes in flight that wait for a bridge, or have waited for one.
    bridge_waiters: AckWaiters,
    /// Counts pushes that were refused because too many to the same agent wait for its bridge.
    bridge_refused: SharedLogLimiter,
    /// Counts pushes that were refused because too many messages wait for their user agents.
    refused_full: SharedLogLimiter,
    /// The mailboxes of all endpoint actors, counted together.
    mailbox: Mailbox,
    space_limiter: SharedLogLimiter,
    /// The operations of pushes on the store.
    pub store_times: StoreTimes,
}

/// Minimum time between two log lines about messages that are refused for want of space.
const SPACE_LOG_EVERY: Span = Span::from_secs(60);

/// What bounds the pushes of a process.
#[derive(Debug, Clone, Copy)]
pub struct EndpointLimits {
    /// How long a push waits for a node's answer: `ack_wait` and a grace for connections that do
    /// not read.
    pub answer_wait: Duration,
    /// Pushes that may wait for an ack. A further push is stored at once.
    pub pushes_awaiting_ack_max: usize,
    /// Pushes to one agent that may wait for an ack. A further push is stored at once.
    pub agent_pushes_awaiting_ack_max: usize,
    /// Pushes to one agent that may wait for its bridge. A further push is refused. The bridge bounds those to all
    /// agents.
    pub agent_pushes_awaiting_bridge_max: usize,
    /// Pushes that may wait for the store. A further push is rejected. Pushes that wait for an ack
    /// are not counted, so that slow agents do not keep messages from being stored.
    pub in_flight_max: usize,
    /// The bound of an endpoint actor's mailbox, in messages. A further push waits in its request:
    /// the actor only has to begin with it, and `in_flight_max` decides whether it is rejected.
    pub mailbox_max: usize,
}

/// Delivers pushes, or stores them.
pub struct Endpoint {
    shared: Arc<EndpointShared>,
}

/// A push of an application server.
#[derive(actix::Message)]
#[rtype(result = "PushEnd")]
pub struct DeliverPush {
    pub uaid: Uaid,
    pub message: Message,
    /// It is a repetition with a greater id, after [`Outcome::Outranked`].
    pub is_repeated: bool,
}

/// How a push ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PushEnd {
    pub outcome: Outcome,
    /// The answer of the agent's node. None if none was asked: the record names no node, or the message is stored first.
    pub node: Option<NodeAnswer>,
}

impl EndpointShared {
    /// For the endpoint actors of a process.
    pub fn new(
        store: Arc<dyn Store>,
        nodes: Arc<dyn NodeDirectory>,
        (bridge, bridged_agents): (Arc<dyn Bridge>, Arc<BridgedAgents>),
        clock: Clock,
        limits: EndpointLimits,
        log: Logger,
    ) -> Self {
        let EndpointLimits { pushes_awaiting_ack_max, agent_pushes_awaiting_ack_max, .. } = limits;
        let ack_waiters = AckWaiters::new(pushes_awaiting_ack_max, agent_pushes_awaiting_ack_max);
        Self {
            store,
            nodes,
            bridge,
            bridged_agents,
            clock,
            limits,
            log,
            in_flight: AtomicUsize::new(0),
            ack_waiters,
            bridge_waiters: AckWaiters::new(usize::MAX, limits.agent_pushes_awaiting_bridge_max),
            bridge_refused: SharedLogLimiter::new(BRIDGE_LOG_EVERY),
            refused_full: SharedLogLimiter::new(FULL_LOG_EVERY),
            mailbox: Mailbox::new(limits.mailbox_max),
            space_limiter: SharedLogLimiter::new(SPACE_LOG_EVERY),
            store_times: StoreTimes::default(),
        }
    }

    /// Counts a push that was refused for the bound of waiting messages.
    fn count_full(&self, scope: FullScope) {
        if let Some(refused) = self.refused_full.count(self.clock.now()) {
            info!(self.log, "too many messages wait for a user agent, refusing further pushes to it";
                "bound_of" => ?scope, "refused" => refused);
        }
    }

    /// Counts a push that was refused for the bound of its agent behind a bridge.
    fn count_bridge_refused(&self, recipient: &BridgeRecipient) {
        if let Some(refused) = self.bridge_refused.count(self.clock.now()) {
            info!(self.log, "too many pushes to one user agent wait for a bridge, further ones get 429";
                "bridge" => recipient.bridge.as_str(), "app" => &*recipient.app,
                "max" => self.limits.agent_pushes_awaiting_bridge_max, "refused" => refused);
        }
    }

    /// Pushes that were refused because too many to the same agent wait for its bridge.
    pub fn bridge_refused(&self) -> u64 {
        self.bridge_refused.total()
    }

    /// Pushes in flight, whatever they wait for.
    pub fn in_flight(&self) -> usize {
        let EndpointState { in_flight, ack_waiters, bridge_waiters, .. } = self.state();
        in_flight + ack_waiters + bridge_waiters
    }

    /// Pushes that were refused because too many messages wait for their user agents.
    pub fn refused_full(&self) -> u64 {
        self.refused_full.total()
    }

    /// Logs once in [`SPACE_LOG_EVERY`] that messages are refused, and how many.
    fn note_no_space(&self) {
        if let Some(messages) = self.space_limiter.count(self.clock.now()) {
            let space = self.store.state().disk;
            warn!(self.log, "messages are refused, the disk has less free space than disk_free_min, or is full";
                "messages" => messages, "free_bytes" => space.map(|space| space.free_bytes));
        }
    }

    pub fn state(&self) -> EndpointState {
        EndpointState {
            mailbox: self.mailbox.state(),
            in_flight: self.in_flight.load(Ordering::Relaxed),
            in_flight_max: self.limits.in_flight_max,
            ack_waiters: self.ack_waiters.len(),
            pushes_awaiting_ack_max: self.limits.pushes_awaiting_ack_max,
            bridge_waiters: self.bridge_waiters.len(),
            refused_full: self.refused_full(),
        }
    }
}

impl Endpoint {
    pub fn new(shared: Arc<EndpointShared>) -> Self {
        Self { shared }
    }

    fn state(&self) -> EndpointState {
        self.shared.state()
    }
}

impl Actor for Endpoint {
    type Context = Context<Self>;
}

impl BoundedActor for Endpoint {
    fn mailbox(&self) -> Mailbox {
        self.shared.mailbox.clone()
    }
}

observed!(Endpoint, EndpointState);

impl Handler<Queued<DeliverPush>> for Endpoint {
    type Result = ResponseFuture<PushEnd>;

    /// The delivery belongs to the actor, not to the request: it ends even if the application
    /// server disconnects.
    fn handle(&mut self, push: Queued<DeliverPush>, _: &mut Self::Context) -> Self::Result {
        let (DeliverPush { uaid, message, is_repeated }, shared) =
            (push.take(), Arc::clone(&self.shared));
        Box::pin(async move {
            match Permit::try_acquire(&shared.in_flight, shared.limits.in_flight_max) {
                Some(permit) => {
                    let counted = Counted::InFlight(permit);
                    let node = None;
                    let mut push =
                        PushInFlight { shared: &shared, uaid, message, is_repeated, counted, node };
                    let outcome = push.run().await;
                    PushEnd { outcome, node: push.node }
                }
                None => PushEnd { outcome: Outcome::Unavailable, node: None },
            }
        })
    }
}

/// A push in flight.
struct PushInFlight<'a> {
    shared: &'a EndpointShared,
    uaid: Uaid,
    message: Message,
    is_repeated: bool,
    counted: Counted<'a>,
    node: Option<NodeAnswer>,
}

/// What a push in flight is counted in: from when it waits for an ack, in `ack_waiters`, and for a bridge, in
/// `bridge_waiters`.
#[expect(dead_code, reason = "kept until the push ends")]
enum Counted<'a> {
    InFlight(Permit<'a>),
    Waiter(AckWaiter<'a>),
}

impl PushInFlight<'_> {
    async fn run(&mut self) -> Outcome {
        let (mut delivery, first) = Delivery::begin(PushParams {
            ttl_is_zero: self.message.ttl_is_zero(),
            stores_first: self.is_repeated || self.message.receipt.is_some(),
            this_month: Month::of(self.shared.clock.now()),
            message_month: self.shared.bridged_agents.message_month(),
        });
        let mut effects = VecDeque::from([first]);
        while let Some(effect) = effects.pop_front() {
            let event = match effect {
                DeliveryEffect::Answer(outcome) => {
                    if let Outcome::Full(scope) = outcome {
                        self.shared.count_full(scope);
                    }
                    return outcome;
                }
                DeliveryEffect::NotifyMessageStored { node } => {
                    self.shared.nodes.notify_stored(&node, self.uaid);
                    continue;
                }
                other => self.execute(other).await,
            };
            effects.extend(delivery.step(event));
        }
        Outcome::Unavailable
    }

    async fn execute(&mut self, effect: DeliveryEffect) -> DeliveryEvent {
        match effect {
            DeliveryEffect::ReadRecord => {
                let read = self.timed(StoreCall::ReadRecord, |store| store.record(self.uaid)).await;
                match self.checked(read) {
                    Ok(Some(record)) if !self.is_for(&record) => DeliveryEvent::OtherProtocol,
                    read => DeliveryEvent::RecordRead(read.map(|record| record.map(Route::from))),
                }
            }
            DeliveryEffect::Deliver { node } => {
                let answer = self.deliver(&node).await;
                self.node = Some(answer);
                DeliveryEvent::NodeAnswered(answer)
            }
            DeliveryEffect::ClearNode { node, connected_at } => {
                let binding = NodeBinding { node, connected_at };
                let op = StoreOp::ClearNode { uaid: self.uaid, binding };
                let cleared = self.timed(StoreCall::ClearNode, |store| store.execute(op)).await;
                let _ = self.checked(cleared);
                DeliveryEvent::NodeCleared
            }
            DeliveryEffect::ConfirmChannel { month } => {
                DeliveryEvent::ChannelConfirmed(self.has_channel(month).await)
            }
            DeliveryEffect::Store { month } => DeliveryEvent::Stored(self.store(month).await),
            // A SimplePush version is in a table without months.
            DeliveryEffect::DeleteStored { .. } if self.message.version().is_some() => {
                DeliveryEvent::OldRowDeleted
            }
            DeliveryEffect::DeleteStored { month } => {
                let op = self.delete(month);
                let deleted = self.timed(StoreCall::Delete, |store| store.execute(op)).await;
                let _ = self.checked(deleted);
                DeliveryEvent::OldRowDeleted
            }
            DeliveryEffect::MoveAgent => DeliveryEvent::AgentMoved(self.move_agent().await),
            DeliveryEffect::SendToBridge { recipient } => {
                DeliveryEvent::BridgeAnswered(self.send_to_bridge(&recipient).await)
            }
            DeliveryEffect::DropRecipient { recipient } => {
                let dropped = self.shared.store.drop_bridged(self.uaid, *recipient).await;
                DeliveryEvent::RecipientDropped(self.checked(dropped))
            }
            // `run` executes these two, because they bring no event.
            DeliveryEffect::NotifyMessageStored { .. } | DeliveryEffect::Answer(_) => {
                DeliveryEvent::NodeCleared
            }
        }
    }

    /// Whether the message is of the protocol that the agent speaks.
    fn is_for(&self, record: &RouterRecord) -> bool {
        (record.router_type == RouterType::SimplePush) == self.message.version().is_some()
    }

    async fn store(&self, month: Month) -> Result<Stored, WriteError> {
        if self.message.version().is_some() {
            return self.store_version(month).await.map_err(|StoreFailed| WriteError::Failed);
        }
        let message = self.message.clone();
        let stored = |store: &dyn Store| store.store_message(self.uaid, month, message);
        match self.timed(StoreCall::StoreMessage, stored).await {
            Err(StoreError::NoSuchMonth(_)) => Err(WriteError::NoSuchMonth),
            stored => self.checked(stored).map_err(|StoreFailed| WriteError::Failed),
        }
    }

    async fn has_channel(&self, month: Month) -> Result<bool, StoreFailed> {
        let read = |store: &dyn Store| store.channels(self.uaid, month);
        let read = self.checked(self.timed(StoreCall::ReadChannels, read).await)?;
        Ok(read.is_some_and(|channels| channels.contains(&self.message.chid)))
    }

    /// Stores a SimplePush version if its channel is registered, so that an agent has no more rows than channels. If the
    /// channel was unregistered meanwhile, the version is deleted: the unregister may have been too early for it.
    async fn store_version(&self, month: Month) -> Result<Stored, StoreFailed> {
        if !self.has_channel(month).await? {
            return Ok(Stored::NoSuchChannel);
        }
        let store = &self.shared.store;
        let stored = store.store_message(self.uaid, month, self.message.clone()).await;
        let stored = self.checked(stored)?;
        if self.has_channel(month).await? {
            return Ok(stored);
        }
        self.checked(store.execute(self.delete(month)).await)?;
        Ok(Stored::NoSuchChannel)
    }

    /// Deletes the row of the message, which no agent has acked.
    fn delete(&self, month: Month) -> StoreOp {
        let (uaid, messages) = (self.uaid, vec![self.message.key()]);
        StoreOp::Delete { uaid, months: vec![month], messages, acks: Vec::new() }
    }

    /// Delivers directly. A missing answer, or a dropped reply, proves nothing about the agent.
    async fn deliver(&mut self, node: &NodeId) -> NodeAnswer {
        let Self { shared, .. } = *self;
        match shared.ack_waiters.try_add(self.uaid) {
            // Kept to the end: a push that has waited is not rejected for want of the other permit.
            Some(waiter) => self.counted = Counted::Waiter(waiter),
            None => return NodeAnswer::Busy,
        }
        let answer = self.shared.nodes.deliver(node, self.uaid, self.message.clone());
        match timeout(self.shared.limits.answer_wait, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => NodeAnswer::Unreachable,
        }
    }

    async fn move_agent(&self) -> Result<Option<Route>, StoreFailed> {
        match self.shared.bridged_agents.move_to_this_month(self.uaid).await {
            Ok(record) => Ok(Some(Route::from(record))),
            Err(BridgedError::UnknownAgent) => Ok(None),
            Err(_) => Err(StoreFailed),
        }
    }

    /// The bound is not that of acks: a slow bridge keeps no message from being stored or delivered.
    async fn send_to_bridge(&mut self, recipient: &BridgeRecipient) -> BridgeOutcome {
        let Self { shared, .. } = *self;
        match shared.bridge_waiters.try_add(self.uaid) {
            Some(waiter) => self.counted = Counted::Waiter(waiter),
            None => {
                shared.count_bridge_refused(recipient);
                return BridgeOutcome::Busy { retry_after: None };
            }
        }
        self.shared.bridge.send(recipient, &self.message).await
    }

    /// Executes an operation and counts its time. The embedded engine reads within `call`.
    async fn timed<T>(
        &self,
        kind: StoreCall,
        call: impl FnOnce(&dyn Store) -> StoreFuture<T>,
    ) -> Result<T, StoreError> {
        let began = Instant::now();
        let answer = call(&*self.shared.store).await;
        self.shared.store_times.add(kind, began.elapsed());
        answer
    }

    fn checked<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreFailed> {
        answer.map_err(|error| {
            match error {
                StoreError::NoSpace => self.shared.note_no_space(),
                error => {
                    warn!(self.shared.log, "a store operation of a push failed"; "error" => %error);
                }
            }
            StoreFailed
        })
    }
}

/// One of a bounded number of pushes, until it is dropped.
struct Permit<'a>(&'a AtomicUsize);

impl<'a> Permit<'a> {
    /// A permit, unless `max` are taken. Cheaper than a semaphore, and the counter can be observed.
    fn try_acquire(counter: &'a AtomicUsize, max: usize) -> Option<Self> {
        let before = counter.fetch_add(1, Ordering::Relaxed);
        let counted = Self(counter);
        (before < max).then_some(counted)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
