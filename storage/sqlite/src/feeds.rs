//! The contract of feeds: the rule of each method, in a job of the writer or in a read.

use storage::data_dir::FileKey;
use storage::feeds::{
    FeedKey, FeedMark, FeedName, FeedPage, FeedState, FeedSyncId, FeedTables, FeedValue, Forgotten,
    PublishResult, Version, WriteResult,
};
use storage::rules::feeds::{self as rules, Rewrite};
use storage::rules::finished;
use storage::sql::feeds as sql;
use storage::sql::rows::SqlRow;
use storage::store::{PageLimit, StoreFuture, answered};

use crate::Embedded;
use crate::columns::too_large;
use crate::router_file::RouterFile;
use crate::sql_rows::query;

impl FeedTables for Embedded {
    /// The tables are part of the router's file.
    fn ensure_feeds(&self) -> StoreFuture<()> {
        answered(Ok(()))
    }

    fn write_key(
        &self,
        feed: FeedName,
        key: FeedKey,
        value: FeedValue,
        keys_max: u64,
    ) -> StoreFuture<WriteResult> {
        self.write(None, FileKey::Router, move |conn| {
            finished(rules::write(&RouterFile(conn), &feed, &key, &value, keys_max))
        })
    }

    fn republish_key(&self, feed: FeedName, key: FeedKey) -> StoreFuture<Option<Version>> {
        self.write(None, FileKey::Router, move |conn| {
            finished(rules::rewrite(&RouterFile(conn), &feed, &key, Rewrite::Republish))
        })
    }

    fn delete_key(&self, feed: FeedName, key: FeedKey) -> StoreFuture<Option<Version>> {
        self.write(None, FileKey::Router, move |conn| {
            finished(rules::rewrite(&RouterFile(conn), &feed, &key, Rewrite::Delete))
        })
    }

    fn publish(
        &self,
        feed: FeedName,
        after: Option<FeedKey>,
        limit: usize,
    ) -> StoreFuture<Option<PublishResult>> {
        self.write(None, FileKey::Router, move |conn| {
            finished(rules::publish(&RouterFile(conn), &feed, after.as_ref(), limit))
        })
    }

    fn fetch_feed(
        &self,
        feed: FeedName,
        after: FeedSyncId,
        limit: PageLimit,
    ) -> StoreFuture<Option<FeedPage>> {
        self.read(FileKey::Router, |conn| {
            finished(rules::fetch(&RouterFile(conn), &feed, after, limit))
        })
    }

    fn forget(
        &self,
        feed: FeedName,
        through: FeedSyncId,
        limit: usize,
    ) -> StoreFuture<Option<Forgotten>> {
        self.write(None, FileKey::Router, move |conn| {
            finished(rules::forget(&RouterFile(conn), &feed, through, limit))
        })
    }

    fn mark_feed(&self, feed: FeedName, mark: FeedMark) -> StoreFuture<()> {
        self.write(None, FileKey::Router, move |conn| {
            let (statement, values) = sql::mark(&feed, mark).map_err(too_large)?;
            query(conn, statement, &values).map(drop)
        })
    }

    fn feeds(&self, after: Option<FeedName>, limit: usize) -> StoreFuture<Vec<FeedState>> {
        self.read(FileKey::Router, |conn| {
            let (statement, values) = sql::list(after.as_ref(), limit);
            query(conn, statement, &values)?.iter().map(|row| row.feed_state(0)).collect()
        })
    }
}
