//! What actors answer when they are observed: plain structs, for metrics and for an operator's
//! page.
//!
//! Counts of many clients are moved by the clients themselves, so that observing them sends no
//! message to any of them.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use state_machine::connection::{PhaseName, PushAnswer, Wait};
use state_machine::feed::FeedSyncId;
use state_machine::wire::ClientMessage;
use state_machine::{ConnectionId, NodeId, Span, Time};

use crate::counters::{Counters, Histogram, MonthMove, StoreTimes, WAITING_BOUNDS};
use crate::mailbox::MailboxState;
use crate::rivals::Rivals;

/// Asks an actor for its state `S`.
#[derive(Debug, Clone, Copy)]
pub struct Observe<S>(PhantomData<S>);

impl<S> Observe<S> {
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

impl<S> Default for Observe<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: 'static> actix::Message for Observe<S> {
    type Result = S;
}

/// Answers [`Observe`] with an actor's `state`. A blanket impl is impossible: the trait is actix's.
macro_rules! observed {
    ($actor:ty, $state:ty) => {
        impl Handler<Queued<Observe<$state>>> for $actor {
            type Result = $state;

            fn handle(
                &mut self,
                observe: Queued<Observe<$state>>,
                _: &mut Self::Context,
            ) -> $state {
                // The request itself no longer waits in the mailbox.
                drop(observe);
                self.state()
            }
        }
    };
}
pub(crate) use observed;

/// The registry: the connections of this node, and its peers.
#[derive(Debug, Clone, PartialEq, Eq, actix::dev::MessageResponse)]
pub struct RegistryState {
    pub mailbox: MailboxState,
    /// Connections that are found by uaid.
    pub connections: usize,
    pub clients: ClientCounts,
    /// Connections that a drain has yet to close; none while the node does not drain.
    pub draining: Option<usize>,
    /// The other nodes that this one has called.
    pub peers: Vec<PeerStatus>,
}

/// The client actors of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientCounts {
    /// How many are in each phase. A phase without clients is absent.
    pub phases: BTreeMap<PhaseName, usize>,
    /// Pushes that were delivered to a client actor and are not answered: most of them wait for the
    /// agent's ack.
    pub pushes_waiting: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientState {
    pub connection: ConnectionId,
    pub mailbox: MailboxState,
    /// The phase of its machine.
    pub phase: PhaseName,
    /// Messages that were sent to the agent and are not acked.
    pub unacked: usize,
    /// Those of them that have waited for more than `ack_wait`.
    pub overdue: usize,
    /// When the oldest of the others was sent.
    pub oldest_unacked: Option<Time>,
    /// Pushes whose endpoints wait for an answer.
    pub pushes_waiting: usize,
    /// The next deadline, and what it is for.
    pub deadline: Option<(Time, Wait)>,
}

/// The endpoint actors of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, actix::dev::MessageResponse)]
pub struct EndpointState {
    /// The mailboxes: the length of all together, the bound of each.
    pub mailbox: MailboxState,
    /// Pushes in flight that wait for the store.
    pub in_flight: usize,
    /// The bound of `in_flight`.
    pub in_flight_max: usize,
    /// Pushes in flight that wait for an ack, or have waited for one.
    pub ack_waiters: usize,
    /// The bound of `ack_waiters`.
    pub pushes_awaiting_ack_max: usize,
    /// Pushes in flight that wait for a bridge, or have waited for one.
    pub bridge_waiters: usize,
    /// Pushes that were refused because too many messages wait for their user agents.
    pub refused_full: u64,
}

/// The publisher of feeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, actix::dev::MessageResponse)]
pub struct PublisherState {
    pub mailbox: MailboxState,
    /// Feeds and their followers.
    pub feeds: FeedStats,
    /// Active feeds whose last publication the store failed.
    pub failing: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, actix::dev::MessageResponse)]
pub struct BroadcastState {
    pub mailbox: MailboxState,
    /// Connections that are woken when a broadcast changes.
    pub subscribers: usize,
    /// The last change of the broadcasts that this node knows.
    pub cursor: FeedSyncId,
}

/// Another node, as this one calls it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerStatus {
    /// Its name in router records.
    pub node: NodeId,
    /// Whether requests are sent to it.
    pub breaker: BreakerState,
    /// Pushes in flight to it.
    pub pushes_in_flight: usize,
    /// Notifications that wait to be sent to it.
    pub notifications_pending: usize,
}

