//! The endpoint actor: drives one `Delivery` after the other, many at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix::{Actor, Context, Handler, ResponseFuture};
use slog::{Logger, warn};
use state_machine::delivery::{
    Delivery, DeliveryEffect, DeliveryEvent, NodeAnswer, Outcome, PushParams, Route, WriteError,
};
use state_machine::store::StoreFailed;
use state_machine::{Message, Month, NodeId, Uaid};
use storage::{Store, StoreError};
use tokio::time::timeout;

use crate::clock::Clock;
use crate::nodes::NodeDirectory;

/// What all endpoint actors of a process share.
pub struct EndpointShared {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Where connections are.
    pub nodes: Arc<dyn NodeDirectory>,
    /// The clock.
    pub clock: Clock,
    /// The limits.
    pub limits: EndpointLimits,
    /// The log.
    pub log: Logger,
    /// Pushes under way that want nothing but the store.
    in_flight: AtomicUsize,
    /// Pushes under way that wait for an ack, or have waited for one.
    ack_waiters: AtomicUsize,
}

/// What bounds the pushes of a process.
#[derive(Debug, Clone, Copy)]
pub struct EndpointLimits {
    /// How long a node's answer is waited for: `ack_wait` and a grace for connections that stand still.
    pub answer_wait: Duration,
    /// Pushes that may wait for an ack; beyond that they are stored at once.
    pub pushes_awaiting_ack_max: usize,
    /// Pushes under way that wait for nothing but the store; beyond that they are refused. Those that wait
    /// for an ack are not among them: however many agents are slow, what is to be stored can be.
    pub in_flight_max: usize,
    /// Messages an endpoint actor's mailbox holds. One more waits in its sender's own place: the actor
    /// has only to begin with it, and whether it is refused is for `in_flight_max` to say.
    pub mailbox_max: usize,
}

/// Delivers pushes, or stores them.
pub struct Endpoint {
    shared: Arc<EndpointShared>,
}

/// A push of an application server.
#[derive(actix::Message)]
#[rtype(result = "Outcome")]
pub struct DeliverPush {
    /// To whom.
    pub uaid: Uaid,
    /// What.
    pub message: Message,
}

impl EndpointShared {
    /// For the endpoint actors of a process.
    pub fn new(
        store: Arc<dyn Store>,
        nodes: Arc<dyn NodeDirectory>,
        clock: Clock,
        limits: EndpointLimits,
        log: Logger,
    ) -> Self {
        let (in_flight, ack_waiters) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { store, nodes, clock, limits, log, in_flight, ack_waiters }
    }

    /// How many pushes are under way, whatever they wait for.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed) + self.ack_waiters.load(Ordering::Relaxed)
    }
}

impl Endpoint {
    /// An endpoint actor.
    pub fn new(shared: Arc<EndpointShared>) -> Self {
        Self { shared }
    }
}

impl Actor for Endpoint {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(self.shared.limits.mailbox_max);
    }
}

impl Handler<DeliverPush> for Endpoint {
    type Result = ResponseFuture<Outcome>;

    /// The delivery is the actor's, not the request's: it comes to its end whether or not the
    /// application server still listens.
    fn handle(
        &mut self,
        DeliverPush { uaid, message }: DeliverPush,
        _: &mut Self::Context,
    ) -> Self::Result {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            match Permit::try_acquire(&shared.in_flight, shared.limits.in_flight_max) {
                Some(place) => PushInFlight { shared: &shared, uaid, message, place }.run().await,
                None => Outcome::Unavailable,
            }
        })
    }
}

/// One push on its way.
struct PushInFlight<'a> {
    shared: &'a EndpointShared,
    uaid: Uaid,
    message: Message,
    /// Among those in flight; from when it waits for an ack, among those that do.
    place: Permit<'a>,
}

impl PushInFlight<'_> {
    async fn run(mut self) -> Outcome {
        let (mut delivery, first) = Delivery::begin(PushParams {
            ttl_is_zero: self.message.ttl_is_zero(),
            // Whether there is room for it is seen when it is to wait.
            this_month: Month::of(self.shared.clock.now()),
        });
        let mut effects = VecDeque::from([first]);
        while let Some(effect) = effects.pop_front() {
            let event = match effect {
                DeliveryEffect::Answer(outcome) => return outcome,
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
        let store = &self.shared.store;
        match effect {
            DeliveryEffect::ReadRecord => {
                let read = store.record(self.uaid).await;
                let route = self.checked(read).map(|record| record.map(Route::from));
                DeliveryEvent::RecordRead(route)
            }
            DeliveryEffect::Deliver { node } => {
                DeliveryEvent::NodeAnswered(self.deliver(&node).await)
            }
            DeliveryEffect::ClearNode { node, connected_at } => {
                let cleared = store.clear_node(self.uaid, node, connected_at).await;
                self.note(cleared.err());
                DeliveryEvent::NodeCleared
            }
            DeliveryEffect::ConfirmChannel { month } => {
                let read = store.channels(self.uaid, month).await;
                let has =
                    |channels: std::collections::BTreeSet<_>| channels.contains(&self.message.chid);
                DeliveryEvent::ChannelConfirmed(self.checked(read).map(|all| all.is_some_and(has)))
            }
            DeliveryEffect::Store { month } => {
                match store.store_message(self.uaid, month, self.message.clone()).await {
                    Err(StoreError::NoSuchMonth(_)) => {
                        DeliveryEvent::Stored(Err(WriteError::NoSuchMonth))
                    }
                    stored => DeliveryEvent::Stored(
                        self.checked(stored).map_err(|StoreFailed| WriteError::Failed),
                    ),
                }
            }
            DeliveryEffect::DeleteStored { month } => {
                let messages = vec![self.message.key()];
                let deleted = store.delete_messages(self.uaid, vec![month], messages).await;
                self.note(deleted.err());
                DeliveryEvent::OldRowDeleted
            }
            // Handled where the loop is, because they bring no event.
            DeliveryEffect::NotifyMessageStored { .. } | DeliveryEffect::Answer(_) => {
                DeliveryEvent::NodeCleared
            }
        }
    }

    /// An answer that does not come, or whose sender is gone, proves nothing.
    async fn deliver(&mut self, node: &NodeId) -> NodeAnswer {
        let Self { shared, .. } = *self;
        match Permit::try_acquire(&shared.ack_waiters, shared.limits.pushes_awaiting_ack_max) {
            // It keeps this place to its end: who has waited is not refused for want of the other.
            Some(waiter) => self.place = waiter,
            None => return NodeAnswer::Busy,
        }
        let answer = self.shared.nodes.deliver(node, self.uaid, self.message.clone());
        match timeout(self.shared.limits.answer_wait, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => NodeAnswer::Unreachable,
        }
    }

    fn checked<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreFailed> {
        answer.map_err(|error| {
            self.note(Some(error));
            StoreFailed
        })
    }

    fn note(&self, error: Option<StoreError>) {
        if let Some(error) = error {
            warn!(self.shared.log, "the store failed a push"; "error" => %error);
        }
    }
}

/// One of a bounded number, for as long as it lives.
struct Permit<'a>(&'a AtomicUsize);

impl<'a> Permit<'a> {
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
