//! The feed's table, and the bugs that a store may have.

use std::collections::BTreeSet;

use state_machine::feed::table::Conflict;
use state_machine::feed::{
    Assignment, FeedKey, FeedSyncId, FeedValue, Publication, Sequence, Table, UnpublishedKey,
    Update, Version, WriteResult,
};

use storage::rules::feed_rows::{KeyChange, KeyRow, PendingPage, PendingRow, SequenceRow};

use super::mutation::Mutation;
use super::rule::{Answer, Request};

/// The state on disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Store {
    pub(crate) table: Table,
    /// The number up to which readers may read, in a store with partly visible publications;
    /// DynamoDB promises no more of several reads. None in a store whose publications become
    /// visible at once.
    pub(crate) settled: Option<FeedSyncId>,
    /// The numbers of a partly visible publication that are not visible.
    pub(crate) hidden: BTreeSet<FeedSyncId>,
    /// The horizon that a seeded bug has not raised yet.
    pub(crate) unraised: Option<FeedSyncId>,
}

/// A transaction before it is committed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Draft {
    pub(crate) publication: Publication,
    /// The values of its keys at the time they were read.
    pub(crate) values: Vec<Option<FeedValue>>,
}

impl Draft {
    pub(super) fn assignment(change: &KeyChange<'_>) -> Assignment {
        let (before, after) = (change.before.unwrap_or_default(), change.after);
        let after = after.map(|(row, _)| row).unwrap_or_default();
        let pending = UnpublishedKey { key: change.key.clone(), version: before.version };
        let feed_sync_id = after.number.unwrap_or_default();
        Assignment { pending, version: after.version, feed_sync_id }
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = FeedSyncId> {
        self.publication.assignments.iter().map(|assigned| assigned.feed_sync_id)
    }
}

/// The maximum number of keys in the feed: more than any scenario has.
const KEYS_MAX: u64 = 8;

impl Store {
    fn write(&mut self, mutation: Option<Mutation>, key: &FeedKey, value: FeedValue) -> Version {
        let number = self.number(key);
        let WriteResult::Done(version) = self.table.write(key.clone(), value, KEYS_MAX) else {
            panic!("a scenario has fewer than {KEYS_MAX} keys");
        };
        if let (Some(Mutation::NumberKept), Some(number)) = (mutation, number) {
            self.give(key, number);
        }
        version
    }

    fn delete(&mut self, mutation: Option<Mutation>, key: &FeedKey) -> Option<Version> {
        let version = self.table.delete(key)?;
        if mutation == Some(Mutation::NoTombstone) {
            // No order waits for this number and no reader sees it, as if the row were absent.
            self.give(key, FeedSyncId::NONE);
        }
        Some(version)
    }

    /// The oldest entry, if it is a tombstone that readers see.
    pub(crate) fn oldest_tombstone(&self) -> Option<FeedSyncId> {
        let oldest = self.table.sequenced(FeedSyncId::NONE, self.head(None)).into_iter().next();
        oldest.filter(|update| update.value.is_none()).map(|update| update.feed_sync_id)
    }

    /// Executes a request. None while it must wait for another transaction.
    pub(crate) fn answer(
        &mut self,
        request: &Request,
        mutation: Option<Mutation>,
    ) -> Option<Answer> {
        Some(match request {
            Request::Sequence => {
                let is_there = self.table.sequence() != Sequence::default();
                let horizon = self.horizon();
                let sequence = Sequence { horizon, ..self.sequence(mutation) };
                let settled = self.head(mutation);
                Answer::Sequence(is_there.then_some(SequenceRow { sequence, settled }))
            }
            Request::Key(key) | Request::Value(key) => {
                let row = self.table.row(key.as_str());
                Answer::Key(row.map(|row| {
                    let there = KeyRow { version: row.version, number: row.feed_sync_id };
                    (there, row.value.clone())
                }))
            }
            Request::Pending { after, limit } => {
                let mut waiting = self.table.pending(after.as_ref(), limit + 1);
                let is_all = waiting.len() <= *limit || mutation == Some(Mutation::NothingBehind);
                waiting.truncate(*limit);
                let last = waiting.last().map(|last| last.key.clone());
                let row = |pending: UnpublishedKey| PendingRow {
                    value: self.table.row(pending.key.as_str()).and_then(|row| row.value.clone()),
                    pending,
                };
                Answer::Pending(PendingPage {
                    rows: waiting.into_iter().map(row).collect(),
                    is_all,
                    last,
                })
            }
            Request::Number(number) => Answer::Number(self.sequenced(*number)),
            Request::IsLast(number) => Answer::Is(self.greatest() <= *number),
            Request::Settle(sequence) => {
                let is_seen = self.is_whole(sequence.value);
                if !is_seen && mutation != Some(Mutation::SettledUnseen) {
                    return None;
                }
                Answer::Is(self.settle(mutation, *sequence))
            }
            write => Answer::Is(self.execute(write, mutation)),
        })
    }

