//! Reads, on the calling thread.
//!
//! A point look-up takes a few microseconds, less than a switch to another thread and back, and a
//! page of messages is bounded by its `PageLimit`. The cost: a read of a page that is not in the
//! system's cache blocks the calling thread.
//!
//! In WAL mode a read never waits for the writer, and a read that begins after a commit sees it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rusqlite::Connection;
use state_machine::{RouterRecord, Uaid};
use storage::data_dir::FileKey;
use storage::store::StoreError;

use crate::connection::ConnectionRole;
use crate::files::{DataDir, MonthFiles};
use crate::read_check::{FailedReads, read_random_rows};
use crate::record_cache::RecordCache;
use crate::router;

/// Sets of connections, each used by one thread at a time.
pub(crate) struct Readers {
    dir: Arc<DataDir>,
    months: Arc<MonthFiles>,
    slots: Box<[Mutex<Slot>]>,
    /// The slot to try first.
    turn: AtomicUsize,
    months_open_max: usize,
    /// The writer forgets in it what it changed.
    pub(crate) records: RecordCache,
    /// The writer adds the reads that its statements could not do.
    pub(crate) failed: FailedReads,
}

/// Open connections, the oldest first.
#[derive(Default)]
struct Slot {
    open: Vec<(FileKey, Connection)>,
    closed: bool,
}

impl Readers {
    pub(crate) fn new(
        dir: Arc<DataDir>,
        months: Arc<MonthFiles>,
        count: usize,
        months_open_max: usize,
    ) -> Self {
        let slots = (0..count.max(1)).map(|_| Mutex::default()).collect();
        let months_open_max = months_open_max.max(1);
        let (turn, records) = (AtomicUsize::new(0), RecordCache::new());
        let failed = FailedReads::default();
        Self { dir, months, slots, turn, months_open_max, records, failed }
    }

    /// A record as it was committed, from memory or from the file.
    pub(crate) fn record(&self, uaid: Uaid) -> Result<Option<RouterRecord>, StoreError> {
        let read = |conn: &_| router::read(conn, uaid);
        self.records.get_or_read(uaid, || self.read(FileKey::Router, read).map(Option::flatten))
    }

    /// Runs a query on a file. None if that month has no file.
    pub(crate) fn read<T>(
        &self,
        key: FileKey,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        let mut slot = self.free_slot();
        if slot.closed {
            return Err(StoreError::Closed);
        }
        let read = self.connection(&mut slot, key).and_then(|conn| conn.map(query).transpose());
        read.map_err(|error| {
            let text = format!("cannot read {key}: {error}");
            // Not for a row that SQLite could read and Kalends cannot.
            if error.sqlite_error_code().is_some() {
                self.failed.note(Instant::now(), text.clone());
                // The next read sees the disk, and not what this connection has in memory.
                slot.open.retain(|(open, _)| *open != key);
            }
            StoreError::Failed(text)
        })
    }

    /// Reads random rows of the files that agents use now. Fails too if any read has failed in the last minute.
    pub(crate) fn check(&self, now: Instant) -> Result<(), StoreError> {
        for key in self.months.checked() {
            self.read(key, |conn| read_random_rows(conn, key))?;
        }
        self.failed.check(now)
    }

    /// Closes every connection to a file, and waits for the reads on it.
    ///
    /// The caller removes the month from [`MonthFiles`] first, so that no slot opens the file
    /// again.
    pub(crate) fn forget(&self, key: FileKey) {
        for slot in &self.slots {
            lock(slot).open.retain(|(open, _)| *open != key);
        }
    }

    /// Closes all connections; further reads are [`StoreError::Closed`].
    pub(crate) fn close(&self) {
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use state_machine::Chid;
    use storage::upgrade::UpgradeWatch;

    use super::*;
    use crate::channels;
    use crate::statements::first_row;

    const UAID: Uaid = Uaid([1; 16]);

    /// The readers of a store whose only channels are in one month, and the file of that month.
    fn readers(home: &tempfile::TempDir) -> (Readers, FileKey, std::path::PathBuf) {
        let (dir, _lock, months) = DataDir::open(home.path(), None, UpgradeWatch::NONE).unwrap();
        let month = "2026_11".parse().unwrap();
        let key = FileKey::Month(month);
        dir.make(key).unwrap();
        months.insert(month);
        let writer = dir.connect(key, ConnectionRole::Writer).unwrap();
        channels::add(&writer, UAID, &[Chid([2; 16])].into()).unwrap();
        let path = home.path().join(key.to_string());
        (Readers::new(Arc::new(dir), Arc::new(months), 1, 1), key, path)
    }

    #[test]
    fn a_file_that_cannot_be_read_fails_the_check_until_a_minute_after_its_repair() {
        let home = tempfile::tempdir().unwrap();
        let (readers, key, path) = readers(&home);
        readers.check(Instant::now()).unwrap();
        // Neither a connection nor a cache of the healthy file is left.
        readers.forget(key);
        let healthy = fs::read(&path).unwrap();
        let mut damaged = healthy.clone();
        damaged[4096..].fill(0xa5);
        fs::write(&path, damaged).unwrap();
        let before = Instant::now();
        let error = readers.check(before).unwrap_err().to_string();
        assert!(error.starts_with("cannot read messages_2026_11.db: "), "{error}");
        let after = Instant::now();
        fs::write(&path, healthy).unwrap();
        let remembered = readers.check(before + Duration::from_secs(59)).unwrap_err().to_string();
        assert_eq!(remembered, format!("a read failed in the last minute: {error}"));
        assert_eq!(readers.failed.count(), 1);
        readers.check(after + Duration::from_secs(60)).unwrap();
    }

    #[test]
    fn a_failed_read_of_any_caller_fails_the_check() {
        let home = tempfile::tempdir().unwrap();
        let (readers, key, path) = readers(&home);
        let (before, healthy) = (Instant::now(), fs::read(&path).unwrap());
        fs::write(&path, "").unwrap();
        readers.read(key, |conn| channels::read(conn, UAID)).unwrap_err();
        fs::write(&path, healthy).unwrap();
        let error = readers.check(before + Duration::from_secs(59)).unwrap_err().to_string();
        assert!(error.contains("cannot read messages_2026_11.db: "), "{error}");
    }

    #[test]
    fn a_row_with_foreign_contents_is_no_failed_read() {
        let home = tempfile::tempdir().unwrap();
        let (readers, key, _path) = readers(&home);
        readers.read(key, uaid_as_text).unwrap_err();
        readers.check(Instant::now()).unwrap();
    }

    fn uaid_as_text(conn: &Connection) -> rusqlite::Result<Option<String>> {
        let mut statement = conn.prepare("SELECT uaid FROM channels")?;
        first_row(&mut statement, [], |row| row.get(0))
    }
}
