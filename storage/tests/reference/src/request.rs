//! The row methods of the rules as values: what a rule asks, and what it is answered.

use state_machine::feed::{FeedKey, FeedName, FeedSyncId, FeedValue, Sequence};
use state_machine::store::RegisterResult;
use state_machine::{BridgeRecipient, MessageId, Time, Uaid};
use storage::ExpectedReceipt;
use storage::record_row::RecordRow;
use storage::registration::NewRecord;
use storage::rules::feed_rows::{
    ExpectedChange, FeedChange, KeyChange, KeyRow, NumberedPage, PendingPage, SequenceChange,
    SequenceRow,
};
use storage::rules::record_rows::GuardedChange;
use storage::rules::topics::{Replaces, RowThere};

/// One call of a row method: it is executed as a whole, and others may be executed before the next one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Request {
    Record(Uaid),
    Records,
    Change(GuardedChange),
    /// Writes the record of an agent that connects. Each engine has one statement for it.
    Register(NewRecord),
    /// Removes a record; with a recipient, only if it still has this one.
    RemoveRecord(Uaid, Option<BridgeRecipient>),
    /// Removes a record that is marked as dropped.
    RemoveMarked(Uaid),

    Sequence(FeedName),
    Key(FeedName, FeedKey),
    Value(FeedName, FeedKey),
    Pending {
        feed: FeedName,
        after: Option<FeedKey>,
        rows: usize,
    },
    Numbered {
        feed: FeedName,
        after: FeedSyncId,
        last: FeedSyncId,
        rows: usize,
    },
    RaiseHorizon {
        feed: FeedName,
        read: Sequence,
        raised: Sequence,
    },
    /// Lets readers see a publication once it is whole.
    Settle(FeedName, Sequence),
    Commit(Commit),
    /// The receipts that are due.
    Due(Time),
    /// The receipt subscriptions that have ended, with the keys that they count.
    Ended(Time),
    /// Removes the keys of a feed. Answers whether there were any.
    RemoveKeys(FeedName),
    /// Removes the sequence of a feed, if it still counts so many keys.
    RemoveSequence(FeedName, u64),

    PutMessage(RowOfMessage, Replaces),
    Message(RowOfMessage),
    /// Deletes the row of a message, if it still holds that message.
    DeleteMessage(RowOfMessage),
}

/// A [`FeedChange`] that owns its rows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Commit {
    pub feed: FeedName,
    /// Whether a receipt is to be expected from now on, or no more.
    pub expected: Option<(bool, ExpectedReceipt)>,
    pub keys: Vec<KeyCommit>,
    pub sequence: SequenceChange,
}

/// A [`KeyChange`] that owns its rows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyCommit {
    pub key: FeedKey,
    pub before: Option<KeyRow>,
    pub after: Option<(KeyRow, Option<FeedValue>)>,
}

/// A message of one agent and one month, and the row that it is in: that of its topic if it has one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RowOfMessage {
    pub id: MessageId,
    pub topic: Option<u8>,
    pub expected: Option<ExpectedReceipt>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    Record(Option<Box<RecordRow>>),
    Records(Vec<RecordRow>),
    /// The record before the change. A refusal does not say which record is there.
    Changed(Option<Box<RecordRow>>),
    Registered(Box<RegisterResult>),
    Sequence(Option<SequenceRow>),
    Key(Option<(KeyRow, Option<FeedValue>)>),
    Pending(PendingPage),
    Numbered(NumberedPage),
    Committed(Result<(), Conflict>),
    Due(Vec<ExpectedReceipt>),
    Ended(Vec<(FeedName, u64)>),
    Message(Option<RowThere>),
    /// Whether it was done.
    Is(bool),
}

/// The conditions of a commit that do not hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Conflict {
    pub expected: bool,
    pub keys: Vec<usize>,
}

impl From<FeedChange<'_>> for Commit {
    fn from(change: FeedChange<'_>) -> Self {
        let FeedChange { feed, expected, keys, sequence } = change;
        let expected = match expected {
            ExpectedChange::None => None,
            ExpectedChange::Add(expected) => Some((true, expected.clone())),
            ExpectedChange::Remove(expected) => Some((false, expected.clone())),
        };
        let keys = keys.into_iter().map(|KeyChange { key, before, after }| KeyCommit {
            key: key.clone(),
            before,
            after: after.map(|(row, value)| (row, value.cloned())),
        });
        Self { feed: feed.clone(), expected, keys: keys.collect(), sequence }
    }
}
