//! The SQL of the receipts that are expected, in the router's file.

use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};
use state_machine::feed::{FeedKey, FeedName};
use state_machine::{ReceiptRequest, Time};
use storage::receipts::ExpectedReceipt;
use storage::store::Cursor;

use crate::columns::{change, corrupt, from_i64, to_i64};
use crate::statements::has_row;

/// Receipts that one job decides, and rows of an ended subscription that it removes: bounds how long other jobs wait.
pub(crate) const DECIDED_MAX: usize = 100;

pub(crate) fn is_expected(conn: &Connection, expected: &ExpectedReceipt) -> rusqlite::Result<bool> {
    let ReceiptRequest { subscription, key } = &expected.request;
    has_row(conn, IS_EXPECTED, params![subscription.as_str(), key.as_str()])
}

/// Returns whether it was not there.
pub(crate) fn insert(conn: &Connection, expected: &ExpectedReceipt) -> rusqlite::Result<bool> {
    let ExpectedReceipt { request: ReceiptRequest { subscription, key }, deadline } = expected;
    change(conn, EXPECT, params![subscription.as_str(), key.as_str(), to_i64(deadline.0)])
}

/// Returns whether it was there.
pub(crate) fn remove(conn: &Connection, expected: &ExpectedReceipt) -> rusqlite::Result<bool> {
    let ReceiptRequest { subscription, key } = &expected.request;
    change(conn, REMOVE, params![subscription.as_str(), key.as_str()])
}

/// A page of those that are due. A job removes it, so that the next one has other rows.
pub(crate) fn due(
    conn: &Connection,
    now: Time,
) -> rusqlite::Result<(Vec<ExpectedReceipt>, Option<Cursor>)> {
    let mut statement = conn.prepare_cached(DUE)?;
    let due =
        statement.query_map(params![to_i64(now.0), DECIDED_MAX as i64], |row| decode(0, row))?;
    let due = due.collect::<rusqlite::Result<Vec<_>>>()?;
    let next = (due.len() == DECIDED_MAX).then(|| Cursor::new(""));
    Ok((due, next))
}

/// Reads feed, key and deadline from this column on.
pub(crate) fn decode(column: usize, row: &Row<'_>) -> rusqlite::Result<ExpectedReceipt> {
    let subscription = FeedName::from_store(row.get_ref(column)?.as_str()?);
    let subscription = subscription.map_err(|error| corrupt(column, Type::Text, error))?;
    let key = FeedKey::parse(row.get_ref(column + 1)?.as_str()?);
    let key = key.map_err(|error| corrupt(column + 1, Type::Text, error))?;
    let deadline = Time(from_i64(row.get(column + 2)?));
    Ok(ExpectedReceipt { request: ReceiptRequest { subscription, key }, deadline })
}

pub(crate) const EXPECT: &str = "
    INSERT OR IGNORE INTO receipts_expected (feed, key, deadline) VALUES (?1, ?2, ?3)";

pub(crate) const IS_EXPECTED: &str = "
    SELECT 1 FROM receipts_expected WHERE feed = ?1 AND key = ?2";

pub(crate) const REMOVE: &str = "DELETE FROM receipts_expected WHERE feed = ?1 AND key = ?2";

pub(crate) const DUE: &str = "
    SELECT feed, key, deadline FROM receipts_expected WHERE deadline <= ?1
    ORDER BY deadline LIMIT ?2";

pub(crate) const REMOVE_EXPECTED: &str = "
    DELETE FROM receipts_expected
    WHERE rowid IN (SELECT rowid FROM receipts_expected WHERE feed = ?1 LIMIT ?2)";

pub(crate) const ALL: &str = "
    SELECT rowid, feed, key, deadline FROM receipts_expected WHERE rowid > ?1 ORDER BY rowid";
