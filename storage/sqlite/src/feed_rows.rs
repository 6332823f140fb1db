//! Feeds, one row per key, in the router's file.
//!
//! Only the writer changes them, one job after the other, so that no commit is refused for another one.

use std::collections::BTreeSet;

use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};
use state_machine::Time;
use state_machine::feed::UnpublishedKey;
use storage::feeds::{
    FeedKey, FeedMark, FeedName, FeedState, FeedSyncId, FeedValue, Sequence, Update, Version,
};
use storage::receipts::ExpectedReceipt;
use storage::rules::feed_rows::{
    Attempts, CommitBounds, Committed, ExpectedChange, FeedChange, FeedRows, KeyRow, NumberedPage,
    PendingPage, PendingRow, Refused, SequenceChange, SequenceRow,
};
use storage::store::{Cursor, PageLimit};

use crate::columns::{change, corrupt, from_i64, to_i64};
use crate::expected_receipts;
use crate::router_file::RouterFile;
use crate::statements::first_row;

/// Bytes of values after which a job numbers no further key: numbering rewrites the row with its
/// value.
const PUBLISHED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The rows of the router's file.
impl FeedRows for RouterFile<'_> {
    type Error = rusqlite::Error;

    /// They bound how long the jobs behind one wait.
    const BOUNDS: CommitBounds = CommitBounds {
        published: 1000,
        forgotten: 1000,
        fetched: usize::MAX,
        receipts: expected_receipts::DECIDED_MAX,
    };

    async fn sequence(&self, feed: &FeedName) -> rusqlite::Result<Option<SequenceRow>> {
        let there = sequence(self, feed)?;
        Ok(there.map(|sequence| SequenceRow { sequence, settled: sequence.value }))
    }

    async fn key(&self, feed: &FeedName, key: &FeedKey) -> rusqlite::Result<Option<KeyRow>> {
        let names = params![feed.as_str(), key.as_str()];
        first_row(&mut *self.prepare_cached(KEY)?, names, |row| decode_key(0, row))
    }

    /// The outer `None` if there is no such key, the inner one if it is deleted.
    async fn value(
        &self,
        feed: &FeedName,
        key: &FeedKey,
        _row: KeyRow,
    ) -> rusqlite::Result<Option<Option<FeedValue>>> {
        let names = params![feed.as_str(), key.as_str()];
        first_row(&mut *self.prepare_cached(VALUE)?, names, |row| value(0, row))
    }

    async fn pending(
        &self,
        feed: &FeedName,
        after: Option<&FeedKey>,
        rows: usize,
        _refused: &BTreeSet<UnpublishedKey>,
    ) -> rusqlite::Result<PendingPage> {
        let mut statement = self.prepare_cached(PENDING)?;
        let mut there =
            statement.query(params![feed.as_str(), after.map_or("", FeedKey::as_str)])?;
        let (mut page, mut bytes) = (PendingPage { is_all: true, ..PendingPage::default() }, 0);
        while let Some(row) = there.next()? {
            if page.rows.len() >= rows || bytes >= PUBLISHED_BYTES_MAX {
                page.is_all = false;
                break;
            }
            let pending = UnpublishedKey { key: key(0, row)?, version: Version(number(1, row)?) };
            let value = value(2, row)?;
            bytes += value.as_ref().map_or(0, |value| value.as_str().len());
            page.rows.push(PendingRow { pending, value });
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
    ) -> rusqlite::Result<NumberedPage> {
        let mut statement = self.prepare_cached(NUMBERED)?;
        let mut rows = statement.query(params![feed.as_str(), to_i64(after.0), to_i64(last.0)])?;
        let (mut page, mut bytes) = (NumberedPage { is_all: true, ..NumberedPage::default() }, 0);
        while let Some(row) = rows.next()? {
            if limit.is_reached(page.updates.len(), bytes) {
                page.is_all = false;
                break;
            }
            let value = value(3, row)?;
            bytes += value.as_ref().map_or(0, |value| value.as_str().len());
            page.updates.push(Update {
                feed_sync_id: FeedSyncId(number(0, row)?),
                key: key(1, row)?,
                version: Version(number(2, row)?),
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
    ) -> rusqlite::Result<bool> {
        let Sequence { horizon, forgotten, .. } = *raised;
        let row = params![feed.as_str(), to_i64(horizon.0), to_i64(forgotten.0)];
        change(self, RAISE, row)
    }

    async fn receipts_due(
        &self,
        now: Time,
        _after: Option<Cursor>,
    ) -> rusqlite::Result<(Vec<ExpectedReceipt>, Option<Cursor>)> {
        expected_receipts::due(self, now)
    }

    async fn remove_ended(&self, now: Time) -> rusqlite::Result<(u64, bool)> {
        remove_ended(self, now)
    }

    /// Writes the rows of a change in the transaction of the job. All conditions are looked at before the first row is written.
    async fn commit(
        &self,
        feed_change: FeedChange<'_>,
    ) -> rusqlite::Result<Committed<rusqlite::Error>> {
        let FeedChange { feed, expected, keys, sequence: of_sequence } = feed_change;
        let refused = |expected| Ok(Committed::Refused(Refused { expected, ..Refused::default() }));
        if let ExpectedChange::Add(expected) = expected
            && expected_receipts::is_expected(self, expected)?
        {
            return refused(true);
        }
        if let SequenceChange::CountKey { keys_max, .. } = of_sequence
            && sequence(self, feed)?.is_some_and(|there| there.keys >= keys_max)
        {
            return refused(false);
        }
        let is_changed = match expected {
            ExpectedChange::None => true,
            ExpectedChange::Add(expected) => expected_receipts::insert(self, expected)?,
            ExpectedChange::Remove(expected) => expected_receipts::remove(self, expected)?,
        };
        if !is_changed {
            return refused(true);
        }
        for of_key in keys {
            match &of_key.after {
                Some((row, value)) => put_key(self, feed, of_key.key, *row, *value)?,
                None => {
                    change(self, REMOVE_KEY, params![feed.as_str(), of_key.key.as_str()])?;
                }
            }
        }
        let feed = feed.as_str();
        match of_sequence {
            SequenceChange::None => Ok(true),
            SequenceChange::CountKey { .. } => change(self, COUNT_KEY, params![feed]),
            SequenceChange::UncountKeys(count) => {
                change(self, UNCOUNT_KEYS, params![feed, to_i64(count as u64)])
            }
            SequenceChange::RecountKey => change(self, UNCOUNT_KEYS, params![feed, -1]),
            SequenceChange::Advance { to, .. } => {
                let row = params![feed, to_column(to.value.0)?, to_column(to.version)?];
                change(self, ADVANCE, row)
            }
        }?;
        Ok(Committed::Done)
    }

    async fn next_attempt(
        &self,
        _attempts: &mut Attempts,
        _lost: Option<rusqlite::Error>,
    ) -> rusqlite::Result<()> {
        Err(corrupt(0, Type::Integer, "rows of a feed contradict each other"))
    }
}

/// Writes the row of a key, whatever is there.
pub(crate) fn put_key(
    conn: &Connection,
    feed: &FeedName,
    key: &FeedKey,
    row: KeyRow,
    value: Option<&FeedValue>,
) -> rusqlite::Result<()> {
    let KeyRow { version, number } = row;
    let row = params![
        feed.as_str(),
        key.as_str(),
        to_column(version.0)?,
        number.map(|number| to_column(number.0)).transpose()?,
        value.map(FeedValue::as_str),
    ];
    change(conn, PUT_KEY, row).map(drop)
}

/// Reads version and number from this column on.
pub(crate) fn decode_key(column: usize, row: &Row<'_>) -> rusqlite::Result<KeyRow> {
    let is_numbered = row.get_ref(column + 1)?.as_i64_or_null()?.is_some();
    let number = is_numbered.then(|| number(column + 1, row).map(FeedSyncId)).transpose()?;
    Ok(KeyRow { version: Version(self::number(column, row)?), number })
}

pub(crate) fn list(
    conn: &Connection,
    after: Option<&FeedName>,
    limit: usize,
) -> rusqlite::Result<Vec<FeedState>> {
    let mut statement = conn.prepare_cached(LIST)?;
    let after = after.map_or("", FeedName::as_str);
    let [first, last] = [Time(0), Time(u64::MAX)].map(FeedName::receipts_ended);
    let bounds = params![after, to_i64(limit as u64), first, last];
    statement.query_map(bounds, decode_state)?.collect()
}

/// Reads the columns of [`LIST`].
pub(crate) fn decode_state(row: &Row<'_>) -> rusqlite::Result<FeedState> {
    let name = FeedName::from_store(row.get_ref(NAME_COLUMN)?.as_str()?);
    let name = name.map_err(|error| corrupt(NAME_COLUMN, Type::Text, error))?;
    Ok(FeedState { name, sequence: decode_sequence(row)? })
}

fn sequence(conn: &Connection, feed: &FeedName) -> rusqlite::Result<Option<Sequence>> {
    first_row(&mut *conn.prepare_cached(SEQUENCE)?, params![feed.as_str()], decode_sequence)
}

/// Removes a feed with its keys, for the preflight check only.
pub(crate) fn remove(conn: &Connection, feed: &FeedName) -> rusqlite::Result<()> {
    for statement in [REMOVE_KEYS, REMOVE_SEQUENCE] {
        change(conn, statement, params![feed.as_str()])?;
    }
    Ok(())
}

/// Removes a page of a subscription that has ended.
fn remove_ended(conn: &Connection, now: Time) -> rusqlite::Result<(u64, bool)> {
    let names = params![FeedName::receipts_ended(Time(0)), FeedName::receipts_ended(now)];
    let ended = first_row(&mut *conn.prepare_cached(ENDED)?, names, |row| row.get::<_, String>(0))?;
    let Some(ended) = ended else { return Ok((0, false)) };
    for statement in [REMOVE_KEYS_PAGE, expected_receipts::REMOVE_EXPECTED] {
        if change(conn, statement, params![ended, expected_receipts::DECIDED_MAX as i64])? {
            return Ok((0, true));
        }
    }
    change(conn, REMOVE_SEQUENCE, params![ended])?;
    Ok((1, true))
}

fn decode_sequence(row: &Row<'_>) -> rusqlite::Result<Sequence> {
    let value = FeedSyncId(number(0, row)?);
    let mark = match row.get_ref(5)?.as_i64_or_null()? {
        None => None,
        Some(_) => {
            Some(FeedMark { number: FeedSyncId(number(5, row)?), at: Time(from_i64(row.get(6)?)) })
        }
    };
    Ok(Sequence {
        value,
        version: number(1, row)?,
        keys: number(2, row)?,
        horizon: FeedSyncId(number(3, row)?),
        forgotten: Version(number(4, row)?),
        mark,
    })
}

pub(crate) fn key(column: usize, row: &Row<'_>) -> rusqlite::Result<FeedKey> {
    let text = row.get_ref(column)?.as_str()?;
    FeedKey::parse(text).map_err(|error| corrupt(column, Type::Text, error))
}

/// None of a deleted key.
pub(crate) fn value(column: usize, row: &Row<'_>) -> rusqlite::Result<Option<FeedValue>> {
    let value = row.get_ref(column)?.as_str_or_null()?.map(FeedValue::parse).transpose();
    value.map_err(|error| corrupt(column, Type::Text, error))
}

pub(crate) fn number(column: usize, row: &Row<'_>) -> rusqlite::Result<u64> {
    let stored: i64 = row.get(column)?;
    u64::try_from(stored).map_err(|error| corrupt(column, Type::Integer, error))
}

/// Fails on a number that SQLite cannot hold: a saturated number would be assigned twice. An
/// addition in SQL overflows to a real number, which a strict table rejects.
pub(crate) fn to_column(number: u64) -> rusqlite::Result<i64> {
    i64::try_from(number).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

pub(crate) const KEY: &str =
    "SELECT version, feed_sync_id FROM feed_keys WHERE feed = ?1 AND key = ?2";

pub(crate) const VALUE: &str = "SELECT value FROM feed_keys WHERE feed = ?1 AND key = ?2";

pub(crate) const PUT_KEY: &str = "
    INSERT INTO feed_keys (feed, key, version, feed_sync_id, value) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (feed, key) DO UPDATE SET
        version = excluded.version, feed_sync_id = excluded.feed_sync_id, value = excluded.value";

pub(crate) const REMOVE_KEY: &str = "DELETE FROM feed_keys WHERE feed = ?1 AND key = ?2";

pub(crate) const COUNT_KEY: &str = "
    INSERT INTO sequences (name, value, version, keys) VALUES (?1, 0, 0, 1)
    ON CONFLICT (name) DO UPDATE SET keys = keys + 1";

pub(crate) const SEQUENCE: &str = "
    SELECT value, version, keys, horizon, forgotten, mark, marked_at
    FROM sequences WHERE name = ?1";

pub(crate) const UNCOUNT_KEYS: &str = "UPDATE sequences SET keys = keys - ?2 WHERE name = ?1";

pub(crate) const PENDING: &str = "
    SELECT key, version, value FROM feed_keys
    WHERE feed = ?1 AND key > ?2 AND feed_sync_id IS NULL ORDER BY key";

pub(crate) const NUMBERED: &str = "
    SELECT feed_sync_id, key, version, value FROM feed_keys
    WHERE feed = ?1 AND feed_sync_id > ?2 AND feed_sync_id <= ?3 ORDER BY feed_sync_id";

pub(crate) const ADVANCE: &str = "UPDATE sequences SET value = ?2, version = ?3 WHERE name = ?1";

pub(crate) const LIST: &str = "
    SELECT value, version, keys, horizon, forgotten, mark, marked_at, name
    FROM sequences WHERE name > ?1 AND name NOT BETWEEN ?3 AND ?4 ORDER BY name LIMIT ?2";

/// The column of [`LIST`] after those of a sequence.
const NAME_COLUMN: usize = 7;

pub(crate) const RAISE: &str = "
    UPDATE sequences SET horizon = ?2, forgotten = ?3 WHERE name = ?1";

pub(crate) const MARK: &str = "UPDATE sequences SET mark = ?2, marked_at = ?3 WHERE name = ?1";

pub(crate) const REMOVE_KEYS: &str = "DELETE FROM feed_keys WHERE feed = ?1";

pub(crate) const REMOVE_SEQUENCE: &str = "DELETE FROM sequences WHERE name = ?1";

pub(crate) const ENDED: &str = "
    SELECT name FROM sequences WHERE name > ?1 AND name < ?2 ORDER BY name LIMIT 1";

pub(crate) const REMOVE_KEYS_PAGE: &str = "
    DELETE FROM feed_keys WHERE rowid IN (SELECT rowid FROM feed_keys WHERE feed = ?1 LIMIT ?2)";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::ROUTER;
    use storage::feeds::{PublishResult, WriteResult};
    use storage::rules::feeds::{self as rules, Rewrite};
    use storage::rules::finished;

    const PUBLISHED_MAX: usize = <RouterFile<'_> as FeedRows>::BOUNDS.published;
    const LAST: u64 = i64::MAX as u64;

    fn database() -> Connection {
        let mut conn = Connection::open_in_memory().unwrap();
        ROUTER.create(&mut conn, "in memory".as_ref()).unwrap();
        conn
    }

    fn key(text: &str) -> FeedKey {
        FeedKey::parse(text).unwrap()
    }

    fn feed() -> FeedName {
        FeedName::parse("prices").unwrap()
    }

    fn put(conn: &Connection, name: &str) -> rusqlite::Result<WriteResult> {
        write(conn, &key(name), &FeedValue::parse("v").unwrap())
    }

    fn write(conn: &Connection, key: &FeedKey, value: &FeedValue) -> rusqlite::Result<WriteResult> {
        finished(rules::write(&RouterFile(conn), &feed(), key, value, u64::MAX))
    }

    fn publish(
        conn: &Connection,
        after: Option<&FeedKey>,
        limit: usize,
    ) -> rusqlite::Result<Option<PublishResult>> {
        finished(rules::publish(&RouterFile(conn), &feed(), after, limit))
    }

    fn set(conn: &Connection, statement: &str) {
        assert_eq!(conn.execute(statement, params![LAST as i64]), Ok(1), "{statement}");
    }

    #[test]
    fn one_job_numbers_no_more_keys_than_its_bound() {
        let conn = database();
        for number in 0..=PUBLISHED_MAX {
            put(&conn, &format!("{number:04}")).unwrap();
        }
        let published = publish(&conn, None, usize::MAX).unwrap().unwrap();
        let next = Some(key("0999"));
        assert_eq!((published.count, &published.next), (PUBLISHED_MAX, &next));
        let rest = publish(&conn, next.as_ref(), usize::MAX).unwrap().unwrap();
        assert_eq!((rest.count, rest.next), (1, None));
    }

    #[test]
    fn one_job_numbers_no_more_bytes_than_its_bound() {
        let conn = database();
        let large = FeedValue::parse(&"v".repeat(FeedValue::BYTES_MAX)).unwrap();
        let fit = PUBLISHED_BYTES_MAX / FeedValue::BYTES_MAX;
        for number in 10..=10 + fit {
            write(&conn, &key(&number.to_string()), &large).unwrap();
        }
        let published = publish(&conn, None, usize::MAX).unwrap().unwrap();
        assert_eq!((published.count, published.next.is_some()), (fit, true));
        let rest = publish(&conn, published.next.as_ref(), usize::MAX).unwrap().unwrap();
        assert_eq!((rest.count, rest.next), (1, None));
    }

    #[test]
    fn a_number_beyond_the_column_is_an_error_and_not_assigned_twice() {
        let conn = database();
        put(&conn, "a").unwrap();
        set(&conn, "UPDATE sequences SET value = ?1 - 1");
        let last = publish(&conn, None, 1).unwrap().unwrap();
        assert_eq!(last.head, FeedSyncId(LAST));
        put(&conn, "a").unwrap();
        assert!(publish(&conn, None, 1).is_err());
        let row = sequence(&conn, &feed()).unwrap().unwrap();
        assert_eq!(row.value, FeedSyncId(LAST));
    }

    #[test]
    fn versions_and_counts_that_cannot_be_held_are_errors() {
        let conn = database();
        put(&conn, "a").unwrap();
        set(&conn, "UPDATE feed_keys SET version = ?1");
        assert!(put(&conn, "a").is_err());
        for rewrite in [Rewrite::Republish, Rewrite::Delete] {
            assert!(
                finished(rules::rewrite(&RouterFile(&conn), &feed(), &key("a"), rewrite)).is_err()
            );
        }
        assert!(publish(&conn, None, 1).is_err());
        set(&conn, "UPDATE sequences SET keys = ?1");
        assert!(put(&conn, "b").is_err());
    }

    #[test]
    fn a_negative_number_is_an_error() {
        let conn = database();
        put(&conn, "a").unwrap();
        conn.execute("UPDATE sequences SET value = -1", []).unwrap();
        let limit = PageLimit { rows: 1, bytes: 1 };
        assert!(
            finished(rules::fetch(&RouterFile(&conn), &feed(), FeedSyncId::NONE, limit)).is_err()
        );
        assert!(publish(&conn, None, 1).is_err());
    }
}
