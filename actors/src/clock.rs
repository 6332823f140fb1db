//! The node's clock: wall time that tests can set and stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use state_machine::Time;
use tokio::time::Instant;

/// Unix time in milliseconds, which advances with tokio's clock. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct Clock {
    started: Instant,
    /// Unix time of `started`, in milliseconds.
    base_ms: Arc<AtomicI64>,
}

impl Clock {
    /// A clock that is at `unix_now` now.
    pub fn starting_at(unix_now: Time) -> Self {
        let base_ms = Arc::new(AtomicI64::new(millis(unix_now)));
        Self { started: Instant::now(), base_ms }
    }

    pub fn now(&self) -> Time {
        let now = self.base_ms.load(Ordering::Relaxed).saturating_add(self.elapsed_ms());
        Time(u64::try_from(now).unwrap_or(0))
    }

    /// Sets the time: the machine's clock was corrected, or a test advances it.
    pub fn set(&self, unix_now: Time) {
        self.base_ms.store(millis(unix_now) - self.elapsed_ms(), Ordering::Relaxed);
    }

    fn elapsed_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

fn millis(time: Time) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}
