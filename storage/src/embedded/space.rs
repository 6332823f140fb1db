//! The space that is kept free on the disk of the data directory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::error::WriterError;
use super::files::DataDir;
use crate::store::{DiskSpace, StoreError};

/// Refuses messages while less than `free_bytes_min` is free. Records, channels and deletes use the rest.
pub(super) struct SpaceReserve {
    dir: Arc<DataDir>,
    free_bytes_min: u64,
    messages_refused: AtomicU64,
    /// When the disk last had enough space.
    had_space: Mutex<Option<Instant>>,
}

/// Minimum time between two looks at a disk with space, of which each is a system call. It bounds how far messages reach
/// into the reserve.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl SpaceReserve {
    pub(super) fn new(dir: Arc<DataDir>, free_bytes_min: u64) -> Self {
        let (messages_refused, had_space) = (AtomicU64::new(0), Mutex::default());
        Self { dir, free_bytes_min, messages_refused, had_space }
    }

    /// Whether a message may be written.
    pub(super) fn admit(&self) -> Result<(), WriterError> {
        match self.free_bytes_min > 0 && self.is_low(Instant::now()) {
            true => Err(WriterError::Refused(StoreError::NoSpace)),
            false => Ok(()),
        }
    }

    /// Counts a message without space, whether the disk was low or full.
    pub(super) fn count_refused(&self) {
        self.messages_refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn state(&self) -> Option<DiskSpace> {
        let (free_bytes, free_bytes_min) = (self.dir.free_bytes().ok()?, self.free_bytes_min);
        let messages_refused = self.messages_refused.load(Ordering::Relaxed);
        Some(DiskSpace { free_bytes, free_bytes_min, messages_refused })
    }

    /// A disk that cannot be looked at is not low: a write that fails reports it.
    fn is_low(&self, now: Instant) -> bool {
        let mut had_space = self.had_space.lock().unwrap_or_else(PoisonError::into_inner);
        if had_space.is_some_and(|at| now < at + LOOK_EVERY) {
            return false;
        }
        let is_low = self.state().is_some_and(|space| space.is_low());
        *had_space = (!is_low).then_some(now);
        is_low
    }
}
