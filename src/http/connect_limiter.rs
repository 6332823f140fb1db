//! How many user agents may connect in a second, so that storage can keep up when all come back at once.
//!
//! It is asked before anything else is: whoever is refused has cost neither a session nor a look into storage.

use std::sync::{Mutex, PoisonError};

use slog::{Logger, warn};
use state_machine::token_bucket::TokenBucket;
use state_machine::{Span, Time};

/// How often it is logged that some were refused.
const LOG_EVERY: Span = Span::from_secs(1);

/// One for all workers.
pub struct ConnectLimiter(Mutex<State>);

struct State {
    bucket: TokenBucket,
    /// Refused since it was last logged.
    refused: u64,
    log_after: Time,
}

impl ConnectLimiter {
    /// Lets so many through in a second, and as many at once; 0 is no limit.
    pub fn new(connects_per_second_max: usize) -> Self {
        let per_second = u64::try_from(connects_per_second_max).unwrap_or(u64::MAX);
        let bucket = TokenBucket::new(per_second, per_second);
        Self(Mutex::new(State { bucket, refused: 0, log_after: Time(0) }))
    }

    /// Whether one more may connect.
    pub fn try_admit(&self, now: Time, log: &Logger) -> bool {
        // A worker that panicked while it held the lock left counters, not half-made ones.
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_admitted = state.bucket.try_acquire(now);
        state.refused += u64::from(!is_admitted);
        let refused = state.take_untold(now);
        drop(state);
        if let Some(refused) = refused {
            warn!(log, "more user agents came than may connect in a second (connects_per_second_max)";
                "refused" => refused);
        }
        is_admitted
    }
}

impl State {
    /// How many were refused and are to be told of now, at most once in [`LOG_EVERY`].
    fn take_untold(&mut self, now: Time) -> Option<u64> {
        if self.refused == 0 || now < self.log_after {
            return None;
        }
        self.log_after = now + LOG_EVERY;
        Some(std::mem::take(&mut self.refused))
    }
}

#[cfg(test)]
mod tests {
    use slog::{Discard, o};

    use super::*;

    const NOW: Time = Time(1_000_000);

    fn admitted(limiter: &ConnectLimiter, now: Time) -> usize {
        let log = Logger::root(Discard, o!());
        (0..100).filter(|_| limiter.try_admit(now, &log)).count()
    }

    #[test]
    fn as_many_are_admitted_at_once_as_in_a_second() {
        let limiter = ConnectLimiter::new(20);
        assert_eq!(admitted(&limiter, NOW), 20);
        assert_eq!(admitted(&limiter, NOW + Span(500)), 10);
        assert_eq!(admitted(&ConnectLimiter::new(0), NOW), 100);
    }

    #[test]
    fn who_is_refused_is_counted_and_logged_once_a_second() {
        let mut state = State { bucket: TokenBucket::new(1, 1), refused: 0, log_after: Time(0) };
        assert_eq!(state.take_untold(NOW), None);
        state.refused = 1;
        assert_eq!(state.take_untold(NOW), Some(1));
        state.refused = 7;
        assert_eq!(state.take_untold(NOW + Span(999)), None);
        assert_eq!(state.take_untold(NOW + LOG_EVERY), Some(7));
        assert_eq!(state.take_untold(NOW + Span(5000)), None);
    }
}
