//! A limit of connections per second: storage must keep up when all user agents reconnect.
//!
//! It is checked first: a refused connection costs neither a session nor a storage request.

use std::sync::{Mutex, PoisonError};

use slog::{Logger, warn};
use state_machine::log_limiter::LogLimiter;
use state_machine::token_bucket::TokenBucket;
use state_machine::{Span, Time};

/// Minimum time between two log lines.
const LOG_EVERY: Span = Span::from_secs(1);

/// The limiter that all worker threads share.
pub struct ConnectLimiter(Mutex<State>);

struct State {
    bucket: TokenBucket,
    log_limiter: LogLimiter,
}

impl ConnectLimiter {
    /// Admits this many per second, and as many at once; 0 is no limit.
    pub fn new(connects_per_second_max: usize) -> Self {
        let per_second = u64::try_from(connects_per_second_max).unwrap_or(u64::MAX);
        let bucket = TokenBucket::new(per_second, per_second);
        Self(Mutex::new(State { bucket, log_limiter: LogLimiter::new(LOG_EVERY) }))
    }

    /// Whether a user agent may connect now. Refusals are logged.
    pub fn try_admit(&self, now: Time, log: &Logger) -> bool {
        // A panic cannot leave the state half-updated.
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.bucket.try_acquire(now) {
            return true;
        }
        let suppressed = state.log_limiter.allow(now);
        drop(state);
        if let Some(suppressed) = suppressed {
            warn!(log, "user agents are refused, more connect than connects_per_second_max allows";
                "refused" => suppressed + 1);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use slog::{Discard, Drain, Never, OwnedKVList, Record, o};

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
    fn refusals_are_logged_once_a_second() {
        struct Lines(Arc<AtomicU64>);
        impl Drain for Lines {
            type Ok = ();
            type Err = Never;
            fn log(&self, _: &Record<'_>, _: &OwnedKVList) -> Result<(), Never> {
                self.0.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        }
        let lines = Arc::new(AtomicU64::new(0));
        let log = Logger::root(Lines(Arc::clone(&lines)), o!());
        let limiter = ConnectLimiter::new(1);
        for (after_ms, is_admitted, lines_then) in [
            (0, true, 0),
            (0, false, 1),
            (999, false, 1),
            (1000, true, 1),
            (1000, false, 2),
            (1999, false, 2),
        ] {
            assert_eq!(limiter.try_admit(NOW + Span(after_ms), &log), is_admitted, "{after_ms}");
            assert_eq!(lines.load(Ordering::Relaxed), lines_then, "{after_ms}");
        }
    }
}
