//! The contract of every engine. `tests/suite/conformance` tests each sentence of it on each
//! engine.
//!
//! **Calling is ordering.** A method queues its work before it returns; the future only carries
//! the result. Dropping the future cancels nothing, so an actor that stops loses no write.
//!
//! **`Ok` is durable.** A write that returned `Ok` survives kill -9 and power loss. The exception is the registration of a
//! known agent while the embedded engine's disk is full: it is kept in memory, and counts as written for every other
//! call. A crash loses it with all connections of the only node.
//!
//! **`Busy` is clear.** A full queue returns [`StoreError::Busy`] at once, and nothing of that call
//! was or will be done. After any other error the write may have happened: all writes are
//! idempotent, so callers repeat them.
//!
//! **The writes of one user agent are executed in the order of their calls.**

use std::collections::BTreeSet;

use futures_util::future::BoxFuture;
pub use state_machine::store::{
    BridgedRegistration, Cursor, FullScope, MonthStep, Page, PageLimit, RegisterResult,
    Registration, Stored,
};
use state_machine::{
    BridgeRecipient, Chid, Message, MessageKey, Month, NodeId, RouterRecord, Time, Uaid,
};

use crate::receipts::ReceiptTables;

/// The pending result of a call.
pub type StoreFuture<T> = BoxFuture<'static, Result<T, StoreError>>;

/// Why a call of a store failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The engine's queue is full or the table is throttled. Nothing was done, and the caller may
    /// try again later.
    #[error("the store is busy, try again")]
    Busy,
    /// The disk has too little space for this write, and nothing of it was done. The caller may try again later.
    #[error("the disk has too little free space: free some, or move another file away from it")]
    NoSpace,
    /// The month's table was not created yet, or was dropped.
    #[error("there is no message table for {0}")]
    NoSuchMonth(Month),
    /// The engine is shutting down.
    #[error("the store is closed")]
    Closed,
    /// The engine does not support the operation; the text is for an operator.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The engine failed. The text is for an operator's log, never for a peer.
    #[error("{0}")]
    Failed(String),
}

/// The router table: one record per user agent.
pub trait RouterTable: Send + Sync {
    /// Reads a record, consistently with all writes that were answered before. None also for a record with a
    /// router type that is not served, for one whose recipient cannot be read, and for that of a user who is being
    /// dropped.
    fn record(&self, uaid: Uaid) -> StoreFuture<Option<RouterRecord>>;

    /// Writes node, `connected_at`, `last_connect` and router type, if the record there is older
    /// (`connected_at` strictly less). `curmonth` and `oldmonth` of an existing record stay. A record that
    /// [`RouterTable::record`] does not return, and one of another router type, stays as it is: the agent is unknown.
    ///
    /// [`RegisterResult::Registered`] carries the binding that the record had before, so that the
    /// caller can notify that node of its dead connection. The notification is an optimisation: all
    /// writes of that node are conditional on `connected_at`. So the binding may be missing if
    /// the engine wrote the record and lost its own reply.
    fn register_user(&self, registration: Registration) -> StoreFuture<RegisterResult>;

    /// Writes recipient, `connected_at` and `last_connect` of an agent behind a bridge, if the record there is older.
    /// `curmonth` and `oldmonth` of an existing record stay. The bridge may be another one than before. The record of
    /// any other agent stays as it is: the agent is unknown.
    fn register_bridged(&self, registration: BridgedRegistration) -> StoreFuture<RegisterResult>;

    /// Sets `curmonth` to `to`, `oldmonth` to `from` and `last_connect`, if the record still has
    /// `node` and `connected_at`. Returns whether it had.
    ///
    /// Without a node, the record must be one of an agent behind a bridge, with the `curmonth` `from` and no
    /// `oldmonth`. After a lost reply the answer may be false although the record was written.
    fn update_message_month(&self, step: MonthStep) -> StoreFuture<bool>;

