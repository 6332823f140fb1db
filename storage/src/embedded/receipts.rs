//! Receipts, in the router's file with the feeds that they are published in.
//!
//! A message is in the file of its month. The router's file is committed first, so that a row that is gone has left its
//! receipt (`write_connections`).

use futures_util::TryFutureExt;
use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};
use state_machine::feed::{FeedKey, FeedName, FeedValue};
use state_machine::{MessageKey, Month, Receipt, ReceiptRequest, Time, Uaid};

use super::Embedded;
use super::columns::{change, corrupt, from_i64, to_i64};
use super::error::WriterError;
use super::feeds;
use super::files::FileKey;
use super::messages::{self, ReceiptChange};
use super::statements::{first_row, has_row};
use super::write_connections::WriteConnections;
use super::writer::Target;
use crate::receipts::{Deletion, ExpectedReceipt, ExpiredReceipts, ReceiptTables, Settlement};
use crate::store::{SettledMessages, StoreFuture};

/// Receipts that one job decides, and rows of an ended subscription that it removes: bounds how long other jobs wait.
const DECIDED_MAX: i64 = 100;

impl ReceiptTables for Embedded {
    fn expect_receipt(&self, expected: ExpectedReceipt, messages_max: u64) -> StoreFuture<bool> {
        let space = std::sync::Arc::clone(&self.space);
        self.writer.submit(None, Target::File(FileKey::Router), move |files| {
            space.admit()?;
            files.write(FileKey::Router, |conn| expect(conn, &expected, messages_max))
        })
    }

    fn cancel_receipt(&self, expected: ExpectedReceipt) -> StoreFuture<()> {
        self.write(None, FileKey::Router, move |conn| cancel(conn, &expected.request).map(drop))
    }

    fn withdraw_message(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        message: MessageKey,
    ) -> StoreFuture<bool> {
        let withdrawn = match message.id.may_want_receipt() {
            true => self.settle(uaid, months, vec![(message, Some(Settlement::Withdrawn))]),
            false => self.delete(uaid, months, vec![message]),
        };
        Box::pin(withdrawn.map_ok(|settled| settled.deleted > 0))
    }

    fn expire_receipts(&self, now: Time) -> StoreFuture<ExpiredReceipts> {
        self.write(None, FileKey::Router, move |conn| expire(conn, now))
    }
}

impl Embedded {
    /// Deletes messages, and writes or cancels their receipts.
    pub(super) fn settle(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        messages: Vec<Deletion>,
    ) -> StoreFuture<SettledMessages> {
        self.writer.submit(Some(uaid), Target::ManyFiles, move |files| {
            settle(files, uaid, &months, &messages)
        })
    }
}

fn settle(
    files: &mut WriteConnections,
    uaid: Uaid,
    months: &[Month],
    messages: &[Deletion],
) -> Result<SettledMessages, WriterError> {
    let mut settled = SettledMessages::default();
    let mut changes = Vec::new();
    for month in months {
        let done = files.write_if_there(*month, |conn| messages::settle(conn, uaid, messages))?;
        let (deleted, of_month) = done.unwrap_or_default();
        settled.deleted += deleted;
        changes.extend(of_month);
    }
    if !changes.is_empty() {
        settled.subscriptions = files.write_receipts(|conn| apply(conn, &changes))?;
    }
    Ok(settled)
}

/// Writes or cancels receipts. Returns the subscriptions that have unpublished ones now.
fn apply(conn: &Connection, changes: &[ReceiptChange]) -> rusqlite::Result<Vec<FeedName>> {
    let mut written = Vec::new();
    for (request, settlement) in changes {
        match settlement {
            Settlement::Acked(code) => {
                let is_new = write(conn, request, Receipt::Delivered(*code))?;
                if is_new && !written.contains(&request.subscription) {
                    written.push(request.subscription.clone());
                }
            }
            Settlement::Withdrawn => cancel(conn, request).map(drop)?,
        }
    }
    Ok(written)
}

fn expect(
    conn: &Connection,
    expected: &ExpectedReceipt,
    messages_max: u64,
) -> rusqlite::Result<bool> {
    let ReceiptRequest { subscription, key } = &expected.request;
    let names = params![subscription.as_str(), key.as_str()];
    if has_row(conn, IS_EXPECTED, names)? || value(conn, &expected.request)?.is_some() {
        return Ok(true);
    }
    let sequence = feeds::sequence(conn, subscription.as_str())?.unwrap_or_default();
    if sequence.keys >= messages_max {
        return Ok(false);
    }
    let row = params![subscription.as_str(), key.as_str(), to_i64(expected.deadline.0)];
    conn.prepare_cached(EXPECT)?.execute(row)?;
    conn.prepare_cached(feeds::COUNT_KEY)?.execute(params![subscription.as_str()])?;
    Ok(true)
}

/// Expects a receipt no more. Returns whether it was expected.
pub(super) fn cancel(conn: &Connection, request: &ReceiptRequest) -> rusqlite::Result<bool> {
    let is_cancelled = remove_expected(conn, request)?;
    if is_cancelled {
        change(conn, UNCOUNT, params![request.subscription.as_str()])?;
    }
    Ok(is_cancelled)
}

