//! The contract of the feed tables (docs/sources.md#feed-sequences-note). `tests/suite/conformance`
//! tests each sentence of it on each engine, against [`state_machine::feed::Table`] as the
//! reference.
//!
//! The general rules of [`store`](crate::store) apply. Many nodes write and publish concurrently.

use serde::{Deserialize, Serialize};
pub use state_machine::feed::{
    FeedKey, FeedMark, FeedName, FeedPage, FeedSyncId, FeedValue, Forgotten, PublishResult,
    Sequence, Update, Version, WriteResult,
};
use state_machine::store::PageLimit;

use crate::store::StoreFuture;

/// A feed's entry in the list of feeds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FeedState {
    #[serde(rename = "feed")]
    pub name: FeedName,
    #[serde(flatten)]
    pub sequence: Sequence,
}

/// The feeds of a store: keys with value, version and `feed_sync_id`, and the sequences that number
/// them.
///
/// A feed exists from its first write on. Its numbers only grow: also across restarts, with
/// concurrent publishers, and if the key with the last number is published again.
pub trait FeedTables: Send + Sync {
    /// Creates the tables if they do not exist.
    fn ensure_feeds(&self) -> StoreFuture<()>;

    /// Sets a key and removes its number in the same transaction, so that it waits to be published.
    /// A new key beyond `keys_max` is not written; deleted keys count. Concurrent writers get
    /// different versions, and the value of the greatest stays.
    fn write_key(
        &self,
        feed: FeedName,
        key: FeedKey,
        value: FeedValue,
        keys_max: u64,
    ) -> StoreFuture<WriteResult>;

    /// Removes a key's number and increments its version, so that it is published again as it is,
    /// also if it was deleted. None if there is no such feed or the key was never written.
    fn republish_key(&self, feed: FeedName, key: FeedKey) -> StoreFuture<Option<Version>>;

    /// Deletes a key. The deletion waits to be published like a value. None if there is nothing
    /// to delete.
    fn delete_key(&self, feed: FeedName, key: FeedKey) -> StoreFuture<Option<Version>>;

    /// Assigns the next numbers of the sequence to at most `limit` (0 counts as 1) of the waiting
    /// keys after `after`, in the order of the keys and in one transaction. An engine may number
    /// fewer than `limit`, also none: [`PublishResult::next`] is where to continue, and is behind
    /// `after`. None if there is no such feed.
    fn publish(
        &self,
        feed: FeedName,
        after: Option<FeedKey>,
        limit: usize,
    ) -> StoreFuture<Option<PublishResult>>;

    /// The updates behind `after`, by number. A key that changed since it was numbered is missing
    /// until it is published again. Every number up to the page's cursor was assigned before the
    /// page was read, so that no number is visible before a lesser one.
    ///
    /// A page holds no more than `limit`, and may hold fewer updates, also none. Its cursor is
    /// where to continue, and is greater than `after` if the head is. If `after` is greater than
    /// the head, the page is empty and its cursor is `after`. None if there is no such feed.
    fn fetch_feed(
        &self,
        feed: FeedName,
        after: FeedSyncId,
        limit: PageLimit,
    ) -> StoreFuture<Option<FeedPage>>;

    /// Raises the feed's horizon to `through`, but never beyond the head, and then removes at most
    /// `limit` (0 counts as 1) of the entries whose number is at most the horizon, by number. An
    /// engine may remove fewer; [`Forgotten::is_all`] ends the repetition. None if there is no such
    /// feed.
    ///
    /// The horizon never decreases, and is durable before the first entry is removed. A fetch
    /// without a cursor begins at it. For a cursor below it, [`FeedPage::is_too_late`] holds of every
    /// page that may lack an entry, whatever the order of the calls. A removed key no longer counts,
    /// and when it is written again its version is greater than before. Keys that wait to be
    /// published stay.
    fn forget(
        &self,
        feed: FeedName,
        through: FeedSyncId,
        limit: usize,
    ) -> StoreFuture<Option<Forgotten>>;

    /// Replaces the mark of a feed. No effect if there is no such feed.
    fn mark_feed(&self, feed: FeedName, mark: FeedMark) -> StoreFuture<()>;

    /// At most `limit` feeds after `after`, by name. Fewer than `limit` are the last ones. Receipt subscriptions are left
    /// out: they may be a million, and a request for one names it.
    fn feeds(&self, after: Option<FeedName>, limit: usize) -> StoreFuture<Vec<FeedState>>;
}