    /// Removes `oldmonth` if it is `from` and the record still has `node` and `connected_at`.
    /// Returns whether the record still had them.
    fn finish_month_move(&self, step: MonthStep) -> StoreFuture<bool>;

    /// Removes the node from the record if it still has `node` and `connected_at`. Returns whether
    /// it had.
    fn clear_node(&self, uaid: Uaid, node: NodeId, connected_at: Time) -> StoreFuture<bool>;

    /// Removes a record, and no other row. Returns whether there was one.
    fn drop_user(&self, uaid: Uaid) -> StoreFuture<bool>;

    /// Removes a record, and no other row, if it still has this bridge, application and token. Returns whether it had.
    fn drop_bridged(&self, uaid: Uaid, recipient: BridgeRecipient) -> StoreFuture<bool>;
}

/// The message tables, one per month, each with its users' channels and their waiting messages.
pub trait MessageTables: Send + Sync {
    /// The registered channels: `None` if no channel was ever registered or there is no table,
    /// an empty set if all channels were unregistered.
    fn channels(&self, uaid: Uaid, month: Month) -> StoreFuture<Option<BTreeSet<Chid>>>;

    /// Adds channels to those registered, and removes none. An empty set creates the row.
    fn add_channels(&self, uaid: Uaid, month: Month, channels: BTreeSet<Chid>) -> StoreFuture<()>;

    /// Creates the agent's row with these channels, if it has none in that month. A row that exists stays as it is.
    fn create_channels(
        &self,
        uaid: Uaid,
        month: Month,
        channels: BTreeSet<Chid>,
    ) -> StoreFuture<()>;

    /// Unregisters a channel in each of the months. A month without a table is skipped.
    fn remove_channel(&self, uaid: Uaid, months: Vec<Month>, chid: Chid) -> StoreFuture<()>;

    /// Unregisters a channel of a SimplePush agent like [`MessageTables::remove_channel`], and then deletes its version.
    fn remove_channel_and_version(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        chid: Chid,
    ) -> StoreFuture<()>;

    /// Stores a message, if its channel is registered in that month. Idempotent on the message id.
    /// A message with a topic replaces the one with a lesser id of the same channel and topic. If one with a greater id
    /// waits, it is [`Stored::Outranked`], and nothing is written.
    ///
    /// A message above the bounds of the options ([`WaitingLimits`](crate::WaitingLimits)) is [`Stored::Full`]. Each
    /// month has counts of its own; a message that is stored already, or moved from another month, is always stored.
    /// Messages that had expired when this one was accepted do not count. One that replaces that of its topic counts
    /// the difference.
    ///
    /// A SimplePush version is stored if it is higher than the one of its channel that waits. None is checked or counted:
    /// the caller knows that the channel is registered, and a channel has one version.
    fn store_message(&self, uaid: Uaid, month: Month, message: Message) -> StoreFuture<Stored>;

    /// The messages behind the page that ended at `after`, without those expired by `now`. The
    /// order is the table's own; messages without a topic are ordered by their ids. A message that
    /// is stored from the first page to the last is in one of them. A month without a table has
    /// none.
    fn fetch_messages(
        &self,
        uaid: Uaid,
        month: Month,
        after: Option<Cursor>,
        limit: PageLimit,
        now: Time,
    ) -> StoreFuture<Page>;

    /// The SimplePush versions behind the page that ended at `after`, by channel. They are in a table without months.
    fn fetch_versions(
        &self,
        uaid: Uaid,
        after: Option<Cursor>,
        limit: PageLimit,
        now: Time,
    ) -> StoreFuture<Page>;

    /// Deletes messages in each of the months, each only if the row still holds that very message:
    /// the replacement of a topic's message stays. Returns the number of deleted messages.
    /// A month without a table is skipped. A SimplePush version is deleted with the lower ones of its channel.
    fn delete_messages(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        messages: Vec<MessageKey>,
    ) -> StoreFuture<usize>;

    /// Increments the `offers` of messages, each only if the row still holds that very message. A row of other software
    /// may keep its value.
    fn record_offers(&self, uaid: Uaid, month: Month, messages: Vec<MessageKey>)
    -> StoreFuture<()>;

