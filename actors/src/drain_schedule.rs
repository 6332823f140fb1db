//! When each connection is told that its node shuts down.

use std::time::Duration;

use tokio::time::Instant;

/// Connections that are told one after the other, evenly over a time. `R` is how one is reached; a test
/// needs none.
///
/// Everything is reckoned from the time that it is now: a look that comes late finds more that are due,
/// and when the time is over all are.
pub(crate) struct DrainSchedule<R> {
    /// Told from the back.
    open: Vec<R>,
    /// How many there were when it began.
    count: usize,
    began: Instant,
    spread: Duration,
}

/// Connections told in one go. Where more are due, others have their turn in between.
const CLOSED_AT_ONCE_MAX: usize = 500;

/// The shortest time between two looks at who is due.
const LOOK_EVERY: Duration = Duration::from_millis(10);

impl<R> DrainSchedule<R> {
    pub(crate) fn begin(open: Vec<R>, spread: Duration, now: Instant) -> Self {
        Self { count: open.len(), open, began: now, spread }
    }

    /// Spreads those who are left anew, if that ends earlier.
    pub(crate) fn expedite(&mut self, spread: Duration, now: Instant) {
        if spread < self.left(now) {
            *self = Self::begin(std::mem::take(&mut self.open), spread, now);
        }
    }

    /// Takes out those who are due, up to [`CLOSED_AT_ONCE_MAX`] of them.
    pub(crate) fn pop_due(&mut self, now: Instant) -> impl Iterator<Item = R> {
        let due = self.due_by(now).saturating_sub(self.closed()).min(CLOSED_AT_ONCE_MAX);
        self.open.drain(self.open.len() - due..).rev()
    }

    /// How long to wait until somebody is due: not at all where somebody is, none where nobody is left.
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        if self.open.is_empty() {
            return None;
        }
        if self.closed() < self.due_by(now) {
            return Some(Duration::ZERO);
        }
        let left_then = self.spread.mul_f64(self.open.len() as f64 / self.count as f64);
        let wait = self.left(now).saturating_sub(left_then);
        Some(wait.max(LOOK_EVERY).min(self.left(now)))
    }

    fn left(&self, now: Instant) -> Duration {
        self.spread.saturating_sub(now.saturating_duration_since(self.began))
    }

    fn closed(&self) -> usize {
        self.count - self.open.len()
    }

    /// How many were to be told until now: the first at once, and each of the others one share of the
    /// time after the one before.
    fn due_by(&self, now: Instant) -> usize {
        let (passed, spread) = (now.saturating_duration_since(self.began), self.spread);
        if passed >= spread {
            return self.count;
        }
        let shares = passed.as_nanos() * self.count as u128 / spread.as_nanos();
        usize::try_from(shares + 1).map_or(self.count, |due| due.min(self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPREAD: Duration = Duration::from_secs(10);

    #[test]
    fn one_after_the_other_is_told_evenly_over_the_time() {
        let (mut drain, began) = begun(10);
        for second in 0..10 {
            let due: Vec<_> = drain.pop_due(began + Duration::from_secs(second)).collect();
            assert_eq!(due, [9 - second as usize]);
            let too_early = began + Duration::from_millis(second * 1000 + 999);
            assert_eq!(drain.pop_due(too_early).count(), 0);
        }
        assert_eq!(drain.wait(began + Duration::from_millis(9999)), None);
    }

    #[test]
    fn the_next_look_is_when_the_next_is_due() {
        let (mut drain, began) = begun(10);
        assert_eq!(drain.wait(began), Some(Duration::ZERO));
        assert_eq!(drain.pop_due(began).count(), 1);
        let later = began + Duration::from_millis(300);
        assert_eq!(drain.wait(later), Some(Duration::from_millis(700)));
    }

    #[test]
    fn looks_are_not_more_frequent_than_they_need_be() {
        let (mut drain, began) = begun(100_000);
        assert_eq!(drain.pop_due(began).count(), 1);
        assert_eq!(drain.wait(began), Some(LOOK_EVERY));
        assert_eq!(drain.pop_due(began + LOOK_EVERY).count(), 100);
    }

    #[test]
    fn the_last_look_is_not_after_the_end() {
        let (mut drain, began) = begun(1_000_000);
        let at = began + SPREAD - LOOK_EVERY / 5;
        while drain.wait(at) == Some(Duration::ZERO) {
            assert!(drain.pop_due(at).count() > 0);
        }
        assert_eq!(drain.wait(at), Some(LOOK_EVERY / 5));
        assert_eq!(drain.pop_due(began + SPREAD).count(), 199);
        assert_eq!(drain.wait(began + SPREAD), None);
    }

    #[test]
    fn a_look_that_comes_late_finds_all_who_are_due_a_limited_number_in_one_go() {
        let (mut drain, began) = begun(1200);
        let late = began + 2 * SPREAD;
        for expected in [500, 500, 200] {
            assert_eq!(drain.wait(late), Some(Duration::ZERO));
            assert_eq!(drain.pop_due(late).count(), expected);
        }
        assert_eq!(drain.wait(late), None);
    }

    #[test]
    fn with_no_time_all_are_due_at_once() {
        let began = Instant::now();
        let mut drain = DrainSchedule::begin(vec![1, 2, 3], Duration::ZERO, began);
        assert_eq!(drain.pop_due(began).collect::<Vec<_>>(), [3, 2, 1]);
        assert_eq!(drain.wait(began), None);
    }

    #[test]
    fn a_shorter_time_is_for_those_who_are_left_and_a_longer_one_changes_nothing() {
        let (mut drain, began) = begun(10);
        let middle = began + SPREAD / 2 - Duration::from_millis(1);
        assert_eq!(drain.pop_due(middle).count(), 5);
        drain.expedite(SPREAD, middle);
        assert_eq!(drain.pop_due(middle).count(), 0);
        drain.expedite(SPREAD / 10, middle);
        assert_eq!(drain.pop_due(middle).count(), 1);
        assert_eq!(drain.pop_due(middle + SPREAD / 10 * 4 / 5).count(), 4);
        assert_eq!(drain.wait(middle), None);
    }

    #[test]
    fn of_nobody_nobody_is_told() {
        let (mut drain, began) = begun(0);
        assert_eq!(drain.pop_due(began).count(), 0);
        assert_eq!(drain.wait(began), None);
    }

    fn begun(count: usize) -> (DrainSchedule<usize>, Instant) {
        let began = Instant::now();
        (DrainSchedule::begin((0..count).collect(), SPREAD, began), began)
    }
}
