//! The feed tables (seed 004): many feeds in two tables.
//!
//! ```text
//! sequences  name              value, version, keys, settled
//! feeds      feed, k:{key}     version; number, unless it waits for one
//!            feed, p:{key}     version, value: it waits to be published
//!            feed, n:{number}  key, version, value: what readers read, by 20 digits
//! ```
//!
//! Every change of a key is one transaction on its rows, on the condition that its `k` row has the version that was
//! read. A publication is one transaction on the condition that the sequence has the version that was read, and each
//! of its keys too.
//!
//! **A reader may see a transaction in part**: DynamoDB promises no more of several reads, also where each of them is
//! consistent. One that saw a new `value`, and not yet the rows that were written with it, would pass them for good.
//! So readers go by `settled`: a publisher raises it once its transaction was answered, and no publication begins
//! before the last one is settled. What a publisher left behind that died between the two is settled by the next: it
//! reads those numbers in a transaction, which waits for one that is still under way ([`advance_visible`]).
//!
//! Architecture Invariant: `value` and `version` are changed only by publications, `keys` only by the first write of
//! a key, `settled` only by [`advance_visible`].

mod advance_visible;
mod fetch;
mod list;
mod optimistic_retry;
mod pending;
pub(super) mod preflight;
mod publish;
mod rows;
mod stored_value;
mod transact;
mod write;

use state_machine::store::PageLimit;

use self::write::KeyChange;
use super::{Dynamo, tables};
use crate::feeds::{
    FeedKey, FeedName, FeedPage, FeedState, FeedSyncId, FeedTables, FeedValue, PublishResult,
    Version, WriteResult,
};
use crate::store::StoreFuture;

impl FeedTables for Dynamo {
    fn ensure_feeds(&self) -> StoreFuture<()> {
        self.call(async move |client| tables::ensure_feeds(&client).await)
    }

    fn write_key(
        &self,
        feed: FeedName,
        key: FeedKey,
        value: FeedValue,
        keys_max: u64,
    ) -> StoreFuture<WriteResult> {
        self.call(async move |client| write::write(&client, &feed, &key, &value, keys_max).await)
    }

    fn republish_key(&self, feed: FeedName, key: FeedKey) -> StoreFuture<Option<Version>> {
        self.call(async move |client| write::change(&client, &feed, &key, KeyChange::Nothing).await)
    }

    fn delete_key(&self, feed: FeedName, key: FeedKey) -> StoreFuture<Option<Version>> {
        self.call(async move |client| write::change(&client, &feed, &key, KeyChange::Delete).await)
    }

    fn publish(
        &self,
        feed: FeedName,
        after: Option<FeedKey>,
        limit: usize,
    ) -> StoreFuture<Option<PublishResult>> {
        self.call(async move |client| publish::publish(&client, &feed, after.as_ref(), limit).await)
    }

    fn fetch_feed(
        &self,
        feed: FeedName,
        after: FeedSyncId,
        limit: PageLimit,
    ) -> StoreFuture<Option<FeedPage>> {
        self.call(async move |client| fetch::fetch(&client, &feed, after, limit).await)
    }

    fn feeds(&self, after: Option<FeedName>, limit: usize) -> StoreFuture<Vec<FeedState>> {
        self.call(async move |client| list::list(&client, after.as_ref(), limit).await)
    }
}
