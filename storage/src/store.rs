//! The contract every engine keeps. `tests/conformance` runs each sentence of it on each engine.
//!
//! **Calling is ordering.** A method queues its work before it returns; the future only carries
//! the answer. Dropping the future cancels nothing, so an actor that stops loses no write.
//!
//! **Answered is durable.** A write that answered `Ok` survives kill -9 and power loss.
//!
//! **Refused is clear.** A queue that is full answers [`StoreError::Busy`] at once; nothing of that
//! call was or will be done. Any other error leaves open whether the write happened: all writes are
//! idempotent, so callers repeat them.
//!
//! **One user agent's writes are in order** as they were called.

use std::collections::BTreeSet;

use futures_util::future::BoxFuture;
pub use state_machine::store::{
    Cursor, MonthStep, Page, PageLimit, RegisterResult, Registration, Stored,
};
use state_machine::{Chid, Message, MessageKey, Month, NodeId, RouterRecord, Time, Uaid};

/// The answer of a store, on its way.
pub type StoreFuture<T> = BoxFuture<'static, Result<T, StoreError>>;

/// Why a store did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The engine's queue is full or the table is throttled; nothing was done. Try again later.
    #[error("the store is busy, try again")]
    Busy,
    /// The month's table does not exist: not made yet, or dropped.
    #[error("there is no message table for {0}")]
    NoSuchMonth(Month),
    /// The engine is shutting down.
    #[error("the store is closed")]
    Closed,
    /// This engine has no such thing. Says what it lacks, for an operator.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The engine failed. The text is for an operator's log, never for a peer.
    #[error("{0}")]
    Failed(String),
}

/// The router table: one record a user agent.
pub trait RouterTable: Send + Sync {
    /// Reads a record, consistently with all writes answered before.
    fn record(&self, uaid: Uaid) -> StoreFuture<Option<RouterRecord>>;

    /// Writes node, `connected_at`, `last_connect` and router type, if the record there is older
    /// (`connected_at` strictly less). `curmonth` and `oldmonth` of a record that exists stay.
    ///
    /// What [`RegisterResult::Registered`] says of the place before is for telling the node there, which saves that
    /// node a connection that nobody uses: all that it could still write is conditional on `connected_at`.
    /// So it may be missing where the store wrote the record and lost its own answer: then there is no
    /// place, as if the telling were lost on its way.
    fn register_user(&self, registration: Registration) -> StoreFuture<RegisterResult>;

    /// Sets `curmonth` to `to`, `oldmonth` to `from` and `last_connect`, if the record still has
    /// `node` and `connected_at`. Answers whether it had.
    fn update_message_month(&self, step: MonthStep) -> StoreFuture<bool>;

    /// Removes `oldmonth` if it is `from` and the record still has `node` and `connected_at`.
    /// Answers whether the record still had them.
    fn finish_month_move(&self, step: MonthStep) -> StoreFuture<bool>;

    /// Removes the node from the record if it still has `node` and `connected_at`. Answers whether it had.
    fn clear_node(&self, uaid: Uaid, node: NodeId, connected_at: Time) -> StoreFuture<bool>;

    /// Removes a record. Answers whether there was one.
    fn drop_user(&self, uaid: Uaid) -> StoreFuture<bool>;
}

/// The message tables, one a month, each with its users' channels and their waiting messages.
pub trait MessageTables: Send + Sync {
    /// The registered channels: none where nothing was ever registered or the table is gone;
    /// an empty set where all channels were unregistered.
    fn channels(&self, uaid: Uaid, month: Month) -> StoreFuture<Option<BTreeSet<Chid>>>;

    /// Adds channels to those registered; never takes one away. An empty set makes the row exist.
    fn add_channels(&self, uaid: Uaid, month: Month, channels: BTreeSet<Chid>) -> StoreFuture<()>;

    /// Unregisters a channel in each of the months. A month without a table is passed over.
    fn remove_channel(&self, uaid: Uaid, months: Vec<Month>, chid: Chid) -> StoreFuture<()>;

    /// Stores a message, if its channel is registered in that month. Idempotent on the message id.
    /// A message with a topic replaces the one with a lesser id of the same channel and topic, and
    /// is dropped in favour of one with a greater id.
    fn store_message(&self, uaid: Uaid, month: Month, message: Message) -> StoreFuture<Stored>;

    /// The messages behind the page that ended at `after`, without those expired by `now`. The order
    /// is the table's own; messages without a topic come in the order of their ids. A message that
    /// is there from the first page to the last is in one of them. A month without a table has none.
    fn fetch_messages(
        &self,
        uaid: Uaid,
        month: Month,
        after: Option<Cursor>,
        limit: PageLimit,
        now: Time,
    ) -> StoreFuture<Page>;

    /// Deletes messages in each of the months, each only if the row still holds that very message:
    /// the replacement of a topic's message stays. Answers how many there were.
    /// A month without a table is passed over.
    fn delete_messages(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        messages: Vec<MessageKey>,
    ) -> StoreFuture<usize>;

    /// Copies the messages that wait in `from` to `to`, by the rule of [`MessageTables::store_message`]
    /// for topics, and then deletes them in `from`. Messages of channels that are not registered in
    /// `to` are only deleted. Repeatable after a crash at any point.
    fn move_messages(&self, uaid: Uaid, from: Month, to: Month) -> StoreFuture<()>;

    /// Makes the month's table if it is not there.
    fn ensure_month(&self, month: Month) -> StoreFuture<()>;

    /// The months that have a table, oldest first.
    fn months(&self) -> StoreFuture<Vec<Month>>;

    /// Drops the month's table with all in it and gives its space back. Answers whether there was one.
    fn drop_month(&self, month: Month) -> StoreFuture<bool>;
}

/// A whole store.
pub trait Store: RouterTable + MessageTables {
    /// Answers once a write could be made durable: what a health check asks.
    fn check(&self) -> StoreFuture<()>;

    /// Takes no further work, finishes what is queued and lets go of the files.
    fn close(&self) -> StoreFuture<()>;
}
