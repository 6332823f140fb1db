//! Registrations of known agents that the disk has no space for.
//!
//! They count as the records until they are written, so that an agent is greeted, receives and acks while the disk is
//! full. A crash loses them, and with them every connection that they lead to: no other node uses this store.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use state_machine::{RouterRecord, Uaid};
use storage::record_row::RecordRow;
use storage::registration::NewRecord;
use storage::store::{RegisterResult, Registration, StoreError};

#[derive(Default)]
pub(crate) struct UnwrittenRegistrations {
    kept: Mutex<Kept>,
    /// How many there are: without any, a read takes no lock.
    count: AtomicUsize,
}

#[derive(Default)]
struct Kept {
    by_uaid: HashMap<Uaid, Registration>,
    /// When to write them again; none if the last attempt succeeded.
    retry_at: Option<Instant>,
}

/// Registrations that are kept; about 200 bytes each. A further agent waits for its hello.
const UNWRITTEN_MAX: usize = 100_000;

/// Registrations that are written in one transaction.
const PAGE_ROWS_MAX: usize = 200;

/// Minimum time between two attempts to write while the disk is full.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

impl UnwrittenRegistrations {
    /// Keeps a registration that could not be written. `there` is the record on disk.
    pub(crate) fn keep(
        &self,
        registration: Registration,
        there: Option<RouterRecord>,
    ) -> Result<RegisterResult, StoreError> {
        let mut kept = self.lock();
        let earlier = kept.by_uaid.get(&registration.uaid).cloned();
        let is_first = earlier.is_none();
        let there = there.map(|record| RecordRow::from(apply(earlier, record)));
        let result = NewRecord::from(&registration).over(there.as_ref());
        if let RegisterResult::Registered(..) = result {
            if there.is_none() || is_first && kept.by_uaid.len() >= UNWRITTEN_MAX {
                return Err(StoreError::NoSpace);
            }
            let registration = Registration { create_in: None, ..registration };
            kept.by_uaid.insert(registration.uaid, registration);
            self.count.store(kept.by_uaid.len(), Ordering::Release);
        }
        Ok(result)
    }

    /// The registration of this agent, which is to be written before the next change of its record.
    pub(crate) fn of(&self, uaid: Uaid) -> Option<Registration> {
        if self.is_empty() {
            return None;
        }
        self.lock().by_uaid.get(&uaid).cloned()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// At most [`PAGE_ROWS_MAX`] registrations, if another attempt to write is due.
    pub(crate) fn due(&self, now: Instant) -> Vec<Registration> {
        if self.is_empty() {
            return Vec::new();
        }
        let kept = self.lock();
        if kept.retry_at.is_some_and(|at| now < at) {
            return Vec::new();
        }
        kept.by_uaid.values().take(PAGE_ROWS_MAX).cloned().collect()
    }

    pub(crate) fn failed(&self, now: Instant) {
        self.lock().retry_at = Some(now + RETRY);
    }

    /// Forgets registrations that are on disk, or that a later one has replaced there.
    pub(crate) fn written(&self, written: &[Registration]) {
        let mut kept = self.lock();
        kept.retry_at = None;
        for registration in written {
            if kept.by_uaid.get(&registration.uaid) == Some(registration) {
                kept.by_uaid.remove(&registration.uaid);
            }
        }
        self.count.store(kept.by_uaid.len(), Ordering::Release);
    }

    /// A panic cannot leave the map half-updated.
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The record as it will be written.
pub(crate) fn apply(newer: Option<Registration>, record: RouterRecord) -> RouterRecord {
    match newer {
        Some(Registration { node, connected_at, last_connect, .. })
            if record.connected_at < connected_at =>
        {
            RouterRecord { node: Some(node), connected_at, last_connect, ..record }
        }
        _ => record,
    }
}
