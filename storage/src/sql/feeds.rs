//! The rows of feeds, of their keys, and of expected receipts, as the rules read and write them.

use std::collections::BTreeSet;

use futures_util::future::try_join_all;
use state_machine::Time;
use state_machine::feed::UnpublishedKey;

use super::Statement;
use super::rows::SqlRow;
use super::values::{self, TooLarge, Value, exact, values};
use crate::feeds::{FeedKey, FeedMark, FeedName, FeedSyncId, FeedValue, Sequence, Update, Version};
use crate::receipts::ExpectedReceipt;
use crate::rules::feed_rows::{
    Attempts, CommitBounds, Committed, ExpectedChange, FeedChange, FeedRows, KeyChange, KeyRow,
    NumberedPage, PendingPage, PendingRow, Refused, SequenceChange, SequenceRow,
};
use crate::store::{Cursor, PageLimit};

/// The tables of feeds, which nothing else changes while a rule runs.
#[expect(
    async_fn_in_trait,
    reason = "whether a rule is Send depends on its engine, and callers see it"
)]
pub trait SqlFeeds {
    type Failure;
    type Row: SqlRow<Error = Self::Failure>;

    /// The bounds of one commit.
    const COMMIT: CommitBounds;

    /// Bytes of values after which one commit numbers no further key.
    const NUMBERED_BYTES_MAX: usize;

    /// The rows that a statement returns. One that changes rows returns them if it says so.
    async fn query(
        &self,
        statement: &'static str,
        values: Vec<Value<'_>>,
    ) -> Result<Vec<Self::Row>, Self::Failure>;

    /// The same with a statement that is the first one of a rule on this feed.
    async fn locked(
        &self,
        feed: &FeedName,
        statement: &'static str,
        values: Vec<Value<'_>>,
    ) -> Result<Vec<Self::Row>, Self::Failure> {
        let _ = feed;
        self.query(statement, values).await
    }

    /// Number, key, version and value of numbered keys, by number. The values are the feed, the number before the first one, the
    /// last number and the most rows. The fifth column is 0 if the value is left out, as those before it have `bytes_max` bytes.
    async fn numbered_rows(
        &self,
        values: Vec<Value<'_>>,
        bytes_max: usize,
    ) -> Result<Vec<Self::Row>, Self::Failure>;

    /// The error of a value that this program does not write.
    fn corrupt(what: &str) -> Self::Failure;
}

impl<T: SqlFeeds> FeedRows for T {
    type Error = T::Failure;

    const BOUNDS: CommitBounds = T::COMMIT;

    async fn sequence(&self, feed: &FeedName) -> Result<Option<SequenceRow>, T::Failure> {
        let rows = self.locked(feed, SEQUENCE, values![feed]).await?;
        let sequence = rows.first().map(|row| row.sequence(0)).transpose()?;
        Ok(sequence.map(|sequence| SequenceRow { sequence, settled: sequence.value }))
    }

    async fn key(&self, feed: &FeedName, key: &FeedKey) -> Result<Option<KeyRow>, T::Failure> {
        let rows = self.locked(feed, KEY, values![feed, key]).await?;
        rows.first().map(|row| row.key_row(0)).transpose()
    }

    async fn value(
        &self,
        feed: &FeedName,
        key: &FeedKey,
        _row: KeyRow,
    ) -> Result<Option<Option<FeedValue>>, T::Failure> {
        let rows = self.query(VALUE, values![feed, key]).await?;
        rows.first().map(|row| row.feed_value(0)).transpose()
    }

