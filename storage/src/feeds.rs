//! The contract of the feed tables (seed 004). `tests/conformance` runs each sentence of it on each engine;
//! [`state_machine::feed::Table`] is the same as a value.
//!
//! What [`store`](crate::store) says of every call holds here too. Many nodes write and publish at
//! the same time.

pub use state_machine::feed::{
    FeedKey, FeedName, FeedPage, FeedSyncId, FeedValue, PublishResult, Sequence, Update, Version,
    WriteResult,
};
use state_machine::store::PageLimit;

use crate::store::StoreFuture;

/// A feed as a list of them shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedState {
    /// Its name.
    pub name: FeedName,
    /// The row of its sequence.
    pub sequence: Sequence,
}

/// The feeds of a store: keys with value, version and `feed_sync_id`, and the sequences that number them.
///
/// A feed is there from its first write on. Its numbers only grow: also across restarts, with publishers
/// at once, and where the key with the last number is published again.
pub trait FeedTables: Send + Sync {
    /// Makes the tables if they are not there. What is in them stays.
    fn ensure_feeds(&self) -> StoreFuture<()>;

    /// Sets a key, and in the same transaction takes its number away: it waits to be published. A key that would be
    /// one more than `keys_max` is not written; those that were deleted count. Of writers at once each is told a
    /// version of its own, and the value of the greatest stays.
    fn write_key(
        &self,
        feed: FeedName,
        key: FeedKey,
        value: FeedValue,
        keys_max: u64,
    ) -> StoreFuture<WriteResult>;

    /// Takes a key's number away and changes nothing else of it but its version: it is published again as it is,
    /// also where it was deleted. None where there is no such feed or the key was never written.
    fn republish_key(&self, feed: FeedName, key: FeedKey) -> StoreFuture<Option<Version>>;

    /// Deletes a key. What is left of it waits to be published, so that consumers see it. None where there is nothing
    /// to delete.
    fn delete_key(&self, feed: FeedName, key: FeedKey) -> StoreFuture<Option<Version>>;

    /// Gives at most `limit` (0 counts as 1) of the keys that wait, those after `after` in the order of the keys, the
    /// next numbers of the sequence, all in one transaction. An engine may give fewer than `limit`, also none:
    /// [`PublishResult::next`] says whether to go on, and is behind `after`. None where there is no such feed.
    ///
    /// With `limit` 1 it is the seed's publish, steps 1 to 4.
    fn publish(
        &self,
        feed: FeedName,
        after: Option<FeedKey>,
        limit: usize,
    ) -> StoreFuture<Option<PublishResult>>;

    /// The updates behind `after`, by number. A key that changed since the number it had is not among
    /// them before it is published again. Every number up to the page's cursor was assigned before the page was
    /// read: none is seen before a lesser one that is still to come. A page holds no more than `limit`; an
    /// engine may give fewer, also none: the page's cursor says whether to go on, and is greater than `after` where the head
    /// is. A cursor from the future (`after` greater than the page's head) gets an empty page whose cursor is `after`.
    /// None where there is no such feed.
    fn fetch_feed(
        &self,
        feed: FeedName,
        after: FeedSyncId,
        limit: PageLimit,
    ) -> StoreFuture<Option<FeedPage>>;

    /// At most `limit` feeds by name, those after `after`. Fewer are the last of them.
    fn feeds(&self, after: Option<FeedName>, limit: usize) -> StoreFuture<Vec<FeedState>>;
}
