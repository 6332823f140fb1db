//! Feeds, one row per key, in the router's file.
//!
//! Only the writer changes them, one job after the other, so that a [`Publication`] has no
//! conflicts.

use rusqlite::types::Type;
use rusqlite::{Connection, Params, Row, params};
use state_machine::Time;
use state_machine::feed::{Assignment, Publication, UnpublishedKey};

use super::Embedded;
use super::columns::{corrupt, from_i64, to_i64};
use super::files::FileKey;
use super::statements::first_row;
use super::tables::now;
use crate::feeds::{
    FeedKey, FeedMark, FeedName, FeedPage, FeedState, FeedSyncId, FeedTables, FeedValue, Forgotten,
    PublishResult, Sequence, Update, Version, WriteResult,
};
use crate::store::{PageLimit, StoreFuture};

/// Keys that one job numbers: bounds how long the jobs behind it wait.
const PUBLISHED_MAX: usize = 1000;

/// Entries that one job removes.
const FORGOTTEN_MAX: usize = 1000;

/// Bytes of values after which a job numbers no further key: numbering rewrites the row with its
/// value.
const PUBLISHED_BYTES_MAX: usize = 4 * 1024 * 1024;

impl FeedTables for Embedded {
    /// The tables are part of the router's file.
    fn ensure_feeds(&self) -> StoreFuture<()> {
        now(Ok(()))
    }

    fn write_key(
        &self,
        feed: FeedName,
        key: FeedKey,
        value: FeedValue,
        keys_max: u64,
    ) -> StoreFuture<WriteResult> {
        self.write(None, FileKey::Router, move |conn| {
            write(conn, feed.as_str(), &key, &value, keys_max)
        })
    }

    fn republish_key(&self, feed: FeedName, key: FeedKey) -> StoreFuture<Option<Version>> {
        self.write(None, FileKey::Router, move |conn| {
            change(conn, REPUBLISH, params![feed.as_str(), key.as_str()])
        })
    }

    fn delete_key(&self, feed: FeedName, key: FeedKey) -> StoreFuture<Option<Version>> {
        self.write(None, FileKey::Router, move |conn| {
            change(conn, DELETE, params![feed.as_str(), key.as_str()])
        })
    }

    fn publish(
        &self,
        feed: FeedName,
        after: Option<FeedKey>,
        limit: usize,
    ) -> StoreFuture<Option<PublishResult>> {
        self.write(None, FileKey::Router, move |conn| {
            publish(conn, feed.as_str(), after.as_ref(), limit)
        })
    }

    fn fetch_feed(
        &self,
        feed: FeedName,
        after: FeedSyncId,
        limit: PageLimit,
    ) -> StoreFuture<Option<FeedPage>> {
        self.read(FileKey::Router, |conn| fetch(conn, feed.as_str(), after, limit))
    }

    fn forget(
        &self,
        feed: FeedName,
        through: FeedSyncId,
        limit: usize,
    ) -> StoreFuture<Option<Forgotten>> {
        self.write(None, FileKey::Router, move |conn| {
            forget(conn, feed.as_str(), through, limit.clamp(1, FORGOTTEN_MAX))
        })
    }

    fn mark_feed(&self, feed: FeedName, FeedMark { number, at }: FeedMark) -> StoreFuture<()> {
        self.write(None, FileKey::Router, move |conn| {
            let row = params![feed.as_str(), to_column(number.0)?, to_i64(at.0)];
            conn.prepare_cached(MARK)?.execute(row).map(drop)
        })
    }

    fn feeds(&self, after: Option<FeedName>, limit: usize) -> StoreFuture<Vec<FeedState>> {
        self.read(FileKey::Router, |conn| list(conn, after.as_ref(), limit))
    }
}

pub(super) fn write(
    conn: &Connection,
    feed: &str,
    key: &FeedKey,
    value: &FeedValue,
    keys_max: u64,
) -> rusqlite::Result<WriteResult> {
    if let Some(version) = change(conn, CHANGE, params![feed, key.as_str(), value.as_str()])? {
        return Ok(WriteResult::Done(version));
    }
    let Sequence { keys, forgotten, .. } = sequence(conn, feed)?.unwrap_or_default();
    if keys >= keys_max {
        return Ok(WriteResult::TooManyKeys);
    }
    let version = forgotten.next();
    let row = params![feed, key.as_str(), to_column(version.0)?, value.as_str()];
    conn.prepare_cached(ADD)?.execute(row)?;
    conn.prepare_cached(COUNT_KEY)?.execute(params![feed])?;
    Ok(WriteResult::Done(version))
}