    /// Numbering leaves the values where they are.
    async fn pending(
        &self,
        feed: &FeedName,
        after: Option<&FeedKey>,
        rows: usize,
        _refused: &BTreeSet<UnpublishedKey>,
    ) -> Result<PendingPage, T::Failure> {
        let after = after.map_or("", FeedKey::as_str);
        let there = self.locked(feed, PENDING, values![feed, after, rows as u64 + 1]).await?;
        let (mut page, mut bytes) = (PendingPage { is_all: true, ..PendingPage::default() }, 0);
        for row in &there {
            if page.rows.len() >= rows || bytes >= T::NUMBERED_BYTES_MAX {
                page.is_all = false;
                break;
            }
            let version = Version(row.assigned_here(1)?);
            let pending = UnpublishedKey { key: row.feed_key(0)?, version };
            bytes += row.number(2)? as usize;
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
    ) -> Result<NumberedPage, T::Failure> {
        let most = limit.rows.clamp(1, T::COMMIT.fetched);
        let values = values![feed, after.0, last.0, (most as u64).saturating_add(1)];
        let rows = self.numbered_rows(values, limit.bytes).await?;
        let (mut page, mut bytes) = (NumberedPage { is_all: true, ..NumberedPage::default() }, 0);
        for row in &rows {
            let is_full = page.updates.len() >= most || limit.is_reached(page.updates.len(), bytes);
            if is_full || row.integer(4)? == Some(0) {
                page.is_all = false;
                break;
            }
            let value = row.feed_value(3)?;
            bytes += value.as_ref().map_or(0, |value| value.as_str().len());
            page.updates.push(Update {
                feed_sync_id: FeedSyncId(row.assigned_here(0)?),
                key: row.feed_key(1)?,
                version: Version(row.assigned_here(2)?),
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
    ) -> Result<bool, T::Failure> {
        let values = values![feed, raised.horizon.0, raised.forgotten.0];
        Ok(!self.query(RAISE, values).await?.is_empty())
    }

    /// In the order in which the feeds are locked. A call removes them, so that the next one has others.
    async fn receipts_due(
        &self,
        now: Time,
        _after: Option<Cursor>,
    ) -> Result<(Vec<ExpectedReceipt>, Option<Cursor>), T::Failure> {
        let rows = self.query(DUE, values![now, T::COMMIT.receipts as u64]).await?;
        let due = rows.iter().map(|row| row.expected_receipt(0));
        let mut due = due.collect::<Result<Vec<_>, _>>()?;
        due.sort_by(|one, other| one.request.subscription.cmp(&other.request.subscription));
        let next = (due.len() == T::COMMIT.receipts).then(|| Cursor::new(""));
        Ok((due, next))
    }

    async fn remove_ended(&self, now: Time) -> Result<(u64, bool), T::Failure> {
        let names = values![FeedName::receipts_ended(Time(0)), FeedName::receipts_ended(now)];
        let rows = self.query(ENDED, names).await?;
        let Some(ended) = rows.first().map(|row| row.feed_name(0)).transpose()? else {
            return Ok((0, false));
        };
        for statement in [REMOVE_KEYS, REMOVE_EXPECTED] {
            let values = values![&ended, T::COMMIT.receipts as u64];
            if !self.locked(&ended, statement, values).await?.is_empty() {
                return Ok((0, true));
            }
        }
        self.query(REMOVE_SEQUENCE, values![&ended]).await?;
        Ok((1, true))
    }

    /// Writes the first row when all conditions hold. What a rule has read of its feed is still there.
    async fn commit(&self, change: FeedChange<'_>) -> Result<Committed<T::Failure>, T::Failure> {
        let FeedChange { feed, expected, keys, sequence } = change;
        let refused = |expected| Ok(Committed::Refused(Refused { expected, ..Refused::default() }));
        if let ExpectedChange::Add(ExpectedReceipt { request, .. }) = expected {
            let names = values![feed, &request.key];
            if !self.locked(feed, IS_EXPECTED, names).await?.is_empty() {
                return refused(true);
            }
        }
        if let SequenceChange::CountKey { .. } | SequenceChange::RecountKey = sequence {
            let rows = self.query(SEQUENCE, values![feed]).await?;
            let there = rows.first().map(|row| row.sequence(0)).transpose()?;
            let is_refused = match sequence {
                SequenceChange::CountKey { keys_max, .. } => {
                    there.is_some_and(|there| there.keys >= keys_max)
                }
                _ => there.is_none(),
            };
            if is_refused {
                return refused(false);
            }
        }
        let (statement, values) = match expected {
            ExpectedChange::None => ("", Vec::new()),
            ExpectedChange::Add(expected) => (EXPECT, values::expected_receipt(expected)),
            ExpectedChange::Remove(ExpectedReceipt { request, .. }) => {
                (EXPECT_NO_MORE, values![feed, &request.key])
            }
        };
        if !statement.is_empty() && self.locked(feed, statement, values).await?.is_empty() {
            return refused(true);
        }
        write(self, feed, &keys, sequence).await.map(|()| Committed::Done)
    }

    async fn next_attempt(
        &self,
        _attempts: &mut Attempts,
        _lost: Option<T::Failure>,
    ) -> Result<(), T::Failure> {
        Err(T::corrupt("rows of a feed contradict each other"))
    }
}

/// Writes the rows of keys, and then that of the sequence.
async fn write<T: SqlFeeds>(
    tables: &T,
    feed: &FeedName,
    keys: &[KeyChange<'_>],
    sequence: SequenceChange,
) -> Result<(), T::Failure> {
    let too_large = |error: TooLarge| T::corrupt(&error.to_string());
    let is_numbering = matches!(sequence, SequenceChange::Advance { .. });
    let keys = keys.iter().map(|key| of_key(feed, key, is_numbering));
    let keys = keys.collect::<Result<Vec<_>, _>>().map_err(too_large)?;
    let keys = keys.into_iter().map(|(statement, values)| tables.query(statement, values));
    try_join_all(keys.collect::<Vec<_>>()).await?;
    let (statement, values) = match sequence {
        SequenceChange::None => return Ok(()),
        SequenceChange::CountKey { .. } => (COUNT_KEY, values![feed]),
        SequenceChange::UncountKeys(count) => (UNCOUNT_KEYS, values![feed, count as u64]),
        SequenceChange::RecountKey => (UNCOUNT_KEYS, values![feed, -1_i64]),
        SequenceChange::Advance { to, .. } => {
            let numbers = exact(to.value.0).and_then(|value| Ok([value, exact(to.version)?]));
            let [value, version] = numbers.map_err(too_large)?;
            (ADVANCE, vec![feed.into(), value, version])
        }
    };
    tables.query(statement, values).await.map(drop)
}

/// Numbering leaves the value where it is.
fn of_key<'a>(
    feed: &'a FeedName,
    change: &KeyChange<'a>,
    is_numbering: bool,
) -> Result<Statement<'a>, TooLarge> {
    match change.after {
        None => Ok((REMOVE_KEY, values![feed, change.key])),
        Some((row, _)) if is_numbering => {
            Ok((NUMBER_KEY, values::feed_key(feed, change.key, row)?))
        }
        Some((row, value)) => put_key(feed, change.key, row, value),
    }
}

/// Writes the row of a key, whatever is there.
pub(super) fn put_key<'a>(
    feed: &'a FeedName,
    key: &'a FeedKey,
    row: KeyRow,
    value: Option<&'a FeedValue>,
) -> Result<Statement<'a>, TooLarge> {
    let mut values = values::feed_key(feed, key, row)?;
    values.push(value.into());
    Ok((PUT_KEY, values))
}

/// A page of the feeds after one, without the receipt subscriptions.
pub fn list(after: Option<&FeedName>, limit: usize) -> Statement<'_> {
    let [first, last] = [Time(0), Time(u64::MAX)].map(FeedName::receipts_ended);
    (LIST, values![after.map_or("", FeedName::as_str), limit as u64, first, last])
}

