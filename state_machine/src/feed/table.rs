//! The table of a feed as a value in memory.
//!
//! Each operation is atomic in every engine, and `storage::feeds` defines how the engines implement
//! it. Tests compare the engines with this table, and model checkers interleave its operations.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::publication::{Publication, UnpublishedKey};
use super::sequence::{FeedMark, Forgotten, Sequence};
use super::text::{FeedKey, FeedValue};
use super::update::{FeedSyncId, Update, Version, WriteResult};

/// One feed: its keys and its sequence.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Table {
    rows: BTreeMap<FeedKey, Row>,
    sequence: Sequence,
}

/// The row of one key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Row {
    /// The value; none if the key was deleted.
    pub value: Option<FeedValue>,
    /// The number of changes of the row.
    pub version: Version,
    /// The number of the last change; none until it is published.
    pub feed_sync_id: Option<FeedSyncId>,
}

/// A row or the sequence has changed since the publication read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Conflict;

impl Table {
    /// Sets a key and removes its number in the same step.
    pub fn write(&mut self, key: FeedKey, value: FeedValue, keys_max: u64) -> WriteResult {
        if !self.rows.contains_key(&key) && self.sequence.keys >= keys_max {
            return WriteResult::TooManyKeys;
        }
        WriteResult::Done(self.put(key, Some(value)))
    }

    /// Queues a key for publication without a change, even a deleted key. None if the key was never
    /// written.
    pub fn republish(&mut self, key: &FeedKey) -> Option<Version> {
        let value = self.rows.get(key)?.value.clone();
        Some(self.put(key.clone(), value))
    }

    /// Deletes a key. The deletion is published so that consumers receive it. None if the key has
    /// no value.
    pub fn delete(&mut self, key: &FeedKey) -> Option<Version> {
        self.rows.get(key)?.value.as_ref()?;
        Some(self.put(key.clone(), None))
    }

    /// At most `limit` keys without a number, in key order, after `after`.
    pub fn pending(&self, after: Option<&FeedKey>, limit: usize) -> Vec<UnpublishedKey> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = self.rows.range::<FeedKey, _>((after, Bound::Unbounded));
        let waiting = rows.filter(|(_, row)| row.feed_sync_id.is_none());
        let pending = |(key, row): (&FeedKey, &Row)| UnpublishedKey {
            key: key.clone(),
            version: row.version,
        };
        waiting.map(pending).take(limit).collect()
    }

    /// The row of the sequence.
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// Writes a publication if everything it read is unchanged.
    pub fn commit(&mut self, publication: &Publication) -> Result<(), Conflict> {
        let is_as_read = |pending: &UnpublishedKey| {
            self.rows
                .get(&pending.key)
                .is_some_and(|row| row.version == pending.version && row.feed_sync_id.is_none())
        };
        let all = publication.assignments.iter().all(|assigned| is_as_read(&assigned.pending));
        if !all || self.sequence.version != publication.read.version {
            return Err(Conflict);
        }
        for assigned in &publication.assignments {
            let row = self.rows.get_mut(&assigned.pending.key).ok_or(Conflict)?;
            row.version = assigned.version;
            row.feed_sync_id = Some(assigned.feed_sync_id);
        }
        let Sequence { value, version, .. } = publication.sequence;
        self.sequence = Sequence { value, version, ..self.sequence };
        Ok(())
    }

    /// The updates with numbers above `after` and up to `head`, by number.
    ///
    /// A reader reads the sequence first, then the numbers up to its value. Publications in between
    /// may be visible in part, a number without the one before it. They are left to the next read.
    pub fn sequenced(&self, after: FeedSyncId, head: FeedSyncId) -> Vec<Update> {
        let numbered = self.rows.iter().filter_map(|(key, row)| {
            let feed_sync_id = row.feed_sync_id.filter(|id| after < *id && *id <= head)?;
            let Row { version, value, .. } = row.clone();
            Some(Update { feed_sync_id, key: key.clone(), version, value })
        });
        let mut updates: Vec<Update> = numbered.collect();
        updates.sort_by_key(|update| update.feed_sync_id);
        updates
    }

    /// Raises the horizon to `through`, at most to the last number, and then removes at most `limit`
    /// entries up to it, by number.
    pub fn forget(&mut self, through: FeedSyncId, limit: usize) -> Forgotten {
        self.raise_horizon(through);
        self.remove_forgotten(limit)
    }

    /// The first half of [`Table::forget`].
    pub fn raise_horizon(&mut self, through: FeedSyncId) {
        let through = through.min(self.sequence.value);
        self.sequence.horizon = self.sequence.horizon.max(through);
    }

    /// The second half of [`Table::forget`].
    pub fn remove_forgotten(&mut self, limit: usize) -> Forgotten {
        let mut old = self.sequenced(FeedSyncId::NONE, self.sequence.horizon);
        let is_all = old.len() <= limit;
        old.truncate(limit);
        for update in &old {
            self.rows.remove(&update.key);
            self.sequence.keys -= 1;
            self.sequence.forgotten = self.sequence.forgotten.max(update.version);
        }
        Forgotten { count: old.len(), is_all }
    }

    /// Replaces the mark of the sequence.
    pub fn mark(&mut self, mark: FeedMark) {
        self.sequence.mark = Some(mark);
    }

    /// The row of a key.
    pub fn row(&self, key: &str) -> Option<&Row> {
        self.rows.get(key)
    }

    /// All rows, by key.
    pub fn rows(&self) -> impl Iterator<Item = (&FeedKey, &Row)> {
        self.rows.iter()
    }

    fn put(&mut self, key: FeedKey, value: Option<FeedValue>) -> Version {
        let before = self.rows.get(&key).map(|row| row.version);
        let version = before.unwrap_or(self.sequence.forgotten).next();
        self.rows.insert(key, Row { value, version, feed_sync_id: None });
        if before.is_none() {
            // No number is assigned here, so a concurrent publication stays valid.
            self.sequence.keys += 1;
        }
        version
    }
}
