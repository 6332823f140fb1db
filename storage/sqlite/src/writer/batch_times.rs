//! How long the writer was held by each batch.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use storage::store::{COMMIT_BOUNDS_MS, CommitTimes, SlowWrites};

/// A batch that takes longer is counted as slow: the disk is slow.
pub(super) const BATCH_SLOW: Duration = Duration::from_millis(250);

/// The times of all batches, and of the slow ones since they were last taken.
#[derive(Default)]
pub(super) struct BatchTimes {
    counts: [AtomicU64; COMMIT_BOUNDS_MS.len() + 1],
    longest_ms: AtomicU64,
    slow: AtomicU64,
    slow_longest_ms: AtomicU64,
}

impl BatchTimes {
    pub(super) fn add(&self, took: Duration) {
        let is_within = |bound: &u64| took <= Duration::from_millis(*bound);
        let bucket = COMMIT_BOUNDS_MS.iter().position(is_within).unwrap_or(COMMIT_BOUNDS_MS.len());
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.longest_ms.fetch_max(took_ms, Ordering::Relaxed);
        if took > BATCH_SLOW {
            self.slow.fetch_add(1, Ordering::Relaxed);
            self.slow_longest_ms.fetch_max(took_ms, Ordering::Relaxed);
        }
    }

    pub(super) fn all(&self) -> CommitTimes {
        let counts = array::from_fn(|bucket| self.counts[bucket].load(Ordering::Relaxed));
        CommitTimes { counts, longest_ms: self.longest_ms.load(Ordering::Relaxed) }
    }

    /// The slow batches since the last call.
    pub(super) fn take_slow(&self) -> Option<SlowWrites> {
        let count = self.slow.swap(0, Ordering::Relaxed);
        let longest_ms = self.slow_longest_ms.swap(0, Ordering::Relaxed);
        (count > 0).then_some(SlowWrites { count, longest_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_waited_for_the_disk_is_counted() {
        let times = BatchTimes::default();
        for took in [BATCH_SLOW, BATCH_SLOW + Duration::from_millis(1), BATCH_SLOW * 3] {
            times.add(took);
        }
        let slow = SlowWrites { count: 2, longest_ms: 750 };
        assert_eq!((times.take_slow(), times.take_slow()), (Some(slow), None));
    }

    #[test]
    fn a_batch_counts_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let times = BatchTimes::default();
        for took_us in [0, 1000, 1001, 50_000, 50_001, 1_000_000, 7_000_001] {
            times.add(Duration::from_micros(took_us));
        }
        let counts = [2, 1, 0, 0, 0, 1, 1, 0, 1, 1];
        assert_eq!(times.all(), CommitTimes { counts, longest_ms: 7000 });
    }
}