/// Replaces the mark of a feed that is there.
pub fn mark(feed: &FeedName, mark: FeedMark) -> Result<Statement<'_>, TooLarge> {
    Ok((MARK, vec![feed.into(), exact(mark.number.0)?, mark.at.into()]))
}

const SEQUENCE: &str = "
    SELECT value, version, keys, horizon, forgotten, mark, marked_at
    FROM main.sequences WHERE name = ?1";

const KEY: &str = "SELECT version, feed_sync_id FROM main.feed_keys WHERE feed = ?1 AND key = ?2";

const VALUE: &str = "SELECT value FROM main.feed_keys WHERE feed = ?1 AND key = ?2";

const PENDING: &str = "
    SELECT key, version, coalesce(octet_length(value), 0) FROM main.feed_keys
    WHERE feed = ?1 AND key > ?2 AND feed_sync_id IS NULL ORDER BY key LIMIT ?3";

const PUT_KEY: &str = "
    INSERT INTO main.feed_keys (feed, key, version, feed_sync_id, value)
    VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (feed, key) DO UPDATE SET
        version = excluded.version, feed_sync_id = excluded.feed_sync_id, value = excluded.value";

const NUMBER_KEY: &str = "
    UPDATE main.feed_keys SET version = ?3, feed_sync_id = ?4 WHERE feed = ?1 AND key = ?2";

