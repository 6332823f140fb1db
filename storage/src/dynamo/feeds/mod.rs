//! The feed tables (docs/sources.md#feed-sequences-note): many feeds in two tables.
//!
//! ```text
//! sequences  name              value, version, keys, settled
//! feeds      feed, k:{key}     version; number, unless the key waits for one
//!            feed, p:{key}     version, value: the key waits to be published
//!            feed, n:{number}  key, version, value: a published update, its number in 20 digits
//! ```
//!
//! Every change of a key is one transaction on its rows, on the condition that the version in its
//! `k` row is unchanged. A publication is one transaction, on the condition that the versions of
//! the sequence and of each key are unchanged.
//!
//! **A reader may see a transaction in part**: DynamoDB does not isolate several reads, even
//! consistent ones. A reader that saw a new `value` before the rows that were written with it would
//! skip them for ever. So readers use `settled`: a publisher raises it once its transaction was
//! answered, and no publication begins before the last one is settled. If a publisher dies between
//! the two, the next one settles its publication: it reads the numbers in a transaction, which
//! waits for an unfinished one ([`advance_visible`]).
//!
//! Architecture Invariant: only publications change `value` and `version`, only the first write of
//! a key changes `keys`, and only [`advance_visible`] changes `settled`.

mod advance_visible;
mod fetch;
mod list;
mod optimistic_retry;
mod pending;
pub(super) mod preflight;
mod publish;
mod rows;
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
        self.call(async move |client| {
            write::change(&client, &feed, &key, KeyChange::Republish).await
        })
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
