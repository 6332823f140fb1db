//! The tables of feeds on a connection.
//!
//! A transaction that writes holds the lock of its feed from its first look at it, so that what a rule has read stays
//! true and no commit is refused for another node's. Of several feeds, the locks are taken in the order of their names.

use futures_util::future::join;
use storage::feeds::{FeedMark, FeedName, FeedPage, FeedState, FeedSyncId};
use storage::rules::feed_rows::CommitBounds;
use storage::rules::feeds as rules;
use storage::sql::feeds::{self, SqlFeeds};
use storage::sql::rows::SqlRow;
use storage::sql::values::Value;
use storage::store::PageLimit;

use crate::client::{NO_AGENT, PostgresClient, Transaction, repeated};
use crate::connection::Connection;
use crate::error::{Result, SqlError};
use crate::sql::{Names, Row, params};

/// Bytes of values in one page of updates.
const FETCHED_BYTES_MAX: usize = 4 << 20;

/// The rows of feeds on a connection.
pub(crate) struct Feeds<'a> {
    connection: &'a Connection,
    names: &'a Names,
    /// Whether this is a transaction that writes.
    is_writing: bool,
}

impl<'a> Feeds<'a> {
    pub(crate) fn writing(transaction: &'a Transaction<'_>) -> Self {
        let (connection, names) = (&transaction.connection, &transaction.client.names);
        Self { connection, names, is_writing: true }
    }
}

impl SqlFeeds for Feeds<'_> {
    type Failure = SqlError;
    type Row = Row;

    /// They bound how long others wait for the feed.
    const COMMIT: CommitBounds =
        CommitBounds { published: 1000, forgotten: 1000, fetched: 1000, receipts: 100 };

    /// Numbering leaves a large value where it is.
    const NUMBERED_BYTES_MAX: usize = usize::MAX;

    async fn query(&self, statement: &'static str, values: Vec<Value<'_>>) -> Result<Vec<Row>> {
        self.connection.run(&self.names.query(None, statement, values)).await
    }

    /// Sends a statement behind the lock of its feed: it sees what the holder before has written.
    async fn locked(
        &self,
        feed: &FeedName,
        statement: &'static str,
        values: Vec<Value<'_>>,
    ) -> Result<Vec<Row>> {
        if !self.is_writing {
            return self.query(statement, values).await;
        }
        let Self { connection, names, .. } = self;
        let lock = names.query(None, LOCK, params![feed.as_str()]);
        let query = names.query(None, statement, values);
        // What is prepared already would be sent before what is not.
        let (of_lock, of_query) =
            (connection.prepare(&lock).await?, connection.prepare(&query).await?);
        let (lock, query) = ([&lock], [&query]);
        let locked = connection.run_prepared(&lock, of_lock.as_ref());
        let rows = connection.run_prepared(&query, of_query.as_ref());
        let (locked, rows) = join(locked, rows).await;
        locked.and(rows)
    }

    async fn numbered_rows(
        &self,
        mut values: Vec<Value<'_>>,
        bytes_max: usize,
    ) -> Result<Vec<Row>> {
        values.push(Value::from(bytes_max.min(FETCHED_BYTES_MAX) as u64));
        self.query(NUMBERED, values).await
    }

    fn corrupt(what: &str) -> SqlError {
        SqlError::corrupt(what)
    }
}

/// Fetches a page, again if its connection ends.
pub(crate) async fn fetch(
    client: &PostgresClient,
    feed: &FeedName,
    after: FeedSyncId,
    limit: PageLimit,
) -> Result<Option<FeedPage>> {
    repeated!(async {
        let connection = &*client.any_reader().await?;
        let rows = Feeds { connection, names: &client.names, is_writing: false };
        rules::fetch(&rows, feed, after, limit).await
    })
}

pub(crate) async fn list(
    client: &PostgresClient,
    after: Option<&FeedName>,
    limit: usize,
) -> Result<Vec<FeedState>> {
    let (statement, values) = feeds::list(after, limit);
    let rows = client.read(None, statement, values).await?;
    rows.iter().map(|row| row.feed_state(0)).collect()
}

pub(crate) async fn mark(client: &PostgresClient, feed: &FeedName, mark: FeedMark) -> Result<()> {
    let (statement, values) = feeds::mark(feed, mark)?;
    client.write(NO_AGENT, None, statement, values).await.map(drop)
}

const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";

const NUMBERED: &str = "
    SELECT feed_sync_id, key, version, CASE WHEN before <= $5 THEN value END, (before <= $5)::int
    FROM (
        SELECT feed_sync_id, key, version, value,
            sum(coalesce(length(value), 0)) OVER (ORDER BY feed_sync_id) - coalesce(length(value), 0) AS before
        FROM (
            SELECT feed_sync_id, key, version, value FROM {s}.feed_keys
            WHERE feed = $1 AND feed_sync_id > $2 AND feed_sync_id <= $3 ORDER BY feed_sync_id LIMIT $4) page
        ) sized
    ORDER BY feed_sync_id";
