//! The feed's table, and the bugs that a store may have.

use std::collections::BTreeSet;

use state_machine::feed::table::Conflict;
use state_machine::feed::{
    Assignment, FeedKey, FeedSyncId, FeedValue, Publication, Sequence, Table, UnpublishedKey,
    Update, Version, WriteResult,
};

use super::mutation::Mutation;

/// What is on disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Store {
    pub(crate) table: Table,
    /// How far readers may go, in a store whose publications they may see in part: DynamoDB promises no more of several
    /// reads. None in a store whose publications are seen at once.
    pub(crate) settled: Option<FeedSyncId>,
    /// Numbers of a publication that is seen in part, those that are not.
    pub(crate) hidden: BTreeSet<FeedSyncId>,
}

/// A publication about to be written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Draft {
    pub(crate) publication: Publication,
    /// The values of its keys as they were read.
    pub(crate) values: Vec<Option<FeedValue>>,
    pub(crate) is_all: bool,
}

impl Draft {
    pub(crate) fn numbers(&self) -> impl Iterator<Item = FeedSyncId> {
        self.publication.assignments.iter().map(|assigned| assigned.feed_sync_id)
    }
}

/// Keys that a feed may have: more than any scenario has.
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
            // Nobody waits for this number, and nobody reads it: as if the row were gone.
            self.give(key, FeedSyncId::NONE);
        }
        Some(version)
    }

    /// The row of the sequence, as a publisher reads it.
    pub(crate) fn sequence(&self, mutation: Option<Mutation>) -> Sequence {
        let sequence = self.table.sequence();
        match mutation {
            Some(Mutation::MaxPlusOne) => Sequence { value: self.greatest(), ..sequence },
            _ => sequence,
        }
    }

    /// Writes a publication, if what it read is still so.
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

    /// How far a reader may go.
    pub(crate) fn head(&self, mutation: Option<Mutation>) -> FeedSyncId {
        let settled = self.settled.filter(|_| mutation != Some(Mutation::ValueForSettled));
        settled.unwrap_or(self.table.sequence().value)
    }

    /// Whether readers see everything up to a number.
    pub(crate) fn is_whole(&self, up_to: FeedSyncId) -> bool {
        self.hidden.first().is_none_or(|hidden| up_to < *hidden)
    }

    /// Lets readers go as far as this sequence, if it is still the last. Whether it is.
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

    /// Keys that changed have their old values again, so that the publication fits.
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

    /// Gives a key a number behind everybody's back.
    fn give(&mut self, key: &FeedKey, number: FeedSyncId) {
        let sequence = self.table.sequence();
        let version = self.version(key);
        let pending = UnpublishedKey { key: key.clone(), version };
        let assignments = vec![Assignment { pending, version, feed_sync_id: number }];
        let forged = Publication { read: sequence, sequence, assignments };
        self.table.commit(&forged).expect("it was made of what is there");
    }

    fn number(&self, key: &FeedKey) -> Option<FeedSyncId> {
        self.table.row(key.as_str())?.feed_sync_id
    }

    /// Whether a transaction that is seen in part has this key: nobody changes it before it is whole.
    pub(crate) fn is_held(&self, key: &FeedKey) -> bool {
        self.number(key).is_some_and(|number| self.hidden.contains(&number))
    }

    fn version(&self, key: &FeedKey) -> Version {
        self.table.row(key.as_str()).map(|row| row.version).unwrap_or_default()
    }
}
