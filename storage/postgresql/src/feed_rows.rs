//! The rows of feeds, of their keys, and of expected receipts, as the rules read and write them.
//!
//! A transaction that writes holds the lock of its feed from its first look at it, so that what a rule has read stays
//! true and no commit is refused for another node's. Of several feeds, the locks are taken in the order of their names.

use std::collections::BTreeSet;

use futures_util::future::{join, try_join_all};
use state_machine::feed::UnpublishedKey;
use state_machine::{ReceiptRequest, Time, Uaid};
use storage::feeds::{
    FeedKey, FeedMark, FeedName, FeedPage, FeedState, FeedSyncId, FeedValue, Sequence, Update,
    Version,
};
use storage::receipts::ExpectedReceipt;
use storage::rules::feed_rows::{
    Attempts, CommitBounds, Committed, ExpectedChange, FeedChange, FeedRows, KeyChange, KeyRow,
    NumberedPage, PendingPage, PendingRow, Refused, SequenceChange, SequenceRow,
};
use storage::rules::feeds as rules;
use storage::store::{Cursor, PageLimit};
use tokio_postgres::Row;

use crate::client::{PostgresClient, Transaction};
use crate::connection::Connection;
use crate::error::SqlError;
use crate::sql::{Columns, Names, Param, count, exact, params};

/// Bytes of values after which a transaction numbers no further key.
const PUBLISHED_BYTES_MAX: usize = 4 << 20;

/// Receipts that one transaction decides, and rows of an ended subscription that it removes.
const DECIDED_MAX: usize = 100;

/// The bounds of one transaction: they bound how long others wait for its feed.
const BOUNDS: CommitBounds =
    CommitBounds { published: 1000, forgotten: 1000, fetched: 1000, receipts: DECIDED_MAX };

/// The rows of feeds on a connection.
pub(crate) struct Feeds<'a> {
    connection: &'a Connection,
    names: &'a Names,
    /// Whether this is a transaction that writes.
    is_writing: bool,
}

impl<'a> Feeds<'a> {
    pub(crate) fn reading(connection: &'a Connection, names: &'a Names) -> Self {
        Self { connection, names, is_writing: false }
    }

    pub(crate) fn writing(transaction: &'a Transaction<'_>) -> Self {
        let (connection, names) = (transaction.connection(), &transaction.client.names);
        Self { connection, names, is_writing: true }
    }

    async fn run(&self, template: &str, params: Vec<Param>) -> Result<Vec<Row>, SqlError> {
        self.connection.run(&self.names.query(template, params)).await
    }

    /// Sends a statement behind the lock of its feed: it sees what the holder before has written.
    async fn locked(
        &self,
        feed: &FeedName,
        template: &str,
        params: Vec<Param>,
    ) -> Result<Vec<Row>, SqlError> {
        if !self.is_writing {
            return self.run(template, params).await;
        }
        let (lock, statement) =
            (self.run(LOCK, params![feed.as_str()]), self.run(template, params));
        let (locked, rows) = join(lock, statement).await;
        locked.and(rows)
    }

    /// Writes or removes keys. Numbering leaves the values where they are.
    async fn write_keys(
        &self,
        feed: &FeedName,
        keys: &[KeyChange<'_>],
        is_numbering: bool,
    ) -> Result<(), SqlError> {
        let writes = keys.iter().map(async |of_key| {
            let names = || params![feed.as_str(), of_key.key.as_str()];
            match of_key.after {
                Some((row, _)) if is_numbering => {
                    let params = names().into_iter().chain(key_params(row)?).collect();
                    self.run(NUMBER_KEY, params).await
                }
                Some((row, value)) => {
                    self.run(PUT_KEY, put_params(feed, of_key.key, row, value)?).await
                }
                None => self.run(REMOVE_KEY, names()).await,
            }
        });
        try_join_all(writes).await.map(drop)
    }

    async fn write_sequence(
        &self,
        feed: &FeedName,
        change: SequenceChange,
    ) -> Result<(), SqlError> {
        let feed = feed.as_str();
        let (statement, params) = match change {
            SequenceChange::None => return Ok(()),
            SequenceChange::CountKey { .. } => (COUNT_KEY, params![feed]),
            SequenceChange::UncountKeys(count) => (UNCOUNT_KEYS, params![feed, count as u64]),
            SequenceChange::RecountKey => (UNCOUNT_KEYS, params![feed, -1_i64]),
            SequenceChange::Advance { to, .. } => {
                (ADVANCE, params![feed, exact(to.value.0)?, exact(to.version)?])
            }
        };
        self.run(statement, params).await.map(drop)
    }
}

impl FeedRows for Feeds<'_> {
    type Error = SqlError;

