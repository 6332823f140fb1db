//! The feed's table, and the bugs that a store may have.

use std::collections::BTreeSet;

use state_machine::feed::table::Conflict;
use state_machine::feed::{
    Assignment, FeedKey, FeedSyncId, FeedValue, Publication, Sequence, Table, UnpublishedKey,
    Update, Version, WriteResult,
};

use super::mutation::Mutation;

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
    /// The horizon before it was raised, between the two steps of forgetting.
    pub(crate) forgetting: Option<FeedSyncId>,
}

/// A transaction before it is committed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Draft {
    pub(crate) publication: Publication,
    /// The values of its keys at the time they were read.
    pub(crate) values: Vec<Option<FeedValue>>,
    pub(crate) is_all: bool,
}

impl Draft {
    pub(crate) fn numbers(&self) -> impl Iterator<Item = FeedSyncId> {
        self.publication.assignments.iter().map(|assigned| assigned.feed_sync_id)
    }
}

/// The maximum number of keys in the feed: more than any scenario has.
const KEYS_MAX: u64 = 8;

impl Store {
    pub(crate) fn write(
        &mut self,
        mutation: Option<Mutation>,
        key: &FeedKey,
        value: FeedValue,
    ) -> Version {
        let number = self.number(key);
        let WriteResult::Done(version) = self.table.write(key.clone(), value, KEYS_MAX) else {
            panic!("a scenario has fewer than {KEYS_MAX} keys");
        };
        if let (Some(Mutation::NumberKept), Some(number)) = (mutation, number) {
            self.give(key, number);
        }
        version
    }

    pub(crate) fn delete(&mut self, mutation: Option<Mutation>, key: &FeedKey) -> Option<Version> {
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

    /// The first step of forgetting the oldest tombstone.
    pub(crate) fn forgets(&mut self, mutation: Option<Mutation>) {
        let Some(through) = self.oldest_tombstone() else { return };
        self.forgetting = Some(self.table.sequence().horizon);
        self.table.raise_horizon(through);
        if mutation == Some(Mutation::RemovedBeforeHorizon) {
            self.table.remove_forgotten(usize::MAX);
        }
    }

    /// The second step of forgetting the oldest tombstone.
    pub(crate) fn removes_forgotten(&mut self) {
        self.forgetting = None;
        self.table.remove_forgotten(usize::MAX);
    }

    /// The horizon that readers see.
    pub(crate) fn horizon(&self, mutation: Option<Mutation>) -> FeedSyncId {
        let before = self.forgetting.filter(|_| mutation == Some(Mutation::RemovedBeforeHorizon));
        before.unwrap_or(self.table.sequence().horizon)
    }

    /// The row of the sequence, as a publisher reads it.
    pub(crate) fn sequence(&self, mutation: Option<Mutation>) -> Sequence {
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
    pub(crate) fn is_whole(&self, up_to: FeedSyncId) -> bool {
        self.hidden.first().is_none_or(|hidden| up_to < *hidden)
    }

    /// Settles this sequence, if it is still the last. Returns whether it is.
    pub(crate) fn settle(&mut self, mutation: Option<Mutation>, sequence: Sequence) -> bool {
        let is_last = self.table.sequence().version == sequence.version;
        if is_last || mutation == Some(Mutation::SettledWithoutCondition) {
            self.settled = self.settled.map(|_| sequence.value);
        }
        is_last
    }

    /// The update that has this number, if a reader sees it.
    pub(crate) fn sequenced(&self, number: FeedSyncId) -> Option<Update> {
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
