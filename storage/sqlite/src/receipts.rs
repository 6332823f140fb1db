//! Receipts, in the router's file with the feeds that they are published in.
//!
//! A message is in the file of its month. The router's file is committed first, so that a row that is gone has left its
//! receipt (`write_connections`).

use std::sync::Arc;

use futures_util::TryFutureExt;
use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};
use state_machine::feed::{FeedKey, FeedName};
use state_machine::{MessageKey, Month, ReceiptRequest, Time, Uaid};
use storage::data_dir::FileKey;
use storage::receipts::{Deletion, ExpectedReceipt, ExpiredReceipts, ReceiptTables, Settlement};
use storage::rules::finished;
use storage::rules::receipts as rules;
use storage::store::{Cursor, SettledMessages, StoreFuture};

use crate::columns::{change, corrupt, from_i64, to_i64};
use crate::error::WriterError;
use crate::router_file::RouterFile;
use crate::statements::{first_row, has_row};
use crate::write_connections::WriteConnections;
use crate::writer::Target;
use crate::{Embedded, feeds, messages};

/// Receipts that one job decides, and rows of an ended subscription that it removes: bounds how long other jobs wait.
pub(crate) const DECIDED_MAX: usize = 100;

impl ReceiptTables for Embedded {
    fn expect_receipt(&self, expected: ExpectedReceipt, messages_max: u64) -> StoreFuture<bool> {
        let space = Arc::clone(&self.space);
        self.writer.submit(None, Target::File(FileKey::Router), move |files| {
            space.admit()?;
            files.write(FileKey::Router, |conn| {
                finished(rules::expect(&RouterFile(conn), &expected, messages_max))
            })
        })
    }

    fn cancel_receipt(&self, expected: ExpectedReceipt) -> StoreFuture<()> {
        self.write(None, FileKey::Router, move |conn| {
            finished(rules::cancel(&RouterFile(conn), &expected))
        })
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
        self.write(None, FileKey::Router, move |conn| {
            finished(rules::expire(&RouterFile(conn), now))
        })
    }
}

impl Embedded {
    /// Deletes messages, and writes or cancels their receipts.
    pub(crate) fn settle(
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
    let mut receipts = Vec::new();
    for month in months {
        let done = files.write_if_there(*month, |conn| messages::settle(conn, uaid, messages))?;
        let (deleted, of_month) = done.unwrap_or_default();
        settled.deleted += deleted;
        receipts.extend(of_month);
    }
    if !receipts.is_empty() {
        settled.subscriptions = files.write_receipts(|conn| apply(conn, &receipts))?;
    }
    Ok(settled)
}

/// Writes or cancels receipts. Returns the subscriptions that have unpublished ones now.
fn apply(
    conn: &Connection,
    settled: &[(ExpectedReceipt, Settlement)],
) -> rusqlite::Result<Vec<FeedName>> {
    let mut written = Vec::new();
    for (expected, settlement) in settled {
        let subscription = &expected.request.subscription;
        let is_new = finished(rules::settle(&RouterFile(conn), expected, *settlement))?;
        if is_new && !written.contains(subscription) {
            written.push(subscription.clone());
        }
    }
    Ok(written)
}

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

/// Removes a page of a subscription that has ended.
pub(crate) fn remove_ended(conn: &Connection, now: Time) -> rusqlite::Result<(u64, bool)> {
    let names = params![FeedName::receipts_ended(Time(0)), FeedName::receipts_ended(now)];
    let ended = first_row(&mut *conn.prepare_cached(ENDED)?, names, |row| row.get::<_, String>(0))?;
    let Some(ended) = ended else { return Ok((0, false)) };
    for statement in [REMOVE_KEYS, REMOVE_EXPECTED] {
        if change(conn, statement, params![ended, DECIDED_MAX as i64])? {
            return Ok((0, true));
        }
    }
    change(conn, feeds::REMOVE_SEQUENCE, params![ended])?;
    Ok((1, true))
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

pub(crate) const ENDED: &str = "
    SELECT name FROM sequences WHERE name > ?1 AND name < ?2 ORDER BY name LIMIT 1";

pub(crate) const REMOVE_KEYS: &str = "
    DELETE FROM feed_keys WHERE rowid IN (SELECT rowid FROM feed_keys WHERE feed = ?1 LIMIT ?2)";

pub(crate) const REMOVE_EXPECTED: &str = "
    DELETE FROM receipts_expected
    WHERE rowid IN (SELECT rowid FROM receipts_expected WHERE feed = ?1 LIMIT ?2)";

pub(crate) const ALL: &str = "
    SELECT rowid, feed, key, deadline FROM receipts_expected WHERE rowid > ?1 ORDER BY rowid";

#[cfg(test)]
mod tests {
    use state_machine::{AckCode, Receipt};

    use super::*;
    use crate::schema::ROUTER;

    /// No rule leaves such rows, but a copy of a damaged store may.
    #[test]
    fn what_is_expected_beside_a_receipt_holds_up_no_other() {
        let mut conn = Connection::open_in_memory().unwrap();
        ROUTER.create(&mut conn, "in memory".as_ref()).unwrap();
        let subscription = FeedName::receipts(Time(u64::MAX), 7);
        let expected = |number: usize| {
            let key = FeedKey::parse(&format!("{number:03}")).unwrap();
            let request = ReceiptRequest { subscription: subscription.clone(), key };
            ExpectedReceipt { request, deadline: Time(number as u64) }
        };
        for number in 0..=DECIDED_MAX {
            assert!(finished(rules::expect(&RouterFile(&conn), &expected(number), 1000)).unwrap());
        }
        let delivered = Receipt::Delivered(AckCode::Delivered);
        for number in 0..DECIDED_MAX {
            assert!(
                finished(rules::write(&RouterFile(&conn), &expected(number), delivered)).unwrap()
            );
            assert!(insert(&conn, &expected(number)).unwrap());
        }
        let first = finished(rules::expire(&RouterFile(&conn), Time(1000))).unwrap();
        assert_eq!((first.receipts, first.is_more), (0, true));
        let second = finished(rules::expire(&RouterFile(&conn), Time(1000))).unwrap();
        assert_eq!((second.receipts, second.is_more), (1, false));
    }
}