/// Executes a statement that returns the new version. None if it changed no row.
fn change(
    conn: &Connection,
    statement: &str,
    parameters: impl Params,
) -> rusqlite::Result<Option<Version>> {
    let mut statement = conn.prepare_cached(statement)?;
    first_row(&mut statement, parameters, |row| number(0, row).map(Version))
}

pub(super) fn publish(
    conn: &Connection,
    feed: &str,
    after: Option<&FeedKey>,
    limit: usize,
) -> rusqlite::Result<Option<PublishResult>> {
    let Some(sequence) = sequence(conn, feed)? else { return Ok(None) };
    let (waiting, is_all) = pending(conn, feed, after, limit.clamp(1, PUBLISHED_MAX))?;
    let Some(publication) = Publication::of(sequence, waiting) else {
        return Ok(Some(PublishResult { count: 0, head: sequence.value, next: None }));
    };
    let mut assign = conn.prepare_cached(ASSIGN)?;
    for Assignment { pending, version, feed_sync_id } in &publication.assignments {
        let (version, number) = (to_column(version.0)?, to_column(feed_sync_id.0)?);
        assign.execute(params![feed, pending.key.as_str(), version, number])?;
    }
    let Sequence { value, version, .. } = publication.sequence;
    let row = params![feed, to_column(value.0)?, to_column(version)?];
    conn.prepare_cached(ADVANCE)?.execute(row)?;
    Ok(Some(publication.outcome(is_all)))
}

/// The first waiting keys after `after`, and whether these are all of them.
fn pending(
    conn: &Connection,
    feed: &str,
    after: Option<&FeedKey>,
    limit: usize,
) -> rusqlite::Result<(Vec<UnpublishedKey>, bool)> {
    let mut statement = conn.prepare_cached(PENDING)?;
    let after = after.map_or("", FeedKey::as_str);
    let mut rows = statement.query(params![feed, after])?;
    let (mut waiting, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        if waiting.len() >= limit || bytes >= PUBLISHED_BYTES_MAX as u64 {
            return Ok((waiting, false));
        }
        waiting.push(UnpublishedKey { key: key(0, row)?, version: Version(number(1, row)?) });
        bytes += number(2, row)?;
    }
    Ok((waiting, true))
}

/// One statement, so that the head and the updates are of the same instant.
pub(super) fn fetch(
    conn: &Connection,
    feed: &str,
    after: FeedSyncId,
    limit: PageLimit,
) -> rusqlite::Result<Option<FeedPage>> {
    let mut statement = conn.prepare_cached(FETCH)?;
    let mut rows = statement.query(params![feed, to_i64(after.0)])?;
    let (mut page, mut bytes) = (None, 0);
    while let Some(row) = rows.next()? {
        let head = FeedSyncId(number(0, row)?);
        let (cursor, horizon) = (head.max(after), FeedSyncId(number(5, row)?));
        let all = FeedPage { updates: Vec::new(), cursor, head, horizon };
        let page: &mut FeedPage = page.get_or_insert(all);
        let updates = page.updates.len();
        if updates >= limit.rows.max(1) || (updates > 0 && bytes >= limit.bytes) {
            page.cursor = page.updates.last().map_or(after, |last| last.feed_sync_id);
            break;
        }
        if let Some(update) = update(row)? {
            bytes += update.value.as_ref().map_or(0, |value| value.as_str().len());
            page.updates.push(update);
        }
    }
    Ok(page)
}

pub(super) fn list(
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
pub(super) fn decode_state(row: &Row<'_>) -> rusqlite::Result<FeedState> {
    let name = FeedName::from_store(row.get_ref(NAME_COLUMN)?.as_str()?);
    let name = name.map_err(|error| corrupt(NAME_COLUMN, Type::Text, error))?;
    Ok(FeedState { name, sequence: decode_sequence(row)? })
}

/// Raises the horizon and removes the first entries up to it, in one transaction.
fn forget(
    conn: &Connection,
    feed: &str,
    through: FeedSyncId,
    limit: usize,
) -> rusqlite::Result<Option<Forgotten>> {
    conn.prepare_cached(RAISE)?.execute(params![feed, to_i64(through.0)])?;
    let Some(sequence) = sequence(conn, feed)? else { return Ok(None) };
    let horizon = to_column(sequence.horizon.0)?;
    let mut oldest = conn.prepare_cached(OLDEST)?;
    // One row more shows whether others are left.
    let rows = oldest.query_map(params![feed, horizon, to_i64(limit as u64 + 1)], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
    })?;
    let mut rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    let is_all = rows.len() <= limit;
    rows.truncate(limit);
    let Some((last, _)) = rows.last() else { return Ok(Some(Forgotten { count: 0, is_all })) };
    let count = conn.prepare_cached(FORGET)?.execute(params![feed, last])?;
    let version = rows.iter().map(|(_, version)| *version).max();
    conn.prepare_cached(COUNT_FORGOTTEN)?.execute(params![feed, to_i64(count as u64), version])?;
    Ok(Some(Forgotten { count, is_all }))
}

