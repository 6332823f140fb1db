//! The tables of feeds in the router's file.
//!
//! Only the writer changes them, one job after the other, so that no commit is refused for another one.

use rusqlite::types::Type;
use storage::rules::feed_rows::CommitBounds;
use storage::sql::feeds::SqlFeeds;
use storage::sql::rows::SqlRow;
use storage::sql::values::Value;

use crate::columns::corrupt;
use crate::router_file::RouterFile;
use crate::sql_rows::{OwnedRow, query, query_while};

impl SqlFeeds for RouterFile<'_> {
    type Failure = rusqlite::Error;
    type Row = OwnedRow;

    /// They bound how long the jobs behind one wait.
    const COMMIT: CommitBounds =
        CommitBounds { published: 1000, forgotten: 1000, fetched: usize::MAX, receipts: 100 };

    /// Numbering rewrites the row with its value.
    const NUMBERED_BYTES_MAX: usize = 4 * 1024 * 1024;

    async fn query(
        &self,
        statement: &'static str,
        values: Vec<Value<'_>>,
    ) -> rusqlite::Result<Vec<OwnedRow>> {
        query(self, statement, &values)
    }

    async fn numbered_rows(
        &self,
        values: Vec<Value<'_>>,
        bytes_max: usize,
    ) -> rusqlite::Result<Vec<OwnedRow>> {
        // The first row is on the page whatever its size, and the last one shows that it is full.
        let mut before = None;
        query_while(self, NUMBERED, &values, |row| {
            let is_followed = before.is_none_or(|bytes| bytes < bytes_max);
            let bytes = row.text(3).ok().flatten().map_or(0, str::len);
            before = Some(before.unwrap_or(0) + bytes);
            is_followed
        })
    }

    fn corrupt(what: &str) -> rusqlite::Error {
        corrupt(0, Type::Integer, what)
    }
}

/// No value is left out.
pub(crate) const NUMBERED: &str = "
    SELECT feed_sync_id, key, version, value, 1 FROM feed_keys
    WHERE feed = ?1 AND feed_sync_id > ?2 AND feed_sync_id <= ?3 ORDER BY feed_sync_id LIMIT ?4";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::ROUTER;
    use rusqlite::{Connection, params};
    use storage::feeds::{FeedKey, FeedName, FeedSyncId, FeedValue, PublishResult, WriteResult};
    use storage::rules::feed_rows::FeedRows;
    use storage::rules::feeds::{self as rules, Rewrite};
    use storage::rules::finished;
    use storage::store::PageLimit;

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
        let fit = RouterFile::NUMBERED_BYTES_MAX / FeedValue::BYTES_MAX;
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
        let row = finished(RouterFile(&conn).sequence(&feed())).unwrap().unwrap();
        assert_eq!(row.sequence.value, FeedSyncId(LAST));
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
