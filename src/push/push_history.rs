//! The last pushes of this process and how each ended, for `kalends inspect`. They have no contents and no sender.

use parking_lot::Mutex;
use state_machine::{Chid, MessageId, Span, Time, Uaid, Urgency};

/// The last `push_history_max` pushes, in memory that is reserved at the start. Then each push takes the place of the
/// oldest one.
pub struct PushHistory {
    pushes_max: usize,
    ring: Mutex<Ring>,
}

struct Ring {
    pushes: Vec<PushRecord>,
    /// The place of the next push once the ring is full.
    next: usize,
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
}

/// A limit by sender refused the push.
pub const OVER_LIMIT: &str = "over_limit";

impl PushHistory {
    pub fn new(pushes_max: usize) -> Self {
        let pushes = Vec::with_capacity(pushes_max);
        Self { pushes_max, ring: Mutex::new(Ring { pushes, next: 0 }) }
    }

    pub(super) fn add(&self, push: PushRecord) {
        if self.pushes_max == 0 {
            return;
        }
        let mut ring = self.ring.lock();
        let Ring { pushes, next } = &mut *ring;
        if pushes.len() < self.pushes_max {
            pushes.push(push);
            return;
        }
        pushes[*next] = push;
        *next = (*next + 1) % self.pushes_max;
    }

    /// The last pushes that are `wanted`, the newest first.
    pub fn last(&self, count: usize, wanted: impl Fn(&PushRecord) -> bool) -> Vec<PushRecord> {
        let ring = self.ring.lock();
        let (newer, older) = ring.pushes.split_at(ring.next);
        let newest_first = newer.iter().rev().chain(older.iter().rev());
        newest_first.filter(|push| wanted(push)).take(count).copied().collect()
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
        assert_eq!(history.ring.lock().pushes.len(), 3);
    }

    #[test]
    fn a_history_of_0_keeps_nothing() {
        let history = PushHistory::new(0);
        history.add(push(1));
        assert_eq!(times(&history, 9), [0; 0]);
    }
}
