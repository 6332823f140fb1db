//! The rules that hold for every connection in every history, each under one name.
//!
//! A [`ConnectionChecker`] observes events, effects, phases and deadlines of one connection, step
//! by step. The property test, the model checker and the traces of the real actors are therefore
//! checked by the same rules. A [`DeliveryModel`] does the same for the promises of the whole
//! service.

use std::sync::Arc;

use state_machine::connection::{
    Config, Connection, ConnectionSeed, Effect, Effects, Event, PhaseName, Wait,
};
use state_machine::time::Time;

/// Declares an enum whose variants have a name and a sentence each.
macro_rules! sentences {
    ($(#[$doc:meta])* $type:ident: $($variant:ident, $name:literal, $sentence:literal;)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type {
            $(#[doc = $sentence] $variant,)*
        }

        impl $type {
            /// All variants in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The variant's name in snake case, as tests and reports print it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The rule as a sentence, as tests and reports print it.
            pub fn sentence(self) -> &'static str {
                match self {
                    $(Self::$variant => $sentence,)*
                }
            }
        }
    };
}

pub(crate) use sentences;

/// Fails with the rule and what was observed, unless the condition holds.
macro_rules! check {
    ($condition:expr, $invariant:expr, $($detail:tt)+) => {
        if !$condition {
            return Err(Violation { invariant: $invariant, detail: format!($($detail)+) });
        }
    };
}

mod broadcast_checker;
mod connection_checker;
mod location_checker;
mod promises;

pub use connection_checker::ConnectionChecker;
pub use promises::{Broken, DeliveryModel, Promise};

sentences! {
    /// A rule about a single connection.
    Invariant:
    PushAnsweredOnce, "push_answered_once",
        "A push is answered exactly once, at the latest when the connection closes.";
    PushAnsweredInTime, "push_answered_in_time",
        "A push without an answer was sent to the agent, less than `ack_wait` ago.";
    AcceptedMeansAcked, "accepted_means_acked",
        "A push is accepted because its message was acked, or is sent and has a TTL of zero.";
    UnconfirmedMeansSent, "unconfirmed_means_sent",
        "A push is unconfirmed only if its message was sent.";
    BusyMeansNotSent, "busy_means_not_sent",
        "A push that is busy, or for no such channel, was not sent.";
    SentOnce, "sent_once",
        "A message that is not acked is not sent again on the same connection.";
    AckedNeverSent, "acked_never_sent",
        "A message among the last `remembered_acks_max` acked ones is not sent.";
    UnackedNeverDeleted, "unacked_never_deleted",
        "A message worth keeping that was sent and is not acked is not deleted, unless its channel was given up.";
    WindowBounded, "window_bounded",
        "At most `unacked_max` messages are sent and not acked.";
    WindowCounted, "window_counted",
        "The connection counts as unacked what was sent and not acked, and nothing when it is closed.";
    OrdersNumbered, "orders_numbered",
        "Every order to the store has a greater number than all before it.";
    CommandsWaitForReady, "commands_wait_for_ready",
        "Commands are carried out in Ready; before it they can only be refused.";
    CommandsInOrder, "commands_in_order",
        "Commands are answered in the order they were said; only refusals for want of room come at once.";
    HelloFirst, "hello_first",
        "Hello is answered once, under the name the connection is found by, before anything is sent under it.";
    FoundUnderOneName, "found_under_one_name",
        "A connection is found under one name at a time, and under none when it is closed.";
    UrgencyRespected, "urgency_respected",
        "No message is sent that is less urgent than the agent was told it may want.";
    BroadcastsNamed, "broadcasts_named",
        "An agent is told only of broadcasts that it named, and of them only what the node said last.";
    BroadcastsTold, "broadcasts_told",
        "When the node said what the broadcasts are, the agent has the version of all it named, once hello is answered.";
    BroadcastsFollowed, "broadcasts_followed",
        "Broadcasts are followed while the agent has any of them, once, and left when the connection closes.";
    NodeToldOfMove, "node_told_of_move",
        "A node is told that the agent is connected here when a registration was answered by which the agent was there, and only then; never this node itself.";
    LaterConnectionStays, "later_connection_stays",
        "A connection that is told of another node ends if the agent registered there later, and stays if it did not.";
    NodeClearedAtShutdown, "node_cleared_at_shutdown",
        "A node that shuts down has its name removed from the record that a connection wrote, or may have written: once, at the connection's own place, and never else.";
    SilentAfterClose, "silent_after_close",
        "Close is the last order; after it a push is busy, and nothing else has an effect.";
    DeadlinesMove, "deadlines_move",
        "After every step the deadline lies ahead, so that time alone keeps nobody busy; a closed connection has none.";
}

/// A broken rule, with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail} (the rule: {})", invariant.name(), invariant.sentence())]
pub struct Violation {
    pub invariant: Invariant,
    /// What was observed, for a test's report.
    pub detail: String,
}

/// One step of a connection as it is visible from outside.
#[derive(Debug, Clone, Copy)]
pub struct StepRecord<'a> {
    /// The time of the step, by the node's clock.
    pub now: Time,
    pub event: &'a Event,
    /// All effects of the step, in their order.
    pub effects: &'a [Effect],
    pub before: PhaseName,
    pub after: PhaseName,
    /// [`Connection::unacked`] after the step.
    pub unacked: usize,
    /// [`Connection::deadline`] after the step.
    pub deadline: Option<(Time, Wait)>,
}

/// A connection and its checker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CheckedConnection {
    pub connection: Connection,
    checker: ConnectionChecker,
}

impl CheckedConnection {
    /// Accepts a socket at `now`.
    pub fn new(config: Arc<Config>, seed: ConnectionSeed, now: Time) -> Self {
        let checker = ConnectionChecker::new(Arc::clone(&config));
        Self { connection: Connection::new(config, seed, now), checker }
    }

    /// The number of commands of the agent without an answer.
    pub fn unanswered_commands(&self) -> usize {
        self.checker.unanswered_commands()
    }

    /// Steps the connection and checks every rule.
    pub fn step(&mut self, now: Time, event: &Event) -> Result<Effects, Violation> {
        let before = self.connection.phase();
        let effects = self.connection.step(now, event.clone());
        let seen = StepRecord {
            now,
            event,
            effects: &effects,
            before,
            after: self.connection.phase(),
            unacked: self.connection.unacked(),
            deadline: self.connection.deadline(),
        };
        self.checker.observe(&seen)?;
        Ok(effects)
    }
}
