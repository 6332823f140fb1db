//! What a server does by itself, and how it went.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use actors::counters::Counters;
use state_machine::Time;

/// What a server does by itself, in its order.
pub const MAINTENANCE: [&str; 2] = ["backup", "drops"];

/// What this process did of [`MAINTENANCE`].
#[derive(Debug, Default)]
pub struct MaintenanceCounts {
    failures: Counters<{ MAINTENANCE.len() }>,
    /// When each last succeeded, in seconds since 1970; 0 if it did not.
    succeeded_s: [AtomicU64; MAINTENANCE.len()],
    /// Whether each has failed since.
    failing: [AtomicBool; MAINTENANCE.len()],
}

impl MaintenanceCounts {
    /// The task at this place has failed.
    pub fn failed(&self, place: usize) {
        self.failures.count(place);
        self.failing[place].store(true, Ordering::Relaxed);
    }

    pub fn succeeded(&self, place: usize, now: Time) {
        self.succeeded_s[place].store(now.as_secs(), Ordering::Relaxed);
        self.failing[place].store(false, Ordering::Relaxed);
    }

    /// The tasks that have failed, and did not succeed since.
    pub fn failing(&self) -> impl Iterator<Item = &'static str> {
        let each = MAINTENANCE.into_iter().zip(&self.failing);
        each.filter(|(_, failing)| failing.load(Ordering::Relaxed)).map(|(task, _)| task)
    }

    pub fn failures(&self) -> [u64; MAINTENANCE.len()] {
        self.failures.counts()
    }

    /// The tasks that succeeded, with the times of their last successes in seconds since 1970.
    pub fn successes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let times = self.succeeded_s.iter().map(|time| time.load(Ordering::Relaxed));
        MAINTENANCE.into_iter().zip(times).filter(|(_, time)| *time > 0)
    }
}