    /// Executes a write, unless its condition does not hold.
    fn execute(&mut self, write: &Request, mutation: Option<Mutation>) -> bool {
        match write {
            Request::RaiseHorizon(through) => {
                if mutation == Some(Mutation::RemovedBeforeHorizon) {
                    self.unraised = Some(self.table.sequence().horizon);
                }
                self.table.raise_horizon(*through);
                if self.unraised.is_some() {
                    self.table.remove_forgotten(usize::MAX);
                }
                true
            }
            Request::Change { key, before, value } => {
                let row = self.table.row(key.as_str());
                let is_as_read = row.map(|row| row.version) == *before;
                let is_deleted = row.is_some_and(|row| row.value.is_none());
                match value {
                    _ if !is_as_read => return false,
                    Some(value) => drop(self.write(mutation, key, value.clone())),
                    None if is_deleted => drop(self.table.republish(key)),
                    None => drop(self.delete(mutation, key)),
                }
                true
            }
            Request::Publish(draft) => self.commit(mutation, draft).is_ok(),
            Request::Remove(keys) => {
                let is_there = |(key, version): &(FeedKey, Version)| self.version(key) == *version;
                let is_done = self.unraised.is_some() || keys.iter().all(is_there);
                self.unraised = None;
                if is_done {
                    self.table.remove_forgotten(keys.len());
                }
                is_done
            }
            read => panic!("{read:?} writes nothing"),
        }
    }

    /// The horizon that readers see.
    fn horizon(&self) -> FeedSyncId {
        self.unraised.unwrap_or(self.table.sequence().horizon)
    }

    /// The row of the sequence, as a publisher reads it.
    fn sequence(&self, mutation: Option<Mutation>) -> Sequence {
        let sequence = self.table.sequence();
        match mutation {
            Some(Mutation::MaxPlusOne) => Sequence { value: self.greatest(), ..sequence },
            _ => sequence,
        }
    }

    /// Commits a publication, if the rows that it read are unchanged.
    pub(crate) fn commit(
        &mut self,
        mutation: Option<Mutation>,
        draft: &Draft,
    ) -> Result<(), Conflict> {
        let mut publication = draft.publication.clone();
        match mutation {
            Some(Mutation::NoSequenceCondition) => {
                publication.read.version = self.table.sequence().version;
            }
            Some(Mutation::NoKeyCondition) => self.overwrite(&draft.values, &mut publication),
            _ => {}
        }
        self.table.commit(&publication)?;
        if self.settled.is_some() {
            self.hidden.extend(draft.numbers());
        }
        Ok(())
    }

    /// The number up to which a reader may read.
    pub(crate) fn head(&self, mutation: Option<Mutation>) -> FeedSyncId {
        let settled = self.settled.filter(|_| mutation != Some(Mutation::ValueForSettled));
        settled.unwrap_or(self.table.sequence().value)
    }

    /// Whether readers see every update up to a number.
    fn is_whole(&self, up_to: FeedSyncId) -> bool {
        self.hidden.first().is_none_or(|hidden| up_to < *hidden)
    }

    /// Settles this sequence, if it is still the last. Returns whether it is.
    fn settle(&mut self, mutation: Option<Mutation>, sequence: Sequence) -> bool {
        let is_last = self.table.sequence().version == sequence.version;
        if is_last || mutation == Some(Mutation::SettledWithoutCondition) {
            self.settled = self.settled.map(|_| sequence.value);
        }
        is_last
    }

    /// The update that has this number, if a reader sees it.
    fn sequenced(&self, number: FeedSyncId) -> Option<Update> {
        let before = FeedSyncId(number.0 - 1);
        self.table.sequenced(before, number).pop().filter(|_| !self.hidden.contains(&number))
    }

    /// The greatest number in use.
    pub(crate) fn greatest(&self) -> FeedSyncId {
        self.table.rows().filter_map(|(_, row)| row.feed_sync_id).max().unwrap_or_default()
    }

    /// Restores the old values of changed keys, so that the publication fits.
    fn overwrite(&mut self, values: &[Option<FeedValue>], publication: &mut Publication) {
        for (Assignment { pending, .. }, value) in publication.assignments.iter_mut().zip(values) {
            let is_as_read = self.version(&pending.key) == pending.version;
            match value {
                _ if is_as_read => {}
                Some(value) => {
                    self.table.write(pending.key.clone(), value.clone(), KEYS_MAX);
                }
                None => {
                    self.table.delete(&pending.key);
                }
            }
            pending.version = self.version(&pending.key);
        }
    }

    /// Assigns a number to a key outside a publication.
    fn give(&mut self, key: &FeedKey, number: FeedSyncId) {
        let sequence = self.table.sequence();
        let version = self.version(key);
        let pending = UnpublishedKey { key: key.clone(), version };
        let assignments = vec![Assignment { pending, version, feed_sync_id: number }];
        let forged = Publication { read: sequence, sequence, assignments };
        self.table.commit(&forged).expect("it was made from the present rows");
    }

    fn number(&self, key: &FeedKey) -> Option<FeedSyncId> {
        self.table.row(key.as_str())?.feed_sync_id
    }

    /// Whether a partly visible transaction contains this key. It cannot be changed until the
    /// transaction is whole.
    pub(crate) fn is_held(&self, key: &FeedKey) -> bool {
        self.number(key).is_some_and(|number| self.hidden.contains(&number))
    }

    fn version(&self, key: &FeedKey) -> Version {
        self.table.row(key.as_str()).map(|row| row.version).unwrap_or_default()
    }
}
