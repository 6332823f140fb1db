//! The schedule by which a draining node closes its sessions.

use std::time::Duration;

use tokio::time::Instant;

/// Sessions that are closed one after the other, evenly over a time. `R` is the handle of one.
///
/// The number that is due follows from the time passed: a late call finds more, and all are due
/// when the time is over.
pub(crate) struct DrainSchedule<R> {
    /// The sessions to close, the next one last.
    open: Vec<R>,
    /// Sessions at the beginning.
    count: usize,
    began: Instant,
    spread: Duration,
}

/// Sessions closed in one go. If more are due, other tasks run in between.
const CLOSED_AT_ONCE_MAX: usize = 500;

/// The shortest time between two calls of [`DrainSchedule::pop_due`].
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(10);

impl<R> DrainSchedule<R> {
    pub(crate) fn begin(open: Vec<R>, spread: Duration, now: Instant) -> Self {
        Self { count: open.len(), open, began: now, spread }
    }

    /// Spreads the sessions that are left over `spread`, if that ends earlier.
    pub(crate) fn expedite(&mut self, spread: Duration, now: Instant) {
        if spread < self.left(now) {
            *self = Self::begin(std::mem::take(&mut self.open), spread, now);
        }
    }

    /// Takes the due sessions out, at most [`CLOSED_AT_ONCE_MAX`].
    pub(crate) fn pop_due(&mut self, now: Instant) -> impl Iterator<Item = R> {
        let due = self.due_by(now).saturating_sub(self.closed()).min(CLOSED_AT_ONCE_MAX);
        self.open.drain(self.open.len() - due..).rev()
    }

    /// The time until the next session is due; none if none is left.
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        if self.open.is_empty() {
            return None;
        }
        if self.closed() < self.due_by(now) {
            return Some(Duration::ZERO);
        }
        let left_then = self.spread.mul_f64(self.open.len() as f64 / self.count as f64);
        let wait = self.left(now).saturating_sub(left_then);
        Some(wait.max(POLL_INTERVAL_MIN).min(self.left(now)))
    }

    /// Sessions that are still to be closed.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    fn left(&self, now: Instant) -> Duration {
        self.spread.saturating_sub(now.saturating_duration_since(self.began))
    }

    fn closed(&self) -> usize {
        self.count - self.open.len()
    }

    /// Sessions that are due by now: the first at once, each further one a share of the time later.
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
    fn sessions_are_closed_evenly_over_the_time() {
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
    fn the_wait_ends_when_the_next_session_is_due() {
        let (mut drain, began) = begun(10);
        assert_eq!(drain.wait(began), Some(Duration::ZERO));
        assert_eq!(drain.pop_due(began).count(), 1);
        let later = began + Duration::from_millis(300);
        assert_eq!(drain.wait(later), Some(Duration::from_millis(700)));
    }

    #[test]
    fn the_wait_is_at_least_the_poll_interval() {
        let (mut drain, began) = begun(100_000);
        assert_eq!(drain.pop_due(began).count(), 1);
        assert_eq!(drain.wait(began), Some(POLL_INTERVAL_MIN));
        assert_eq!(drain.pop_due(began + POLL_INTERVAL_MIN).count(), 100);
    }

    #[test]
    fn the_last_wait_ends_with_the_drain() {
        let (mut drain, began) = begun(1_000_000);
        let at = began + SPREAD - POLL_INTERVAL_MIN / 5;
        while drain.wait(at) == Some(Duration::ZERO) {
            assert!(drain.pop_due(at).count() > 0);
        }
        assert_eq!(drain.wait(at), Some(POLL_INTERVAL_MIN / 5));
        assert_eq!(drain.pop_due(began + SPREAD).count(), 199);
        assert_eq!(drain.wait(began + SPREAD), None);
    }

    #[test]
    fn a_late_call_finds_all_due_sessions_a_bounded_number_in_one_go() {
        let (mut drain, began) = begun(1200);
        let late = began + 2 * SPREAD;
        for expected in [500, 500, 200] {
            assert_eq!(drain.wait(late), Some(Duration::ZERO));
            assert_eq!(drain.pop_due(late).count(), expected);
        }
        assert_eq!(drain.wait(late), None);
    }

    #[test]
    fn a_drain_of_no_time_closes_all_at_once() {
        let began = Instant::now();
        let mut drain = DrainSchedule::begin(vec![1, 2, 3], Duration::ZERO, began);
        assert_eq!(drain.pop_due(began).collect::<Vec<_>>(), [3, 2, 1]);
        assert_eq!(drain.wait(began), None);
    }

    #[test]
    fn a_shorter_drain_spreads_what_is_left_and_a_longer_one_changes_nothing() {
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
    fn a_drain_without_sessions_closes_none() {
        let (mut drain, began) = begun(0);
        assert_eq!(drain.pop_due(began).count(), 0);
        assert_eq!(drain.wait(began), None);
    }

    fn begun(count: usize) -> (DrainSchedule<usize>, Instant) {
        let began = Instant::now();
        (DrainSchedule::begin((0..count).collect(), SPREAD, began), began)
    }
}
