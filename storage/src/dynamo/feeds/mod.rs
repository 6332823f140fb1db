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
//! reads those numbers in a transaction, which waits for one that is still under way ([`settle`]).
//!
//! Architecture Invariant: `value` and `version` are changed only by publications, `keys` only by the first write of
//! a key, `settled` only by [`settle`].

mod contest;
mod fetch;
mod held;
mod list;
mod pending;
pub(super) mod preflight;
mod publish;
mod rows;
mod settle;
mod transact;
mod write;

use state_machine::store::PageLimit;

use self::write::Change;
use super::{Dynamo, tables};
use crate::contract::Answer;
use crate::feeds::{
    FeedKey, FeedName, FeedPage, FeedState, FeedSyncId, FeedTables, FeedValue, Published, Version,
    Written,
};

impl FeedTables for Dynamo {
    fn ensure_feeds(&self) -> Answer<()> {
        self.ask(async move |link| tables::ensure_feeds(&link).await)
    }

    fn write_key(
        &self,
        feed: FeedName,
        key: FeedKey,
        value: FeedValue,
        keys_max: u64,
    ) -> Answer<Written> {
        self.ask(async move |link| write::write(&link, &feed, &key, &value, keys_max).await)
    }

    fn republish_key(&self, feed: FeedName, key: FeedKey) -> Answer<Option<Version>> {
        self.ask(async move |link| write::change(&link, &feed, &key, Change::Nothing).await)
    }

    fn delete_key(&self, feed: FeedName, key: FeedKey) -> Answer<Option<Version>> {
        self.ask(async move |link| write::change(&link, &feed, &key, Change::Delete).await)
    }

    fn publish(
        &self,
        feed: FeedName,
        after: Option<FeedKey>,
        limit: usize,
    ) -> Answer<Option<Published>> {
        self.ask(async move |link| publish::publish(&link, &feed, after.as_ref(), limit).await)
    }

    fn fetch_feed(
        &self,
        feed: FeedName,
        after: FeedSyncId,
        limit: PageLimit,
    ) -> Answer<Option<FeedPage>> {
        self.ask(async move |link| fetch::fetch(&link, &feed, after, limit).await)
    }

    fn feeds(&self, after: Option<FeedName>, limit: usize) -> Answer<Vec<FeedState>> {
        self.ask(async move |link| list::list(&link, after.as_ref(), limit).await)
    }
}