pub(super) fn sequence(conn: &Connection, feed: &str) -> rusqlite::Result<Option<Sequence>> {
    first_row(&mut *conn.prepare_cached(SEQUENCE)?, params![feed], decode_sequence)
}

/// Removes a feed with its keys, for the preflight check only.
pub(super) fn remove(conn: &Connection, feed: &str) -> rusqlite::Result<()> {
    for statement in [REMOVE_KEYS, REMOVE_SEQUENCE] {
        conn.execute(statement, params![feed])?;
    }
    Ok(())
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

/// Reads the columns of [`FETCH`]; none if the row holds only the head.
fn update(row: &Row<'_>) -> rusqlite::Result<Option<Update>> {
    if row.get_ref(1)?.as_i64_or_null()?.is_none() {
        return Ok(None);
    }
    let value = row.get_ref(4)?.as_str_or_null()?.map(FeedValue::parse).transpose();
    Ok(Some(Update {
        feed_sync_id: FeedSyncId(number(1, row)?),
        key: key(2, row)?,
        version: Version(number(3, row)?),
        value: value.map_err(|error| corrupt(4, Type::Text, error))?,
    }))
}

pub(super) fn key(column: usize, row: &Row<'_>) -> rusqlite::Result<FeedKey> {
    let text = row.get_ref(column)?.as_str()?;
    FeedKey::parse(text).map_err(|error| corrupt(column, Type::Text, error))
}

pub(super) fn number(column: usize, row: &Row<'_>) -> rusqlite::Result<u64> {
    let stored: i64 = row.get(column)?;
    u64::try_from(stored).map_err(|error| corrupt(column, Type::Integer, error))
}

/// Fails on a number that SQLite cannot hold: a saturated number would be assigned twice. An
/// addition in SQL overflows to a real number, which a strict table rejects.
pub(super) fn to_column(number: u64) -> rusqlite::Result<i64> {
    i64::try_from(number).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

pub(super) const CHANGE: &str = "
    UPDATE feed_keys SET version = version + 1, feed_sync_id = NULL, value = ?3
    WHERE feed = ?1 AND key = ?2 RETURNING version";

pub(super) const REPUBLISH: &str = "
    UPDATE feed_keys SET version = version + 1, feed_sync_id = NULL
    WHERE feed = ?1 AND key = ?2 RETURNING version";

pub(super) const DELETE: &str = "
    UPDATE feed_keys SET version = version + 1, feed_sync_id = NULL, value = NULL
    WHERE feed = ?1 AND key = ?2 AND value IS NOT NULL RETURNING version";

const ADD: &str = "INSERT INTO feed_keys (feed, key, version, value) VALUES (?1, ?2, ?3, ?4)";

pub(super) const COUNT_KEY: &str = "
    INSERT INTO sequences (name, value, version, keys) VALUES (?1, 0, 0, 1)
    ON CONFLICT (name) DO UPDATE SET keys = keys + 1";

pub(super) const SEQUENCE: &str = "
    SELECT value, version, keys, horizon, forgotten, mark, marked_at
    FROM sequences WHERE name = ?1";

pub(super) const PENDING: &str = "
    SELECT key, version, coalesce(octet_length(value), 0) FROM feed_keys
    WHERE feed = ?1 AND key > ?2 AND feed_sync_id IS NULL ORDER BY key";

pub(super) const ASSIGN: &str = "
    UPDATE feed_keys SET version = ?3, feed_sync_id = ?4 WHERE feed = ?1 AND key = ?2";

pub(super) const ADVANCE: &str = "UPDATE sequences SET value = ?2, version = ?3 WHERE name = ?1";

pub(super) const FETCH: &str = "
    SELECT sequences.value, feed_sync_id, key, feed_keys.version, feed_keys.value, horizon
    FROM sequences LEFT JOIN feed_keys
        ON feed = name AND feed_sync_id > iif(?2 = 0, horizon, ?2)
    WHERE name = ?1 ORDER BY feed_sync_id";

pub(super) const LIST: &str = "
    SELECT value, version, keys, horizon, forgotten, mark, marked_at, name
    FROM sequences WHERE name > ?1 AND name NOT BETWEEN ?3 AND ?4 ORDER BY name LIMIT ?2";

/// The column of [`LIST`] after those of a sequence.
const NAME_COLUMN: usize = 7;

pub(super) const RAISE: &str = "
    UPDATE sequences SET horizon = max(horizon, min(value, ?2)) WHERE name = ?1";

pub(super) const OLDEST: &str = "
    SELECT feed_sync_id, version FROM feed_keys
    WHERE feed = ?1 AND feed_sync_id <= ?2 ORDER BY feed_sync_id LIMIT ?3";

pub(super) const FORGET: &str = "DELETE FROM feed_keys WHERE feed = ?1 AND feed_sync_id <= ?2";

pub(super) const COUNT_FORGOTTEN: &str = "
    UPDATE sequences SET keys = keys - ?2, forgotten = max(forgotten, ?3) WHERE name = ?1";

pub(super) const MARK: &str = "UPDATE sequences SET mark = ?2, marked_at = ?3 WHERE name = ?1";

pub(super) const REMOVE_KEYS: &str = "DELETE FROM feed_keys WHERE feed = ?1";

pub(super) const REMOVE_SEQUENCE: &str = "DELETE FROM sequences WHERE name = ?1";

#[cfg(test)]
mod tests {
    use super::super::schema::ROUTER;
    use super::*;

    const FEED: &str = "prices";
    const LAST: u64 = i64::MAX as u64;

    fn database() -> Connection {
        let mut conn = Connection::open_in_memory().unwrap();
        ROUTER.create(&mut conn, "in memory".as_ref()).unwrap();
        conn
    }

    fn key(text: &str) -> FeedKey {
        FeedKey::parse(text).unwrap()
    }

    fn put(conn: &Connection, name: &str) -> rusqlite::Result<WriteResult> {
        write(conn, FEED, &key(name), &FeedValue::parse("v").unwrap(), u64::MAX)
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
        let published = publish(&conn, FEED, None, usize::MAX).unwrap().unwrap();
        let next = Some(key("0999"));
        assert_eq!((published.count, &published.next), (PUBLISHED_MAX, &next));
        let rest = publish(&conn, FEED, next.as_ref(), usize::MAX).unwrap().unwrap();
        assert_eq!((rest.count, rest.next), (1, None));
    }

    #[test]
    fn one_job_numbers_no_more_bytes_than_its_bound() {
        let conn = database();
        let large = FeedValue::parse(&"v".repeat(FeedValue::BYTES_MAX)).unwrap();
        let fit = PUBLISHED_BYTES_MAX / FeedValue::BYTES_MAX;
        for number in 10..=10 + fit {
            write(&conn, FEED, &key(&number.to_string()), &large, u64::MAX).unwrap();
        }
        let published = publish(&conn, FEED, None, usize::MAX).unwrap().unwrap();
        assert_eq!((published.count, published.next.is_some()), (fit, true));
        let rest = publish(&conn, FEED, published.next.as_ref(), usize::MAX).unwrap().unwrap();
        assert_eq!((rest.count, rest.next), (1, None));
    }

    #[test]
    fn a_number_beyond_the_column_is_an_error_and_not_assigned_twice() {
        let conn = database();
        put(&conn, "a").unwrap();
        set(&conn, "UPDATE sequences SET value = ?1 - 1");
        let last = publish(&conn, FEED, None, 1).unwrap().unwrap();
        assert_eq!(last.head, FeedSyncId(LAST));
        put(&conn, "a").unwrap();
        assert!(publish(&conn, FEED, None, 1).is_err());
        let row = sequence(&conn, FEED).unwrap().unwrap();
        assert_eq!(row.value, FeedSyncId(LAST));
    }

    #[test]
    fn versions_and_counts_that_cannot_be_held_are_errors() {
        let conn = database();
        put(&conn, "a").unwrap();
        set(&conn, "UPDATE feed_keys SET version = ?1");
        assert!(put(&conn, "a").is_err());
        for statement in [REPUBLISH, DELETE] {
            assert!(change(&conn, statement, params![FEED, "a"]).is_err());
        }
        assert!(publish(&conn, FEED, None, 1).is_err());
        set(&conn, "UPDATE sequences SET keys = ?1");
        assert!(put(&conn, "b").is_err());
    }

    #[test]
    fn a_negative_number_is_an_error() {
        let conn = database();
        put(&conn, "a").unwrap();
        conn.execute("UPDATE sequences SET value = -1", []).unwrap();
        let limit = PageLimit { rows: 1, bytes: 1 };
        assert!(fetch(&conn, FEED, FeedSyncId::NONE, limit).is_err());
        assert!(publish(&conn, FEED, None, 1).is_err());
    }
}
