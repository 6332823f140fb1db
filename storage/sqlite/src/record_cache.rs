//! Router records that were read lately, so that a push to the same agent reads no file.
//!
//! A record is forgotten after the commit that changed it and before any answer of that commit. A thread that read it
//! before that keeps nothing, because it sees that its shard has changed since. So a read returns what was answered
//! (docs/decisions/0035-router-records-in-memory.md).

use std::array;
use std::sync::{Mutex, MutexGuard, PoisonError};

use quick_cache::unsync::Cache;
use state_machine::{RouterRecord, Uaid};
use storage::store::RecordReads;

/// Records that are kept; about 220 bytes each, 15 MB together. Above it, those that are read rarely are forgotten.
const RECORDS_MAX: usize = 65_536;

/// Parts with a lock each, so that threads seldom wait for one another.
const SHARDS: usize = 16;

pub(crate) struct RecordCache {
    shards: [Mutex<Shard>; SHARDS],
}

struct Shard {
    /// Changes of records of this shard.
    changes: u64,
    records: Cache<Uaid, RouterRecord>,
    reads: RecordReads,
}

/// Records that a job changes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WrittenRecords<'a> {
    Of(&'a [Uaid]),
    All,
}

/// Records that the jobs of a transaction change.
#[derive(Debug, Default)]
pub(crate) struct ChangedRecords {
    uaids: Vec<Uaid>,
    are_all: bool,
}

impl ChangedRecords {
    pub(crate) fn add(&mut self, changed: WrittenRecords<'_>) {
        match changed {
            WrittenRecords::Of(uaids) => self.uaids.extend(uaids),
            WrittenRecords::All => self.are_all = true,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.uaids.clear();
        self.are_all = false;
    }
}

impl RecordCache {
    pub(crate) fn new() -> Self {
        let shard = |_| {
            let records = Cache::new(RECORDS_MAX / SHARDS);
            Mutex::new(Shard { changes: 0, records, reads: RecordReads::default() })
        };
        Self { shards: array::from_fn(shard) }
    }

    /// The record that is kept, or the one that `read` finds in the file.
    pub(crate) fn get_or_read<E>(
        &self,
        uaid: Uaid,
        read: impl FnOnce() -> Result<Option<RouterRecord>, E>,
    ) -> Result<Option<RouterRecord>, E> {
        let changes = match self.shard_of(uaid).get(uaid) {
            Ok(record) => return Ok(Some(record)),
            Err(changes) => changes,
        };
        let record = read()?;
        if let Some(record) = record.as_ref().filter(|record| is_kept(record)) {
            self.shard_of(uaid).keep(record, changes);
        }
        Ok(record)
    }

    /// Forgets the records that a commit has changed, and those that are being read.
    pub(crate) fn forget(&self, changed: &ChangedRecords) {
        if changed.are_all {
            return self.forget_all();
        }
        for uaid in &changed.uaids {
            let mut shard = self.shard_of(*uaid);
            shard.changes += 1;
            shard.records.remove(uaid);
        }
    }

    pub(crate) fn forget_all(&self) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.changes += 1;
            shard.records.clear();
        }
    }

    /// The reads since the store was opened.
    pub(crate) fn reads(&self) -> RecordReads {
        self.shards.iter().fold(RecordReads::default(), |sum, shard| {
            let RecordReads { from_memory, from_file } = lock(shard).reads;
            RecordReads {
                from_memory: sum.from_memory + from_memory,
                from_file: sum.from_file + from_file,
            }
        })
    }

    /// By a random byte of the uaid.
    fn shard_of(&self, uaid: Uaid) -> MutexGuard<'_, Shard> {
        lock(&self.shards[usize::from(uaid.0[15]) % SHARDS])
    }
}

impl Shard {
    /// The record, or the number of changes before it is read from the file.
    fn get(&mut self, uaid: Uaid) -> Result<RouterRecord, u64> {
        let record = self.records.get(&uaid).cloned();
        match record {
            Some(_) => self.reads.from_memory += 1,
            None => self.reads.from_file += 1,
        }
        record.ok_or(self.changes)
    }

    fn keep(&mut self, record: &RouterRecord, changes: u64) {
        if self.changes == changes {
            self.records.insert(record.uaid, record.clone());
        }
    }
}

/// The token of a bridge has no small bound, and its push waits for another server anyway.
fn is_kept(record: &RouterRecord) -> bool {
    record.router_type.recipient().is_none()
}

/// A panic leaves a shard as it was.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