/// The state of a peer's circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    Closed,
    /// No request is sent until the probe.
    Open {
        /// Time until the probe is due; zero if it is overdue.
        probe_in: Span,
    },
    /// The probe is under way.
    HalfOpen,
}

/// The feeds of a node in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedStats {
    /// Followers, without those of the node itself.
    pub followers: usize,
    /// Followers that have not received everything that is published, those of the node itself among them.
    pub followers_behind: usize,
    /// Feeds that are followed.
    pub followed: usize,
    /// Feeds that are followed or have something to publish.
    pub open: usize,
    /// Deleted keys that this node has forgotten since it started.
    pub forgotten: u64,
}

/// Counts the client actors of a node. Each client moves itself when its phase changes.
#[derive(Debug)]
pub struct ClientCounters {
    phases: Mutex<BTreeMap<PhaseName, usize>>,
    pushes_waiting: AtomicUsize,
    /// Acknowledged messages by their code, in the order of [`ACK_CODES`].
    pub acks: Counters<{ ACK_CODES.len() }>,
    /// Answers to endpoints, in the order of [`PUSH_ANSWERS`].
    pub answers: Counters<{ PUSH_ANSWERS.len() }>,
    /// Moves to another month, in the order of [`MonthMove::ALL`].
    pub moves: Counters<{ MonthMove::ALL.len() }>,
    /// From the time in a stored message's id to its deletion.
    pub time_in_storage: Histogram,
    pub store_times: StoreTimes,
    pub rivals: Rivals,
}

/// The codes of an `ack`; another or a missing one counts as `other`. A `nack` is no ack.
pub const ACK_CODES: [&str; 5] = ["100", "101", "102", "other", "nack"];

/// The answers to an endpoint.
pub const PUSH_ANSWERS: [&str; 4] = ["accepted", "unconfirmed", "busy", "no_such_channel"];

impl Default for ClientCounters {
    fn default() -> Self {
        Self {
            phases: Mutex::default(),
            pushes_waiting: AtomicUsize::default(),
            acks: Counters::default(),
            answers: Counters::default(),
            moves: Counters::default(),
            time_in_storage: Histogram::new(WAITING_BOUNDS),
            store_times: StoreTimes::default(),
            rivals: Rivals::default(),
        }
    }
}

impl ClientCounters {
    pub fn counts(&self) -> ClientCounts {
        let pushes_waiting = self.pushes_waiting.load(Ordering::Relaxed);
        ClientCounts { phases: self.phases.lock().clone(), pushes_waiting }
    }

    /// User agents that have said hello.
    pub fn identified(&self) -> u64 {
        let is_one =
            |phase: &PhaseName| !matches!(phase, PhaseName::AwaitingHello | PhaseName::Closed);
        let phases = self.phases.lock();
        phases.iter().filter(|(phase, _)| is_one(phase)).map(|(_, count)| *count as u64).sum()
    }

    /// Moves a client from one phase to another. A new client comes from no phase, one that ends
    /// goes to none.
    pub(crate) fn moved(&self, from: Option<PhaseName>, to: Option<PhaseName>) {
        let mut phases = self.phases.lock();
        if let Some(to) = to {
            *phases.entry(to).or_default() += 1;
        }
        if let Some(from) = from
            && let Some(count) = phases.get_mut(&from)
        {
            *count -= 1;
            if *count == 0 {
                phases.remove(&from);
            }
        }
    }

    /// Counts what a message acknowledges or refuses.
    pub(crate) fn count_acks(&self, message: &ClientMessage) {
        match message {
            ClientMessage::Ack { updates } => {
                updates.iter().for_each(|update| match update.code {
                    Some(100) => self.acks.count(0),
                    Some(101) => self.acks.count(1),
                    Some(102) => self.acks.count(2),
                    _ => self.acks.count(3),
                });
            }
            ClientMessage::Nack => self.acks.count(4),
            _ => {}
        }
    }

    pub(crate) fn count_answer(&self, answer: PushAnswer) {
        self.answers.count(match answer {
            PushAnswer::Accepted => 0,
            PushAnswer::Unconfirmed => 1,
            PushAnswer::Busy => 2,
            PushAnswer::NoSuchChannel => 3,
        });
    }

    pub(crate) fn push_arrived(&self) {
        self.pushes_waiting.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn pushes_ended(&self, count: usize) {
        self.pushes_waiting.fetch_sub(count, Ordering::Relaxed);
    }
}
