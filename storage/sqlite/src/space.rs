//! The space that is kept free on the disk of the data directory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use storage::store::{DiskSpace, StoreError};

use crate::error::WriterError;
use crate::files::DataDir;

/// Refuses messages while less than `free_bytes_min` is free, and new records and channels of agents while less than
/// half of it is. All other writes use the rest: what strangers can write never uses it up.
pub(crate) struct SpaceReserve {
    dir: Arc<DataDir>,
    free_bytes_min: u64,
    messages_refused: AtomicU64,
    subscriptions_refused: AtomicU64,
    /// When the disk last had enough space.
    had_space: Mutex<Option<Instant>>,
}

/// Minimum time between two looks at a disk with space, of which each is a system call. It bounds how far messages reach
/// into the reserve.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl SpaceReserve {
    pub(crate) fn new(dir: Arc<DataDir>, free_bytes_min: u64) -> Self {
        let (messages_refused, subscriptions_refused) = (AtomicU64::new(0), AtomicU64::new(0));
        let had_space = Mutex::default();
        Self { dir, free_bytes_min, messages_refused, subscriptions_refused, had_space }
    }

    /// Whether a message may be written.
    pub(crate) fn admit(&self) -> Result<(), WriterError> {
        match self.has_less_than(self.free_bytes_min, Instant::now()) {
            true => Err(WriterError::Refused(StoreError::NoSpace)),
            false => Ok(()),
        }
    }

    /// Whether a new record or channel may be written. Counts a refusal.
    pub(crate) fn admit_subscription(&self) -> bool {
        let is_refused = self.has_less_than(self.free_bytes_min / 2, Instant::now());
        self.subscriptions_refused.fetch_add(u64::from(is_refused), Ordering::Relaxed);
        !is_refused
    }

    /// Counts a message without space, whether the disk was low or full.
    pub(crate) fn count_refused(&self) {
        self.messages_refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn state(&self) -> Option<DiskSpace> {
        Some(DiskSpace {
            free_bytes: self.dir.free_bytes().ok()?,
            free_bytes_min: self.free_bytes_min,
            messages_refused: self.messages_refused.load(Ordering::Relaxed),
            subscriptions_refused: self.subscriptions_refused.load(Ordering::Relaxed),
        })
    }

    /// A disk that cannot be looked at has space: a write that fails reports it.
    fn has_less_than(&self, free_bytes_min: u64, now: Instant) -> bool {
        let mut had_space = self.had_space.lock().unwrap_or_else(PoisonError::into_inner);
        if free_bytes_min == 0 || had_space.is_some_and(|at| now < at + LOOK_EVERY) {
            return false;
        }
        let space = self.state();
        *had_space = (!space.is_some_and(|space| space.is_low())).then_some(now);
        space.is_some_and(|space| space.free_bytes < free_bytes_min)
    }
}
