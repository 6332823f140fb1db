//! A limiter of log lines that threads share.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use state_machine::log_limiter::LogLimiter;
use state_machine::{Span, Time};

/// Counts events of one kind and allows a log line about them once in an interval.
pub struct SharedLogLimiter {
    total: AtomicU64,
    lines: Mutex<LogLimiter>,
}

impl SharedLogLimiter {
    /// Allows the first line at once, and each further line at least `interval` after the last one.
    pub fn new(interval: Span) -> Self {
        Self { total: AtomicU64::new(0), lines: Mutex::new(LogLimiter::new(interval)) }
    }

    /// Counts an event. If a line may be written, returns the number of events since the last one, this one included.
    pub fn count(&self, now: Time) -> Option<u64> {
        self.total.fetch_add(1, Ordering::Relaxed);
        self.lines.lock().allow(now).map(|suppressed| suppressed + 1)
    }

    /// The number of events since the start.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// The number of events since the last line, if there are any and a line may be written now.
    pub fn rest(&self, now: Time) -> Option<u64> {
        self.lines.lock().rest(now)
    }
}
