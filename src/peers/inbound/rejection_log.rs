//! What an operator is told of requests that were refused: that there are any, but no line for each.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Between two lines of the log is at least so much time.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Counts what was refused.
#[derive(Default)]
pub(super) struct RejectionLog(Mutex<Count>);

#[derive(Default)]
struct Count {
    refused: u64,
    told: Option<Instant>,
}

impl RejectionLog {
    /// One more was refused. Where it is time for a line, how many that are since the last one.
    pub(super) fn add(&self, now: Instant) -> Option<u64> {
        // A count that somebody panicked at is a count.
        let mut count = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        count.refused += 1;
        if count.told.is_some_and(|told| now.duration_since(told) < LINE_EVERY) {
            return None;
        }
        count.told = Some(now);
        Some(std::mem::take(&mut count.refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_those_after_it_together() {
        let (rejection_log, start) = (RejectionLog::default(), Instant::now());
        let after = |ms| rejection_log.add(start + Duration::from_millis(ms));
        assert_eq!([after(0), after(1), after(999)], [Some(1), None, None]);
        assert_eq!([after(1000), after(1500), after(9000)], [Some(3), None, Some(2)]);
    }

    #[test]
    fn a_time_before_the_last_line_is_no_time_for_one() {
        let (rejection_log, start) = (RejectionLog::default(), Instant::now());
        assert_eq!(rejection_log.add(start + LINE_EVERY), Some(1));
        assert_eq!(rejection_log.add(start), None);
    }
}
