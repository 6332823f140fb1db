//! The node's clock: wall time that tests can set, stop and move.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use state_machine::{Span, Time};
use tokio::time::Instant;

/// Unix time in milliseconds, which advances with tokio's clock. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct Clock {
    started: Instant,
    times: Arc<Times>,
}

#[derive(Debug)]
struct Times {
    /// Unix time of `started` by the machine's clock, in milliseconds.
    base_ms: AtomicI64,
    /// How far a test has moved this clock ahead of the machine's, in milliseconds.
    ahead_ms: AtomicU64,
}

impl Clock {
    /// A clock that is at `unix_now` now.
    pub fn starting_at(unix_now: Time) -> Self {
        let base_ms = AtomicI64::new(millis(unix_now));
        let times = Arc::new(Times { base_ms, ahead_ms: AtomicU64::new(0) });
        Self { started: Instant::now(), times }
    }

    pub fn now(&self) -> Time {
        self.of_machine() + self.ahead()
    }

    /// The time without the moves of a test, which senders on this machine see.
    pub fn of_machine(&self) -> Time {
        let base_ms = self.times.base_ms.load(Ordering::Relaxed);
        Time(u64::try_from(base_ms.saturating_add(self.elapsed_ms())).unwrap_or(0))
    }

    /// Sets the machine's part of the time: the machine's clock was corrected, or a test sets it.
    pub fn set(&self, unix_now: Time) {
        let base_ms = millis(unix_now) - self.elapsed_ms();
        self.times.base_ms.store(base_ms, Ordering::Relaxed);
    }

    /// How far this clock was moved ahead of the machine's.
    pub fn ahead(&self) -> Span {
        Span(self.times.ahead_ms.load(Ordering::Relaxed))
    }

    /// Moves this clock ahead, unless it would be more than `max` ahead of the machine's. Returns whether it did.
    pub fn try_move(&self, by: Span, max: Span) -> bool {
        let moved = |ahead: u64| ahead.checked_add(by.0).filter(|ahead| *ahead <= max.0);
        self.times.ahead_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, moved).is_ok()
    }

    fn elapsed_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

fn millis(time: Time) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}