    const BOUNDS: CommitBounds = BOUNDS;

    async fn sequence(&self, feed: &FeedName) -> Result<Option<SequenceRow>, SqlError> {
        let rows = self.locked(feed, SEQUENCE, params![feed.as_str()]).await?;
        let sequence = rows.first().map(|row| decode_sequence(0, row)).transpose()?;
        Ok(sequence.map(|sequence| SequenceRow { sequence, settled: sequence.value }))
    }

    async fn key(&self, feed: &FeedName, key: &FeedKey) -> Result<Option<KeyRow>, SqlError> {
        let rows = self.locked(feed, KEY, params![feed.as_str(), key.as_str()]).await?;
        let decode = |row: &Row| {
            let number = row.number_or_none(1)?.map(FeedSyncId);
            Ok(KeyRow { version: Version(row.number(0)?), number })
        };
        rows.first().map(decode).transpose()
    }

    async fn value(
        &self,
        feed: &FeedName,
        key: &FeedKey,
        _row: KeyRow,
    ) -> Result<Option<Option<FeedValue>>, SqlError> {
        let rows = self.run(VALUE, params![feed.as_str(), key.as_str()]).await?;
        rows.first().map(|row| value(0, row)).transpose()
    }

    async fn pending(
        &self,
        feed: &FeedName,
        after: Option<&FeedKey>,
        rows: usize,
        _refused: &BTreeSet<UnpublishedKey>,
    ) -> Result<PendingPage, SqlError> {
        let after = after.map_or("", FeedKey::as_str);
        // Numbering leaves the values where they are.
        let there =
            self.locked(feed, PENDING, params![feed.as_str(), after, rows as u64 + 1]).await?;
        let mut page = PendingPage { is_all: there.len() <= rows, ..PendingPage::default() };
        for row in there.iter().take(rows) {
            let key = row.parsed(0, FeedKey::parse)?;
            let pending = UnpublishedKey { key, version: Version(row.number(1)?) };
            page.rows.push(PendingRow { pending, value: None });
        }
        page.last = page.rows.last().map(|last| last.pending.key.clone());
        Ok(page)
    }

    async fn numbered(
        &self,
        feed: &FeedName,
        after: FeedSyncId,
        last: FeedSyncId,
        limit: PageLimit,
    ) -> Result<NumberedPage, SqlError> {
        let most = limit.rows.clamp(1, BOUNDS.fetched);
        let bytes_max = limit.bytes.min(PUBLISHED_BYTES_MAX) as u64;
        let params = params![feed.as_str(), after.0, last.0, most as u64 + 1, bytes_max];
        let rows = self.run(NUMBERED, params).await?;
        let (mut page, mut bytes) = (NumberedPage { is_all: true, ..NumberedPage::default() }, 0);
        for row in &rows {
            let is_full = page.updates.len() >= most || limit.is_reached(page.updates.len(), bytes);
            // A row behind the bytes of the page has no value here.
            if is_full || !row.column::<bool>(4)? {
                page.is_all = false;
                break;
            }
            let value = value(3, row)?;
            bytes += value.as_ref().map_or(0, |value| value.as_str().len());
            page.updates.push(Update {
                feed_sync_id: FeedSyncId(row.number(0)?),
                key: row.parsed(1, FeedKey::parse)?,
                version: Version(row.number(2)?),
                value,
            });
        }
        page.last = page.updates.last().map(|last| last.feed_sync_id);
        Ok(page)
    }