/// Writes a receipt, unless it is there already, or one says that the message was delivered. Returns whether it did. An
/// ended subscription has none.
fn write(conn: &Connection, request: &ReceiptRequest, receipt: Receipt) -> rusqlite::Result<bool> {
    let ReceiptRequest { subscription, key } = request;
    let was_counted = remove_expected(conn, request)?;
    if feeds::sequence(conn, subscription.as_str())?.is_none() {
        return Ok(false);
    }
    match value(conn, request)? {
        Some(before) if before == receipt.value() || is_delivered(&before) => Ok(false),
        before => {
            feeds::write(conn, subscription.as_str(), key, &receipt.value(), u64::MAX)?;
            if before.is_none() && was_counted {
                // It was counted when it was expected.
                change(conn, UNCOUNT, params![subscription.as_str()])?;
            }
            Ok(true)
        }
    }
}

fn is_delivered(receipt: &FeedValue) -> bool {
    matches!(Receipt::parse(receipt), Some(Receipt::Delivered(_)))
}

fn remove_expected(conn: &Connection, request: &ReceiptRequest) -> rusqlite::Result<bool> {
    let ReceiptRequest { subscription, key } = request;
    change(conn, CANCEL, params![subscription.as_str(), key.as_str()])
}

fn value(conn: &Connection, request: &ReceiptRequest) -> rusqlite::Result<Option<FeedValue>> {
    let names = params![request.subscription.as_str(), request.key.as_str()];
    let mut statement = conn.prepare_cached(VALUE)?;
    let value = first_row(&mut statement, names, |row| {
        let value = row.get_ref(0)?.as_str_or_null()?.map(FeedValue::parse).transpose();
        value.map_err(|error| corrupt(0, Type::Text, error))
    });
    value.map(Option::flatten)
}

fn expire(conn: &Connection, now: Time) -> rusqlite::Result<ExpiredReceipts> {
    let mut expired = ExpiredReceipts::default();
    let mut statement = conn.prepare_cached(DUE)?;
    let due = statement.query_map(params![to_i64(now.0), DECIDED_MAX], |row| decode(0, row))?;
    let due = due.collect::<rusqlite::Result<Vec<_>>>()?;
    expired.is_more = due.len() == DECIDED_MAX as usize;
    for ExpectedReceipt { request, .. } in due {
        expired.receipts += u64::from(write(conn, &request, Receipt::Expired)?);
        if !expired.subscriptions.contains(&request.subscription) {
            expired.subscriptions.push(request.subscription);
        }
    }
    let mut statement = conn.prepare_cached(ENDED)?;
    let first = FeedName::receipts_ended(Time(0));
    let names = params![first, FeedName::receipts_ended(now)];
    if let Some(ended) = first_row(&mut statement, names, |row| row.get::<_, String>(0))? {
        expired.is_more = true;
        expired.ended = u64::from(remove(conn, &ended)?);
    }
    Ok(expired)
}

/// Removes a page of an ended subscription. Returns whether that was the last.
fn remove(conn: &Connection, feed: &str) -> rusqlite::Result<bool> {
    for statement in [REMOVE_KEYS, REMOVE_EXPECTED] {
        if conn.prepare_cached(statement)?.execute(params![feed, DECIDED_MAX])? > 0 {
            return Ok(false);
        }
    }
    conn.prepare_cached(feeds::REMOVE_SEQUENCE)?.execute(params![feed])?;
    Ok(true)
}

/// Reads feed, key and deadline from this column on.
pub(super) fn decode(column: usize, row: &Row<'_>) -> rusqlite::Result<ExpectedReceipt> {
    let subscription = FeedName::from_store(row.get_ref(column)?.as_str()?);
    let subscription = subscription.map_err(|error| corrupt(column, Type::Text, error))?;
    let key = FeedKey::parse(row.get_ref(column + 1)?.as_str()?);
    let key = key.map_err(|error| corrupt(column + 1, Type::Text, error))?;
    let deadline = Time(from_i64(row.get(column + 2)?));
    Ok(ExpectedReceipt { request: ReceiptRequest { subscription, key }, deadline })
}

pub(super) const EXPECT: &str = "
    INSERT OR IGNORE INTO receipts_expected (feed, key, deadline) VALUES (?1, ?2, ?3)";

pub(super) const IS_EXPECTED: &str = "
    SELECT 1 FROM receipts_expected WHERE feed = ?1 AND key = ?2";

pub(super) const CANCEL: &str = "DELETE FROM receipts_expected WHERE feed = ?1 AND key = ?2";

pub(super) const UNCOUNT: &str = "UPDATE sequences SET keys = keys - 1 WHERE name = ?1";

pub(super) const VALUE: &str = "SELECT value FROM feed_keys WHERE feed = ?1 AND key = ?2";

pub(super) const DUE: &str = "
    SELECT feed, key, deadline FROM receipts_expected WHERE deadline <= ?1
    ORDER BY deadline LIMIT ?2";

pub(super) const ENDED: &str = "
    SELECT name FROM sequences WHERE name > ?1 AND name < ?2 ORDER BY name LIMIT 1";

pub(super) const REMOVE_KEYS: &str = "
    DELETE FROM feed_keys WHERE rowid IN (SELECT rowid FROM feed_keys WHERE feed = ?1 LIMIT ?2)";

pub(super) const REMOVE_EXPECTED: &str = "
    DELETE FROM receipts_expected
    WHERE rowid IN (SELECT rowid FROM receipts_expected WHERE feed = ?1 LIMIT ?2)";

pub(super) const ALL: &str = "
    SELECT rowid, feed, key, deadline FROM receipts_expected WHERE rowid > ?1 ORDER BY rowid";