    /// Copies the messages that wait in `from` to `to`, which the record already names, and then deletes them in `from`.
    /// A message of a topic that waits in `to` stays, whatever its id is: it was pushed after the record had moved, or its
    /// push is not answered yet. That of `from` is only deleted. So are messages of
    /// channels that are not registered in `to`. Repeatable after a crash at any
    /// point. Many messages are moved in pages, and other writes of the agent may be executed between two pages.
    fn move_messages(&self, uaid: Uaid, from: Month, to: Month) -> StoreFuture<()>;

    /// Creates the month's table if it does not exist.
    fn ensure_month(&self, month: Month) -> StoreFuture<()>;

    /// The months that have a table, oldest first.
    fn months(&self) -> StoreFuture<Vec<Month>>;

    /// Drops the month's table with its rows and frees its space. Returns whether there was one.
    fn drop_month(&self, month: Month) -> StoreFuture<bool>;
}

/// Commits that took long, which delays every write behind them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowWrites {
    pub count: u64,
    pub longest_ms: u64,
}

/// How full an engine's queue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueState {
    pub length: usize,
    /// At this length the engine is busy.
    pub max: usize,
}

/// The upper bounds of [`CommitTimes::counts`] but the last.
pub const COMMIT_BOUNDS_MS: [u64; 9] = [1, 2, 5, 10, 25, 50, 100, 250, 1000];

/// How long each commit held the writer since the store was opened, with the writes in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitTimes {
    /// The commits that took at most [the bound](COMMIT_BOUNDS_MS) of the same place and more than the one before it.
    /// The last place has those above all bounds.
    pub counts: [u64; COMMIT_BOUNDS_MS.len() + 1],
    pub longest_ms: u64,
}

/// The reads of router records since the store was opened.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RecordReads {
    pub from_memory: u64,
    pub from_file: u64,
}

/// The space on the disk of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    pub free_bytes: u64,
    /// With less, messages are refused, and with less than half of it new records and channels; 0 means no limit.
    pub free_bytes_min: u64,
    /// Messages that were refused since the store was opened.
    pub messages_refused: u64,
    /// New records and channels that were refused since the store was opened.
    pub subscriptions_refused: u64,
}

impl DiskSpace {
    /// Whether messages are refused.
    pub fn is_low(&self) -> bool {
        self.free_bytes < self.free_bytes_min
    }
}

pub trait Store: RouterTable + MessageTables + ReceiptTables {
    /// The space on the engine's disk. None if the engine has none, or if it is unknown.
    fn disk_space(&self) -> Option<DiskSpace> {
        None
    }

    /// Whether the engine has space for a new record or a new channel of an agent. Counts a refusal.
    fn admits_subscription(&self) -> bool {
        true
    }

    /// Messages that were deleted for another one, which was above a bound, since the store was opened.
    fn messages_gave_way(&self) -> u64 {
        0
    }

    /// The times of all commits. None if the engine does not know.
    fn commit_times(&self) -> Option<CommitTimes> {
        None
    }

    /// How router records were read. None if the engine keeps none in memory.
    fn record_reads(&self) -> Option<RecordReads> {
        None
    }

    /// The operations that wait for the engine or are under way in it. None if it does not know.
    fn queue(&self) -> Option<QueueState> {
        None
    }

    /// The slow commits since the last call. None if there was none, or if the engine does not know.
    fn take_slow_writes(&self) -> Option<SlowWrites> {
        None
    }

    /// The reads that failed since the store was opened. None if the engine does not count them.
    fn failed_reads(&self) -> Option<u64> {
        None
    }

    /// Makes one write durable and reads random rows, for health checks. Fails too if a read of the last minute failed.
    fn check(&self) -> StoreFuture<()>;

    /// Accepts no further calls, finishes the queued ones and closes the files.
    fn close(&self) -> StoreFuture<()>;
}