    async fn raise_horizon(
        &self,
        feed: &FeedName,
        _read: &Sequence,
        raised: &Sequence,
    ) -> Result<bool, SqlError> {
        let Sequence { horizon, forgotten, .. } = *raised;
        let params = params![feed.as_str(), horizon.0, forgotten.0];
        Ok(!self.run(RAISE, params).await?.is_empty())
    }

    async fn receipts_due(
        &self,
        now: Time,
        _after: Option<Cursor>,
    ) -> Result<(Vec<ExpectedReceipt>, Option<Cursor>), SqlError> {
        let rows = self.run(DUE, params![now, DECIDED_MAX as u64]).await?;
        let mut due = rows.iter().map(decode_expected).collect::<Result<Vec<_>, _>>()?;
        due.sort_by(|one, other| one.request.subscription.cmp(&other.request.subscription));
        let next = (due.len() == DECIDED_MAX).then(|| Cursor::new(""));
        Ok((due, next))
    }

    async fn remove_ended(&self, now: Time) -> Result<(u64, bool), SqlError> {
        let names = params![FeedName::receipts_ended(Time(0)), FeedName::receipts_ended(now)];
        let rows = self.run(ENDED, names).await?;
        let Some(row) = rows.first() else { return Ok((0, false)) };
        let ended = row.parsed(0, FeedName::from_store)?;
        self.locked(&ended, SEQUENCE, params![ended.as_str()]).await?;
        for table in ["feed_keys", "receipts_expected"] {
            let params = params![ended.as_str(), DECIDED_MAX as u64];
            if count(&self.run(&REMOVE_ROWS.replace("{table}", table), params).await?)? > 0 {
                return Ok((0, true));
            }
        }
        self.run(REMOVE_SEQUENCE, params![ended.as_str()]).await?;
        Ok((1, true))
    }

    /// All conditions are looked at before the first row is written.
    async fn commit(&self, change: FeedChange<'_>) -> Result<Committed<SqlError>, SqlError> {
        let FeedChange { feed, expected, keys, sequence } = change;
        let refused = |expected| Ok(Committed::Refused(Refused { expected, ..Refused::default() }));
        let there = FeedRows::sequence(self, feed).await?;
        let is_added = matches!(expected, ExpectedChange::Add(_));
        if let ExpectedChange::Add(expected) | ExpectedChange::Remove(expected) = expected {
            let ReceiptRequest { subscription, key } = &expected.request;
            let params = params![subscription.as_str(), key.as_str()];
            let is_there = !self.run(IS_EXPECTED, params).await?.is_empty();
            if is_there == is_added {
                return refused(true);
            }
        }
        let keys_there = there.map_or(0, |there| there.sequence.keys);
        let is_refused = match sequence {
            SequenceChange::CountKey { keys_max, .. } => keys_there >= keys_max,
            SequenceChange::RecountKey => there.is_none(),
            _ => false,
        };
        if is_refused {
            return refused(false);
        }
        match expected {
            ExpectedChange::None => {}
            ExpectedChange::Add(expected) => {
                self.run(EXPECT, expected_params(expected)).await?;
            }
            ExpectedChange::Remove(expected) => {
                let ReceiptRequest { subscription, key } = &expected.request;
                self.run(EXPECT_NO_MORE, params![subscription.as_str(), key.as_str()]).await?;
            }
        }
        self.write_keys(feed, &keys, matches!(sequence, SequenceChange::Advance { .. })).await?;
        self.write_sequence(feed, sequence).await?;
        Ok(Committed::Done)
    }

