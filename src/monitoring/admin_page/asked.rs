//! What was asked of the store and of other nodes, and when it is asked again: one round at a time.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use state_machine::{Span, Time};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Time after a round was due until its answers before are of no use. No page was open then.
const ANSWERS_KEPT: Span = Span::from_secs(60);

pub(super) struct Asked<T> {
    last: Mutex<T>,
    due: Mutex<Option<Time>>,
    rounds: Arc<Semaphore>,
}

impl<T: Default> Default for Asked<T> {
    fn default() -> Self {
        Self { last: Mutex::default(), due: Mutex::default(), rounds: Arc::new(Semaphore::new(1)) }
    }
}

impl<T: Default> Asked<T> {
    /// The answers of the last round.
    pub(super) fn last(&self) -> MutexGuard<'_, T> {
        self.last.lock()
    }

    /// Begins a round if one is due, as it also is after the clock was set back, and if none is under way. It is due again
    /// after `every`. The permit is held until the round ends.
    pub(super) fn begin(&self, now: Time, every: Span) -> Option<OwnedSemaphorePermit> {
        let mut due = self.due.lock();
        let is_due = due.is_none_or(|due| due <= now || due > now + every);
        let permit = Arc::clone(&self.rounds).try_acquire_owned().ok().filter(|_| is_due)?;
        if due.is_some_and(|due| now.since(due) >= ANSWERS_KEPT) {
            *self.last() = T::default();
        }
        *due = Some(now + every);
        Some(permit)
    }

    /// What was asked has changed: the next round is due.
    pub(super) fn renew(&self, now: Time) {
        if let Some(due) = &mut *self.due.lock() {
            *due = (*due).min(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Span = Span::from_secs(60);

    #[test]
    fn a_round_begins_once_in_each_period() {
        let asked = Asked::<()>::default();
        let times = |seconds: &[u64]| {
            let is_due = |second: &&u64| asked.begin(Time(**second * 1000), EVERY).is_some();
            seconds.iter().filter(is_due).copied().collect::<Vec<_>>()
        };
        assert_eq!(times(&[1000, 1001, 1059, 1060, 1061, 1119, 1120]), [1000, 1060, 1120]);
        // The clock is set forward by an hour, and back by two.
        assert_eq!(times(&[4720, 4721, 4780]), [4720, 4780]);
        assert_eq!(times(&[1000, 1001, 1060]), [1000, 1060]);
    }

    #[test]
    fn a_round_is_due_once_what_was_asked_has_changed_and_old_answers_are_dropped() {
        let asked = Asked::<Vec<u8>>::default();
        let begins = |second: u64| asked.begin(Time(second * 1000), EVERY).is_some();
        assert!(begins(1000) && !begins(1001));
        asked.last().push(7);
        asked.renew(Time(1_002_000));
        assert!(begins(1002) && !begins(1003));
        assert!(begins(1062 + 59) && *asked.last() == [7]);
        // What was asked has changed while no page was open.
        asked.renew(Time(1_241_000));
        assert!(begins(1121 + 120) && asked.last().is_empty());
    }

    #[test]
    fn a_round_that_takes_long_is_not_joined_by_another() {
        let asked = Asked::<()>::default();
        let round = asked.begin(Time(0), EVERY);
        assert!(round.is_some() && asked.begin(Time(0) + EVERY, EVERY).is_none());
        drop(round);
        assert!(asked.begin(Time(0) + EVERY, EVERY).is_some());
    }
}
