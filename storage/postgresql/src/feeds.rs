//! The contract of feeds: the rule of each method, in a transaction or in a read.

use state_machine::feed::FeedMark;
use storage::feeds::{
    FeedKey, FeedName, FeedPage, FeedState, FeedSyncId, FeedTables, FeedValue, Forgotten,
    PublishResult, Version, WriteResult,
};
use storage::rules::feeds::{self as rules, Rewrite};
use storage::store::{PageLimit, StoreFuture, answered};

use crate::Postgres;
use crate::client::{PostgresClient, transact};
use crate::error::SqlError;
use crate::feed_rows::{Feeds, list, mark};

impl FeedTables for Postgres {
    /// The tables are made with the router table.
    fn ensure_feeds(&self) -> StoreFuture<()> {
        answered(Ok(()))
    }

    calls! {
        write_key(feed: FeedName, key: FeedKey, value: FeedValue, keys_max: u64) -> WriteResult =
            |client| async { transact!(client, |transaction| rules::write(&Feeds::writing(&transaction), &feed, &key, &value, keys_max).await) };

        republish_key(feed: FeedName, key: FeedKey) -> Option<Version> =
            |client| rewrite(client, &feed, &key, Rewrite::Republish);

        delete_key(feed: FeedName, key: FeedKey) -> Option<Version> =
            |client| rewrite(client, &feed, &key, Rewrite::Delete);

        publish(feed: FeedName, after: Option<FeedKey>, limit: usize) -> Option<PublishResult> =
            |client| async { transact!(client, |transaction| rules::publish(&Feeds::writing(&transaction), &feed, after.as_ref(), limit).await) };

        fetch_feed(feed: FeedName, after: FeedSyncId, limit: PageLimit) -> Option<FeedPage> =
            |client| fetch(client, &feed, after, limit);

        forget(feed: FeedName, through: FeedSyncId, limit: usize) -> Option<Forgotten> =
            |client| async { transact!(client, |transaction| rules::forget(&Feeds::writing(&transaction), &feed, through, limit).await) };

        mark_feed(feed: FeedName, at: FeedMark) -> () = |client| mark(client, &feed, at);

        feeds(after: Option<FeedName>, limit: usize) -> Vec<FeedState> =
            |client| list(client, after.as_ref(), limit);
    }
}

async fn rewrite(
    client: &PostgresClient,
    feed: &FeedName,
    key: &FeedKey,
    rewrite: Rewrite,
) -> Result<Option<Version>, SqlError> {
    transact!(client, |transaction| rules::rewrite(
        &Feeds::writing(&transaction),
        feed,
        key,
        rewrite
    )
    .await)
}

/// Read again if its connection ends.
async fn fetch(
    client: &PostgresClient,
    feed: &FeedName,
    after: FeedSyncId,
    limit: PageLimit,
) -> Result<Option<FeedPage>, SqlError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let connection = client.any_reader().await?;
        let rows = Feeds::reading(&connection, &client.names);
        match rules::fetch(&rows, feed, after, limit).await {
            Err(error) if client.may_repeat(&error, attempt) => client.pause(attempt).await,
            done => return done,
        }
    }
}
