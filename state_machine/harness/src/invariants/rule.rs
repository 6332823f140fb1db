//! The rules of a connection, each with its name and its sentence.

use state_machine::connection::{Effect, Event, PhaseName, Wait};
use state_machine::time::Time;

/// Declares an enum whose variants have a name and a sentence each.
#[macro_export]
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

            /// Reports this rule as broken.
            pub fn broken(self, detail: impl Into<String>) -> $crate::invariants::rule::Broken<Self> {
                $crate::invariants::rule::Broken { rule: self, detail: detail.into() }
            }
        }

        /// The name, and with `{:#}` the sentence.
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(if f.alternate() { self.sentence() } else { self.name() })
            }
        }
    };
}

/// Fails with the rule and what was observed, unless the condition holds.
macro_rules! check {
    ($condition:expr, $invariant:expr, $($detail:tt)+) => {
        if !$condition {
            return Err($invariant.broken(format!($($detail)+)));
        }
    };
}

pub(super) use {check, sentences};

/// A broken rule or promise, with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{rule}: {detail} (the rule: {rule:#})")]
pub struct Broken<R> {
    pub rule: R,
    /// What was observed, for a test's report.
    pub detail: String,
}

pub(super) type Checked = Result<(), Broken<Invariant>>;

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
        "A message among the last `remembered_acks_max` acked ones is not sent, unless it is a SimplePush version and its channel was given up.";
    UnackedNeverDeleted, "unacked_never_deleted",
        "A message worth keeping that was sent and is not acked is not deleted, unless its channel was given up.";
    WindowBounded, "window_bounded",
        "At most `unacked_max` messages were sent less than `ack_wait` ago and not acked, and of each channel as many that have not expired. At most 32 times as many are overdue.";
    OthersNotDelayed, "others_not_delayed",
        "An unacked message of one channel delays a message of another channel by at most `ack_wait`.";
    StoredIsRead, "stored_is_read",
        "When an endpoint was answered to store a message, storage is read 5 s later, or once no ack is awaited after that.";
    WindowCounted, "window_counted",
        "The connection counts as unacked what was sent and not acked, and nothing when it is closed. It forgets overdue messages with a TTL of zero, and others when they expire.";
    OrdersNumbered, "orders_numbered",
        "Every store operation has a greater number than all before it.";
    CommandsWaitForReady, "commands_wait_for_ready",
        "Commands are executed in Ready; before it they can only be refused.";
    CommandsInOrder, "commands_in_order",
        "Commands are answered in their order; only a refusal for lack of room is sent at once.";
    HelloFirst, "hello_first",
        "Hello is answered once, under the name the connection is found by, before anything is sent under it.";
    FoundUnderOneName, "found_under_one_name",
        "A connection is found under one name at a time, and under none when it is closed.";
    UrgencyRespected, "urgency_respected",
        "No message is sent that is less urgent than the minimum that was confirmed to the agent.";
    BroadcastsNamed, "broadcasts_named",
        "An agent gets only broadcasts that it named, in the last version that the node sent.";
    BroadcastsDelivered, "broadcasts_delivered",
        "After the node sent the broadcasts and hello is answered, the agent has the version of all that it named.";
    BroadcastsFollowed, "broadcasts_followed",
        "A connection subscribes to broadcasts once, while the agent has any, and unsubscribes when it closes.";
    PreviousNodeNotified, "previous_node_notified",
        "A node is notified exactly when the answer to a registration names it as the previous one; never this node itself.";
    LaterConnectionStays, "later_connection_stays",
        "A connection that is notified of another node closes if the agent registered there later, and stays open if not.";
    NodeClearedAtShutdown, "node_cleared_at_shutdown",
        "At shutdown, and only then, a connection removes its node once from the record that it may have written.";
    SilentAfterClose, "silent_after_close",
        "Close is the last effect; after it a push is busy, and nothing else has an effect.";
    DeadlinesMove, "deadlines_move",
        "After every step the deadline is in the future; a closed connection has none.";
    NothingDueBeforeDeadline, "nothing_due_before_deadline",
        "Until the deadline, time alone changes nothing.";
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
