//! The last pushes of this process and how each ended, for `kalends inspect`. They have no contents and no sender.

use std::collections::VecDeque;

use parking_lot::Mutex;
use state_machine::delivery::NodeAnswer;
use state_machine::{Chid, MessageId, Span, Time, Uaid, Urgency};

/// The last `push_history_max` pushes, in memory that is reserved at the start. Then each push takes the place of the
/// oldest one.
pub struct PushHistory {
    pushes_max: usize,
    pushes: Mutex<VecDeque<PushRecord>>,
}

/// A push whose endpoint was valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PushRecord {
    pub at: Time,
    /// From then to the outcome.
    pub took: Span,
    pub uaid: Uaid,
    pub chid: Chid,
    /// None if the push was refused before it got one.
    pub id: Option<MessageId>,
    pub ttl: Span,
    pub urgency: Urgency,
    /// One of [`OUTCOMES`](super::push_counters::OUTCOMES), or [`OVER_LIMIT`].
    pub outcome: &'static str,
    /// Why a message was stored: one of [`REASONS`].
    pub reason: Option<&'static str>,
}

/// Why a message is stored and not delivered directly, as names and in words.
pub const REASONS: [(&str, &str); 6] = [
    ("receipt", "its sender wants a receipt"),
    ("not_connected", "the user agent was not connected"),
    ("busy", "the user agent was busy with earlier messages"),
    ("not_acked", "the user agent did not ack it in time"),
    ("node_down", "the node of the user agent did not answer"),
    ("new_channel", "the connection of the user agent did not know the channel yet"),
];

/// The reason that follows from the answer of the agent's node; none if no node was asked.
pub(super) fn stored_for(wants_receipt: bool, node: Option<NodeAnswer>) -> &'static str {
    let place = match node {
        None if wants_receipt => 0,
        None | Some(NodeAnswer::NotHere) => 1,
        Some(NodeAnswer::Busy) => 2,
        Some(NodeAnswer::Unconfirmed | NodeAnswer::Accepted) => 3,
        Some(NodeAnswer::Unreachable) => 4,
        Some(NodeAnswer::NoSuchChannel) => 5,
    };
    REASONS[place].0
}

/// The outcome of a push whose message was stored. It may have been delivered since.
pub const STORED: &str = "stored";

/// A limit by sender refused the push.
pub const OVER_LIMIT: &str = "over_limit";

impl PushHistory {
    pub fn new(pushes_max: usize) -> Self {
        Self { pushes_max, pushes: Mutex::new(VecDeque::with_capacity(pushes_max)) }
    }

    pub(super) fn add(&self, push: PushRecord) {
        if self.pushes_max == 0 {
            return;
        }
        let mut pushes = self.pushes.lock();
        if pushes.len() == self.pushes_max {
            pushes.pop_front();
        }
        pushes.push_back(push);
    }

    /// The last pushes that are `wanted`, the newest first.
    pub fn last(&self, count: usize, wanted: impl Fn(&PushRecord) -> bool) -> Vec<PushRecord> {
        let pushes = self.pushes.lock();
        pushes.iter().rev().filter(|push| wanted(push)).take(count).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(at: u64) -> PushRecord {
        PushRecord {
            at: Time(at),
            took: Span::ZERO,
            uaid: Uaid([u8::from(at.is_multiple_of(2)); 16]),
            chid: Chid([1; 16]),
            id: None,
            ttl: Span::ZERO,
            urgency: Urgency::Normal,
            outcome: "stored",
            reason: None,
        }
    }

    fn times(history: &PushHistory, count: usize) -> Vec<u64> {
        history.last(count, |_| true).iter().map(|push| push.at.0).collect()
    }

    #[test]
    fn the_last_pushes_are_kept_and_found_newest_first() {
        let history = PushHistory::new(3);
        assert_eq!(times(&history, 9), [0; 0]);
        for (at, expected) in [
            (1, &[1][..]),
            (2, &[2, 1]),
            (3, &[3, 2, 1]),
            (4, &[4, 3, 2]),
            (5, &[5, 4, 3]),
            (6, &[6, 5, 4]),
            (7, &[7, 6, 5]),
        ] {
            history.add(push(at));
            assert_eq!(times(&history, 9), expected);
        }
        assert_eq!(times(&history, 2), [7, 6]);
        let even = history.last(9, |push| push.uaid == Uaid([1; 16]));
        assert_eq!(even, [push(6)]);
        assert_eq!(history.pushes.lock().len(), 3);
    }

    #[test]
    fn a_history_of_0_keeps_nothing() {
        let history = PushHistory::new(0);
        history.add(push(1));
        assert_eq!(times(&history, 9), [0; 0]);
    }
}
