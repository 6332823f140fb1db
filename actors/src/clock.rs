//! The node's clock: wall time that tests can hold still.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use state_machine::Time;
use tokio::time::Instant;

/// Milliseconds since the Unix epoch: where it was set, moved on by tokio's clock. Clones are one clock.
#[derive(Debug, Clone)]
pub struct Clock {
    started: Instant,
    /// Unix time of `started`, in milliseconds.
    base_ms: Arc<AtomicI64>,
}

impl Clock {
    /// A clock that shows `unix_now` now.
    pub fn starting_at(unix_now: Time) -> Self {
        let base_ms = Arc::new(AtomicI64::new(millis(unix_now)));
        Self { started: Instant::now(), base_ms }
    }

    /// What it shows.
    pub fn now(&self) -> Time {
        let now = self.base_ms.load(Ordering::Relaxed).saturating_add(self.elapsed_ms());
        Time(u64::try_from(now).unwrap_or(0))
    }

    /// Sets it: the machine's clock was corrected, or a test moves on.
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
