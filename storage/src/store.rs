//! The contract of every engine, with that of the operations in `state_machine::store`. `tests/suite/conformance` tests
//! each sentence of both on each engine.
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

use serde::Serialize;
pub use state_machine::store::{
    BridgedRegistration, Cursor, FullScope, MonthStep, Page, PageLimit, RegisterResult,
    Registration, SettledMessages, StoreAnswer, StoreOp, Stored,
};
use state_machine::{BridgeRecipient, Chid, Message, Month, RouterRecord, Uaid};

pub use crate::answer::{StoreError, StoreFuture, answer, answered};
use crate::receipts::ReceiptTables;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
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

/// What an engine knows of itself without asking its disk or server for rows.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct EngineState {
    /// The space on the engine's disk. None if the engine has none, or if it is unknown.
    pub disk: Option<DiskSpace>,
    /// Messages that were deleted for another one, which was above a bound, since the store was opened.
    pub messages_gave_way: u64,
    /// The times of all commits. None if the engine does not know.
    pub commit_times: Option<CommitTimes>,
    /// The operations that wait for the engine or are under way in it. None if it does not know.
    pub queue: Option<QueueState>,
    /// How router records were read. None if the engine keeps none in memory.
    pub record_reads: Option<RecordReads>,
    /// The reads that failed since the store was opened. None if the engine does not count them.
    pub failed_reads: Option<u64>,
}

/// The router table, with one record per user agent, and the message tables, one per month, each with its users'
/// channels and their waiting messages.
pub trait Store: ReceiptTables {
    /// Executes an operation. [`StoreOp`] says what each does, and [`StoreAnswer`] how it is answered; the answer
    /// [fits](StoreAnswer::fits) the operation. A write that the disk has no space for is [`StoreError::NoSpace`].
    fn execute(&self, op: StoreOp) -> StoreFuture<StoreAnswer>;

    /// Reads a record, consistently with all writes that were answered before. None also for a record with a
    /// router type that is not served, for one whose recipient cannot be read, and for that of a user who is being
    /// dropped.
    fn record(&self, uaid: Uaid) -> StoreFuture<Option<RouterRecord>>;

    /// Writes recipient, `connected_at` and `last_connect` of an agent behind a bridge, if the record there is older.
    /// `curmonth` and `oldmonth` of an existing record stay. The bridge may be another one than before. The record of
    /// any other agent stays as it is: the agent is unknown.
    fn register_bridged(&self, registration: BridgedRegistration) -> StoreFuture<RegisterResult>;

    /// Removes a record, and no other row. Returns whether there was one.
    fn drop_user(&self, uaid: Uaid) -> StoreFuture<bool>;

    /// Removes a record, and no other row, if it still has this bridge, application and token. Returns whether it had.
    fn drop_bridged(&self, uaid: Uaid, recipient: BridgeRecipient) -> StoreFuture<bool>;

    /// The registered channels, as [`StoreOp::ReadChannels`] reads them.
    fn channels(&self, uaid: Uaid, month: Month) -> StoreFuture<Option<BTreeSet<Chid>>>;

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

    /// Creates the month's table if it does not exist.
    fn ensure_month(&self, month: Month) -> StoreFuture<()>;

    /// The months that have a table, oldest first.
    fn months(&self) -> StoreFuture<Vec<Month>>;

    /// Drops the month's table with its rows and frees its space. Returns whether there was one.
    fn drop_month(&self, month: Month) -> StoreFuture<bool>;

    /// Whether the engine has space for a new record or a new channel of an agent. Counts a refusal.
    fn admits_subscription(&self) -> bool {
        true
    }

    fn state(&self) -> EngineState {
        EngineState::default()
    }

    /// The slow commits since the last call. None if there was none, or if the engine does not know.
    fn take_slow_writes(&self) -> Option<SlowWrites> {
        None
    }

    /// Makes one write durable and reads random rows, for health checks. Fails too if a read of the last minute failed.
    fn check(&self) -> StoreFuture<()>;

    /// Accepts no further calls, finishes the queued ones and closes the files.
    fn close(&self) -> StoreFuture<()>;
}
