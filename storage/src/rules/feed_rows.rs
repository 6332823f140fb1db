//! The rows of feeds, and of the receipts that are expected.

use std::collections::BTreeSet;
use std::time::Instant;

use state_machine::Time;
use state_machine::feed::UnpublishedKey;

use crate::feeds::{FeedKey, FeedName, FeedSyncId, FeedValue, Sequence, Update, Version};
use crate::receipts::ExpectedReceipt;
use crate::store::{Cursor, PageLimit};

/// The tables of feeds as an engine keeps them.
#[expect(
    async_fn_in_trait,
    reason = "whether a rule is Send depends on its engine, and callers see it"
)]
pub trait FeedRows {
    type Error;

    /// The bounds of one commit of this engine.
    const BOUNDS: CommitBounds;

    /// The row of a feed. None if there is no such feed.
    async fn sequence(&self, feed: &FeedName) -> Result<Option<SequenceRow>, Self::Error>;

    /// The row of a key; none if it was never written, or is forgotten.
    async fn key(&self, feed: &FeedName, key: &FeedKey) -> Result<Option<KeyRow>, Self::Error>;

    /// The value of a key whose row was read: the outer `None` if the key has changed since, the inner one if it is deleted.
    async fn value(
        &self,
        feed: &FeedName,
        key: &FeedKey,
        row: KeyRow,
    ) -> Result<Option<Option<FeedValue>>, Self::Error>;

    /// At most `rows` keys that wait to be published after `after`, by key, without those of `refused`.
    async fn pending(
        &self,
        feed: &FeedName,
        after: Option<&FeedKey>,
        rows: usize,
        refused: &BTreeSet<UnpublishedKey>,
    ) -> Result<PendingPage, Self::Error>;

    /// The published updates with a number after `after` and up to `last`, by number.
    async fn numbered(
        &self,
        feed: &FeedName,
        after: FeedSyncId,
        last: FeedSyncId,
        limit: PageLimit,
    ) -> Result<NumberedPage, Self::Error>;

    /// Raises horizon and greatest forgotten version of a feed, if both still are those of `read`. Returns whether they were.
    async fn raise_horizon(
        &self,
        feed: &FeedName,
        read: &Sequence,
        raised: &Sequence,
    ) -> Result<bool, Self::Error>;

    /// Lets readers see the last publication, if its publisher has not done so. Returns false if the sequence has changed.
    async fn settle(&self, _feed: &FeedName, _row: SequenceRow) -> Result<bool, Self::Error> {
        Ok(true)
    }

    /// At most [`CommitBounds::receipts`] receipts that are due at `now`, after a page of them.
    async fn receipts_due(
        &self,
        now: Time,
        after: Option<Cursor>,
    ) -> Result<(Vec<ExpectedReceipt>, Option<Cursor>), Self::Error>;

    /// Removes receipt subscriptions that have ended by `now`, as many as fit into one job. Returns how many are gone, and
    /// whether there are more.
    async fn remove_ended(&self, now: Time) -> Result<(u64, bool), Self::Error>;

    /// Does all of this in one transaction, or nothing if a condition does not hold.
    async fn commit(&self, change: FeedChange<'_>) -> Result<Committed<Self::Error>, Self::Error>;

    /// Receipts that may be decided concurrently.
    fn concurrent(&self) -> usize {
        1
    }

    /// Waits before the next attempt of a rule. Fails if there is none, with the error of the last one if it has one.
    async fn next_attempt(
        &self,
        attempts: &mut Attempts,
        lost: Option<Self::Error>,
    ) -> Result<(), Self::Error>;
}

/// How much one commit of an engine may change.
pub struct CommitBounds {
    /// Keys that are published.
    pub published: usize,
    /// Entries that are forgotten.
    pub forgotten: usize,
    /// Updates of one read.
    pub fetched: usize,
    /// Receipts that one call decides before it says that there are more.
    pub receipts: usize,
}

/// The row of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SequenceRow {
    pub sequence: Sequence,
    /// Every read sees all updates up to this number.
    pub settled: FeedSyncId,
}

/// The row of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct KeyRow {
    pub version: Version,
    /// None while the key waits.
    pub number: Option<FeedSyncId>,
}

/// A key that waits, and its value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PendingRow {
    pub pending: UnpublishedKey,
    pub value: Option<FeedValue>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PendingPage {
    pub rows: Vec<PendingRow>,
    /// Whether no key waits after these.
    pub is_all: bool,
    /// The last key that was read, also if its row cannot be published.
    pub last: Option<FeedKey>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct NumberedPage {
    pub updates: Vec<Update>,
    /// Whether there is none after these.
    pub is_all: bool,
    /// The last number that was read, also if its row is unreadable.
    pub last: Option<FeedSyncId>,
}

/// One transaction on the rows of a feed.
pub struct FeedChange<'a> {
    pub feed: &'a FeedName,
    pub expected: ExpectedChange<'a>,
    pub keys: Vec<KeyChange<'a>>,
    pub sequence: SequenceChange,
}

/// A change of the receipts that are expected.
pub enum ExpectedChange<'a> {
    None,
    /// Refused if it is expected already.
    Add(&'a ExpectedReceipt),
    /// Refused if it is not expected.
    Remove(&'a ExpectedReceipt),
}

/// A change of a key. Refused if its row is not `before` any more.
pub struct KeyChange<'a> {
    pub key: &'a FeedKey,
    pub before: Option<KeyRow>,
    /// None removes the key.
    pub after: Option<(KeyRow, Option<&'a FeedValue>)>,
}

/// A change of the sequence.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SequenceChange {
    None,
    /// Counts a new key, and creates the sequence with the first. Refused at `keys_max`, and if it has forgotten another
    /// version than this.
    CountKey {
        keys_max: u64,
        forgotten: Version,
    },
    UncountKeys(usize),
    /// Counts a key again that was counted no more. Refused without a sequence.
    RecountKey,
    /// Numbers keys. Refused if the version is not that of `read` any more.
    Advance {
        read: Sequence,
        to: Sequence,
    },
}

/// What became of a transaction.
pub enum Committed<E> {
    Done,
    Refused(Refused<E>),
}

/// Which conditions do not hold. Nothing was done. The sequence's is not named: a rule reads it again.
pub struct Refused<E> {
    pub expected: bool,
    /// Their places among the changed ones.
    pub keys: Vec<usize>,
    /// The error of the last attempt, if this engine has one for it.
    pub lost: Option<E>,
}

impl<E> Default for Refused<E> {
    fn default() -> Self {
        Self { expected: false, keys: Vec::new(), lost: None }
    }
}

/// The attempts of a rule until now.
pub struct Attempts {
    pub count: u32,
    pub begun: Instant,
    /// Whether one of them may have been executed.
    pub indeterminate: bool,
}

impl Attempts {
    /// The first attempt begins now.
    pub(super) fn new() -> Self {
        Self { count: 0, begun: Instant::now(), indeterminate: false }
    }
}