    async fn next_attempt(
        &self,
        _attempts: &mut Attempts,
        _lost: Option<SqlError>,
    ) -> Result<(), SqlError> {
        Err(SqlError::corrupt("rows of a feed contradict each other"))
    }
}

/// Fetches a page, again if its connection ends.
pub(crate) async fn fetch(
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

pub(crate) async fn list(
    client: &PostgresClient,
    after: Option<&FeedName>,
    limit: usize,
) -> Result<Vec<FeedState>, SqlError> {
    let [first, last] = [Time(0), Time(u64::MAX)].map(FeedName::receipts_ended);
    let params = params![after.map_or("", FeedName::as_str), limit as u64, first, last];
    let rows = client.read(LIST, params).await?;
    rows.iter().map(decode_state).collect()
}

pub(crate) async fn mark(
    client: &PostgresClient,
    feed: &FeedName,
    FeedMark { number, at }: FeedMark,
) -> Result<(), SqlError> {
    let params = params![feed.as_str(), exact(number.0)?, at];
    client.write(Uaid([0; 16]), MARK, params).await.map(drop)
}

/// The parameters of [`PUT_KEY`].
pub(crate) fn put_params(
    feed: &FeedName,
    key: &FeedKey,
    row: KeyRow,
    value: Option<&FeedValue>,
) -> Result<Vec<Param>, SqlError> {
    let mut params = params![feed.as_str(), key.as_str()];
    params.extend(key_params(row)?);
    params.push(Param::from(value.map(|value| value.as_str().as_bytes())));
    Ok(params)
}

fn key_params(KeyRow { version, number }: KeyRow) -> Result<Vec<Param>, SqlError> {
    let number = number.map(|number| exact(number.0)).transpose()?;
    Ok(params![exact(version.0)?, number])
}

/// The parameters of [`EXPECT`].
pub(crate) fn expected_params(expected: &ExpectedReceipt) -> Vec<Param> {
    let ExpectedReceipt { request: ReceiptRequest { subscription, key }, deadline } = expected;
    params![subscription.as_str(), key.as_str(), *deadline]
}

pub(crate) fn decode_expected(row: &Row) -> Result<ExpectedReceipt, SqlError> {
    let subscription = row.parsed(0, FeedName::from_store)?;
    let key = row.parsed(1, FeedKey::parse)?;
    let deadline = Time(row.number(2)?);
    Ok(ExpectedReceipt { request: ReceiptRequest { subscription, key }, deadline })
}

/// Reads the columns of [`LIST`].
pub(crate) fn decode_state(row: &Row) -> Result<FeedState, SqlError> {
    Ok(FeedState { name: row.parsed(0, FeedName::from_store)?, sequence: decode_sequence(1, row)? })
}

fn decode_sequence(at: usize, row: &Row) -> Result<Sequence, SqlError> {
    let mark = match row.number_or_none(at + 5)? {
        None => None,
        Some(number) => {
            let at = Time(row.number_or_none(at + 6)?.unwrap_or_default());
            Some(FeedMark { number: FeedSyncId(number), at })
        }
    };
    Ok(Sequence {
        value: FeedSyncId(row.number(at)?),
        version: row.number(at + 1)?,
        keys: row.number(at + 2)?,
        horizon: FeedSyncId(row.number(at + 3)?),
        forgotten: Version(row.number(at + 4)?),
        mark,
    })
}

/// None of a deleted key.
pub(crate) fn value(at: usize, row: &Row) -> Result<Option<FeedValue>, SqlError> {
    let Some(bytes) = row.column::<Option<&[u8]>>(at)? else { return Ok(None) };
    let unreadable = |_| SqlError::corrupt("the value of a feed");
    let text = std::str::from_utf8(bytes).map_err(unreadable)?;
    FeedValue::parse(text).map(Some).map_err(|error| SqlError::corrupt(&error.to_string()))
}

const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";

const SEQUENCE: &str = "
    SELECT value, version, keys, horizon, forgotten, mark, marked_at FROM {s}.sequences WHERE name = $1";

const KEY: &str = "SELECT version, feed_sync_id FROM {s}.feed_keys WHERE feed = $1 AND key = $2";

const VALUE: &str = "SELECT value FROM {s}.feed_keys WHERE feed = $1 AND key = $2";

const PENDING: &str = "
    SELECT key, version FROM {s}.feed_keys
    WHERE feed = $1 AND key > $2 AND feed_sync_id IS NULL ORDER BY key LIMIT $3";

/// The fifth column is whether the row begins within the bytes of the page; else its value is left out.
const NUMBERED: &str = "
    SELECT feed_sync_id, key, version, CASE WHEN before <= $5 THEN value END, before <= $5
    FROM (
        SELECT feed_sync_id, key, version, value,
            sum(coalesce(length(value), 0)) OVER (ORDER BY feed_sync_id) - coalesce(length(value), 0) AS before
        FROM (
            SELECT feed_sync_id, key, version, value FROM {s}.feed_keys
            WHERE feed = $1 AND feed_sync_id > $2 AND feed_sync_id <= $3 ORDER BY feed_sync_id LIMIT $4) page
        ) sized
    ORDER BY feed_sync_id";

pub(crate) const PUT_KEY: &str = "
    INSERT INTO {s}.feed_keys (feed, key, version, feed_sync_id, value) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (feed, key) DO UPDATE SET
        version = excluded.version, feed_sync_id = excluded.feed_sync_id, value = excluded.value";

const NUMBER_KEY: &str = "
    UPDATE {s}.feed_keys SET version = $3, feed_sync_id = $4 WHERE feed = $1 AND key = $2";

const REMOVE_KEY: &str = "DELETE FROM {s}.feed_keys WHERE feed = $1 AND key = $2";

const COUNT_KEY: &str = "
    INSERT INTO {s}.sequences AS s (name, value, version, keys) VALUES ($1, 0, 0, 1)
    ON CONFLICT (name) DO UPDATE SET keys = s.keys + 1";

const UNCOUNT_KEYS: &str = "UPDATE {s}.sequences SET keys = keys - $2 WHERE name = $1";

const ADVANCE: &str = "UPDATE {s}.sequences SET value = $2, version = $3 WHERE name = $1";

const RAISE: &str = "
    UPDATE {s}.sequences SET horizon = $2, forgotten = $3 WHERE name = $1 RETURNING 1";

const MARK: &str = "UPDATE {s}.sequences SET mark = $2, marked_at = $3 WHERE name = $1";

const LIST: &str = "
    SELECT name, value, version, keys, horizon, forgotten, mark, marked_at
    FROM {s}.sequences WHERE name > $1 AND name NOT BETWEEN $3 AND $4 ORDER BY name LIMIT $2";

const ENDED: &str = "
    SELECT name FROM {s}.sequences WHERE name > $1 AND name < $2 ORDER BY name LIMIT 1";

const REMOVE_ROWS: &str = "
    WITH gone AS (DELETE FROM {s}.{table} WHERE feed = $1 AND key IN (
        SELECT key FROM {s}.{table} WHERE feed = $1 LIMIT $2) RETURNING 1)
    SELECT count(*) FROM gone";

const REMOVE_SEQUENCE: &str = "DELETE FROM {s}.sequences WHERE name = $1";

const DUE: &str = "
    SELECT feed, key, deadline FROM {s}.receipts_expected WHERE deadline <= $1
    ORDER BY deadline LIMIT $2";

const IS_EXPECTED: &str = "SELECT 1 FROM {s}.receipts_expected WHERE feed = $1 AND key = $2";

pub(crate) const EXPECT: &str = "
    INSERT INTO {s}.receipts_expected (feed, key, deadline) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";

const EXPECT_NO_MORE: &str = "DELETE FROM {s}.receipts_expected WHERE feed = $1 AND key = $2";
