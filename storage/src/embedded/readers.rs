//! Reads, on the calling thread.
//!
//! A point look-up takes a few microseconds, less than a switch to another thread and back, and a
//! page of messages is bounded by its `PageLimit`. The cost: a read of a page that is not in the
//! system's cache blocks the calling thread.
//!
//! In WAL mode a read never waits for the writer, and a read that begins after a commit sees it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;
use state_machine::{RouterRecord, Uaid};

use super::connection::ConnectionRole;
use super::files::{DataDir, FileKey, MonthFiles};
use super::record_cache::RecordCache;
use super::router;
use crate::store::StoreError;

/// Sets of connections, each used by one thread at a time.
pub(super) struct Readers {
    dir: Arc<DataDir>,
    months: Arc<MonthFiles>,
    slots: Box<[Mutex<Slot>]>,
    /// The slot to try first.
    turn: AtomicUsize,
    months_open_max: usize,
    /// The writer forgets in it what it changed.
    pub(super) records: RecordCache,
}

/// Open connections, the oldest first.
#[derive(Default)]
struct Slot {
    open: Vec<(FileKey, Connection)>,
    closed: bool,
}

impl Readers {
    pub(super) fn new(
        dir: Arc<DataDir>,
        months: Arc<MonthFiles>,
        count: usize,
        months_open_max: usize,
    ) -> Self {
        let slots = (0..count.max(1)).map(|_| Mutex::default()).collect();
        let months_open_max = months_open_max.max(1);
        let (turn, records) = (AtomicUsize::new(0), RecordCache::new());
        Self { dir, months, slots, turn, months_open_max, records }
    }

    /// A record as it was committed, from memory or from the file.
    pub(super) fn record(&self, uaid: Uaid) -> Result<Option<RouterRecord>, StoreError> {
        let read = |conn: &_| router::read(conn, uaid);
        self.records.get_or_read(uaid, || self.read(FileKey::Router, read).map(Option::flatten))
    }

    /// Runs a query on a file. None if that month has no file.
    pub(super) fn read<T>(
        &self,
        key: FileKey,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        let mut slot = self.free_slot();
        if slot.closed {
            return Err(StoreError::Closed);
        }
        let failed = |error| StoreError::Failed(format!("cannot read {key}: {error}"));
        match self.connection(&mut slot, key).map_err(failed)? {
            Some(conn) => query(conn).map(Some).map_err(failed),
            None => Ok(None),
        }
    }

    /// Closes every connection to a file, and waits for the reads on it.
    ///
    /// The caller removes the month from [`MonthFiles`] first, so that no slot opens the file
    /// again.
    pub(super) fn forget(&self, key: FileKey) {
        for slot in &self.slots {
            lock(slot).open.retain(|(open, _)| *open != key);
        }
    }

    /// Closes all connections; further reads are [`StoreError::Closed`].
    pub(super) fn close(&self) {
        for slot in &self.slots {
            *lock(slot) = Slot { open: Vec::new(), closed: true };
        }
        self.records.forget_all();
    }

    fn free_slot(&self) -> MutexGuard<'_, Slot> {
        let count = self.slots.len();
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % count;
        let free = (0..count).find_map(|step| self.slots[(first + step) % count].try_lock().ok());
        free.unwrap_or_else(|| lock(&self.slots[first]))
    }

    fn connection<'a>(
        &self,
        slot: &'a mut Slot,
        key: FileKey,
    ) -> rusqlite::Result<Option<&'a Connection>> {
        if let Some(at) = slot.open.iter().position(|(open, _)| *open == key) {
            return Ok(Some(&slot.open[at].1));
        }
        if matches!(key, FileKey::Month(month) if !self.months.contains(month)) {
            return Ok(None);
        }
        make_room(&mut slot.open, self.months_open_max);
        slot.open.push((key, self.dir.connect(key, ConnectionRole::Reader)?));
        Ok(slot.open.last().map(|(_, conn)| conn))
    }
}

/// Closes the oldest month if as many as allowed are open.
fn make_room(open: &mut Vec<(FileKey, Connection)>, months_open_max: usize) {
    let mut months = (0..open.len()).filter(|at| open[*at].0 != FileKey::Router);
    let oldest = months.next();
    if let Some(oldest) = oldest
        && months.count() + 1 >= months_open_max
    {
        open.remove(oldest);
    }
}

/// Ignores poison: a query that panicked leaves a read-only connection intact.
fn lock(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}
