//! A limiter of log lines that threads share.

use std::sync::{Mutex, MutexGuard, PoisonError};

use state_machine::log_limiter::LogLimiter;
use state_machine::{Span, Time};

/// Counts events of one kind and allows a log line about them once in an interval.
pub struct SharedLogLimiter(Mutex<LogLimiter>);

impl SharedLogLimiter {
    /// Allows the first line at once, and each further line at least `interval` after the last one.
    pub fn new(interval: Span) -> Self {
        Self(Mutex::new(LogLimiter::new(interval)))
    }

    /// Counts an event. If a line may be written, returns the number of events since the last one, this one included.
    pub fn count(&self, now: Time) -> Option<u64> {
        self.lock().allow(now).map(|suppressed| suppressed + 1)
    }

    /// The number of events since the last line, if there are any and a line may be written now.
    pub fn rest(&self, now: Time) -> Option<u64> {
        self.lock().rest(now)
    }

    fn lock(&self) -> MutexGuard<'_, LogLimiter> {
        // A panic cannot leave the limiter half-updated.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