const REMOVE_KEY: &str = "DELETE FROM main.feed_keys WHERE feed = ?1 AND key = ?2";

const COUNT_KEY: &str = "
    INSERT INTO main.sequences AS s (name, value, version, keys) VALUES (?1, 0, 0, 1)
    ON CONFLICT (name) DO UPDATE SET keys = s.keys + 1";

const UNCOUNT_KEYS: &str = "UPDATE main.sequences SET keys = keys - ?2 WHERE name = ?1";

const ADVANCE: &str = "UPDATE main.sequences SET value = ?2, version = ?3 WHERE name = ?1";

const RAISE: &str = "
    UPDATE main.sequences SET horizon = ?2, forgotten = ?3 WHERE name = ?1 RETURNING 1";

const MARK: &str = "UPDATE main.sequences SET mark = ?2, marked_at = ?3 WHERE name = ?1";

const LIST: &str = "
    SELECT name, value, version, keys, horizon, forgotten, mark, marked_at FROM main.sequences
    WHERE name > ?1 AND name NOT BETWEEN ?3 AND ?4 ORDER BY name LIMIT ?2";

const ENDED: &str = "
    SELECT name FROM main.sequences WHERE name > ?1 AND name < ?2 ORDER BY name LIMIT 1";

const REMOVE_KEYS: &str = "
    DELETE FROM main.feed_keys WHERE feed = ?1 AND key IN (
        SELECT key FROM main.feed_keys WHERE feed = ?1 LIMIT ?2) RETURNING 1";

const REMOVE_EXPECTED: &str = "
    DELETE FROM main.receipts_expected WHERE feed = ?1 AND key IN (
        SELECT key FROM main.receipts_expected WHERE feed = ?1 LIMIT ?2) RETURNING 1";

const REMOVE_SEQUENCE: &str = "DELETE FROM main.sequences WHERE name = ?1";

const DUE: &str = "
    SELECT feed, key, deadline FROM main.receipts_expected WHERE deadline <= ?1
    ORDER BY deadline LIMIT ?2";

const IS_EXPECTED: &str = "
    SELECT 1 FROM main.receipts_expected WHERE feed = ?1 AND key = ?2";

pub(super) const EXPECT: &str = "
    INSERT INTO main.receipts_expected (feed, key, deadline) VALUES (?1, ?2, ?3)
    ON CONFLICT DO NOTHING RETURNING 1";

const EXPECT_NO_MORE: &str = "
    DELETE FROM main.receipts_expected WHERE feed = ?1 AND key = ?2 RETURNING 1";

/// All of them, for the test that each finds its rows by an index.
pub const STATEMENTS: [&str; 21] = [
    SEQUENCE,
    KEY,
    VALUE,
    PENDING,
    PUT_KEY,
    NUMBER_KEY,
    REMOVE_KEY,
    COUNT_KEY,
    UNCOUNT_KEYS,
    ADVANCE,
    RAISE,
    MARK,
    LIST,
    ENDED,
    REMOVE_KEYS,
    REMOVE_EXPECTED,
    REMOVE_SEQUENCE,
    DUE,
    IS_EXPECTED,
    EXPECT,
    EXPECT_NO_MORE,
];
