//! What a server does by itself, and how it went.

use std::sync::atomic::{AtomicU64, Ordering};

use actors::counters::Counters;
use parking_lot::Mutex;
use state_machine::Time;

use crate::system::printable::brief;

/// What a server does by itself, in its order.
pub const MAINTENANCE: [&str; 2] = ["backup", "drops"];

/// What this process did of [`MAINTENANCE`].
#[derive(Debug, Default)]
pub struct MaintenanceCounts {
    failures: Counters<{ MAINTENANCE.len() }>,
    /// When each last succeeded, in seconds since 1970; 0 if it did not.
    succeeded_s: [AtomicU64; MAINTENANCE.len()],
    /// Why each has failed since.
    failing: Mutex<[Option<String>; MAINTENANCE.len()]>,
}

impl MaintenanceCounts {
    /// The task at this place has failed.
    pub fn failed(&self, place: usize, why: &str) {
        self.failures.count(place);
        self.failing.lock()[place] = Some(brief(why));
    }

    pub fn succeeded(&self, place: usize, now: Time) {
        self.succeeded_s[place].store(now.as_secs(), Ordering::Relaxed);
        self.failing.lock()[place] = None;
    }

    /// The tasks that have failed and did not succeed since, with their reasons.
    pub fn failing(&self) -> (Vec<&'static str>, Vec<String>) {
        let failing = self.failing.lock();
        let each = MAINTENANCE.into_iter().zip(&*failing);
        each.filter_map(|(task, why)| Some((task, why.clone()?))).unzip()
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
