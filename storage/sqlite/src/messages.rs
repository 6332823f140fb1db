//! The SQL of the messages of one month.

use std::ops::RangeInclusive;

use rusqlite::types::Type;
use rusqlite::{Connection, params};
use state_machine::{Message, MessageId, MessageKey, Time, Uaid};
use storage::receipts::{Deletion, ExpectedReceipt, Settlement};
use storage::sql::rows::SqlRow;
use storage::sql::values::{self, Value};
use storage::store::{Cursor, Page, PageLimit};

use crate::columns::{change, corrupt, from_i64, to_i64};
use crate::sql_rows::{Columns, bound};

/// Rows that one fetch reads, expired ones included: bounds its cost.
pub(crate) const SCAN_ROWS_MAX: usize = 1000;

/// Rows of one page of a move, a sweep or a drop: bounds how long other jobs wait for the writer.
pub(crate) const PAGE_ROWS_MAX: usize = 100;

/// A page, and the range of the expired rows that were skipped.
#[derive(Debug, Default)]
pub(crate) struct Fetched {
    pub(crate) page: Page,
    pub(crate) expired: Option<RangeInclusive<MessageId>>,
}

/// Inserts the message, whatever waits, unless its channel is missing, its id is stored, or its topic has a newer
/// message. Returns whether it did.
pub(crate) fn insert(conn: &Connection, uaid: Uaid, message: &Message) -> rusqlite::Result<bool> {
    insert_by(conn, STORE, uaid, message)
}

/// Inserts the message of a copy, unless its row is there. Its channel may be missing.
pub(crate) fn insert_row(
    conn: &Connection,
    uaid: Uaid,
    message: &Message,
) -> rusqlite::Result<bool> {
    insert_by(conn, INSERT_ROW, uaid, message)
}

fn insert_by(
    conn: &Connection,
    statement: &str,
    uaid: Uaid,
    message: &Message,
) -> rusqlite::Result<bool> {
    let mut values = values::message(uaid, message);
    values.push(Value::Medium(message.offers.into()));
    change(conn, statement, bound(&values))
}

pub(crate) fn fetch(
    conn: &Connection,
    uaid: Uaid,
    after: Option<&Cursor>,
    limit: PageLimit,
    now: Time,
) -> rusqlite::Result<Fetched> {
    let mut statement = conn.prepare_cached(FETCH)?;
    let mut rows = match after.map(position).transpose()? {
        Some(after) => statement.query(params![uaid.0, &after.to_bytes()[..]])?,
        None => statement.query(params![uaid.0, &[][..]])?,
    };
    let mut fetched = Fetched::default();
    let Fetched { page, expired } = &mut fetched;
    let (mut scanned, mut bytes, mut last) = (0, 0, None);
    while let Some(row) = rows.next()? {
        if scanned >= SCAN_ROWS_MAX || limit.is_reached(page.messages.len(), bytes) {
            page.next = last.map(|last: MessageId| Cursor::new(last.to_string()));
            break;
        }
        let id = MessageId::from_bytes(row.get(0)?);
        if Time(from_i64(row.get(1)?)) <= now {
            let first = expired.as_ref().map_or(id, |expired| *expired.start());
            *expired = Some(first..=id);
        } else {
            let message = Columns(row).message(0)?;
            // The row of a message with a receipt is kept for a while after its TTL.
            if now < message.expires_at() {
                bytes += message.payload.as_ref().map_or(0, |payload| payload.data.len());
                page.messages.push(message);
            }
        }
        (scanned, last) = (scanned + 1, Some(id));
    }
    Ok(fetched)
}

fn position(cursor: &Cursor) -> rusqlite::Result<MessageId> {
    MessageId::parse(cursor.as_str()).map_err(|error| corrupt(0, Type::Text, error))
}

/// Returns the number of deleted messages.
pub(crate) fn delete(
    conn: &Connection,
    uaid: Uaid,
    messages: &[MessageKey],
) -> rusqlite::Result<usize> {
    let mut statement = conn.prepare_cached(DELETE)?;
    messages
        .iter()
        .map(|message| statement.execute(params![uaid.0, message.id.to_bytes(), message.chid.0]))
        .sum()
}

/// Deletes messages whose senders may want receipts. Returns how many, and the receipts of their rows that change.
pub(crate) fn settle(
    conn: &Connection,
    uaid: Uaid,
    messages: &[Deletion],
) -> rusqlite::Result<(usize, Vec<(ExpectedReceipt, Settlement)>)> {
    let mut statement = conn.prepare_cached(SETTLE)?;
    let (mut deleted, mut receipts) = (0, Vec::new());
    for (message, settlement) in messages {
        let parameters = params![uaid.0, message.id.to_bytes(), message.chid.0];
        let mut rows = statement.query(parameters)?;
        while let Some(row) = rows.next()? {
            deleted += 1;
            receipts.extend(Columns(row).receipt_of_message(0)?.zip(*settlement));
        }
    }
    Ok((deleted, receipts))
}

/// The message of the same topic that waits, and its receipt.
pub(crate) struct OfTopic {
    pub(crate) id: MessageId,
    pub(crate) receipt: Option<ExpectedReceipt>,
}

pub(crate) fn of_topic(
    conn: &Connection,
    uaid: Uaid,
    message: &Message,
) -> rusqlite::Result<Option<OfTopic>> {
    let Some(topic) = &message.topic else { return Ok(None) };
    let mut statement = conn.prepare_cached(OF_TOPIC)?;
    let mut rows = statement.query(params![uaid.0, message.chid.0, topic.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let row = Columns(row);
    Ok(Some(OfTopic { id: row.message_id(0)?, receipt: row.receipt_of_message(1)? }))
}

pub(crate) fn record_offers(
    conn: &Connection,
    uaid: Uaid,
    messages: &[MessageKey],
) -> rusqlite::Result<()> {
    let mut statement = conn.prepare_cached(RECORD_OFFER)?;
    for message in messages {
        statement.execute(params![uaid.0, message.id.to_bytes(), message.chid.0])?;
    }
    Ok(())
}

/// Deletes a page of the expired messages of a user agent in a range of ids. Returns whether there may be more.
pub(crate) fn sweep(
    conn: &Connection,
    uaid: Uaid,
    stretch: &RangeInclusive<MessageId>,
    now: Time,
) -> rusqlite::Result<bool> {
    let (first, last) = (stretch.start().to_bytes(), stretch.end().to_bytes());
    let limit = PAGE_ROWS_MAX as i64;
    let mut statement = conn.prepare_cached(SWEEP)?;
    let deleted = statement.execute(params![uaid.0, first, last, to_i64(now.0), limit])?;
    Ok(deleted == PAGE_ROWS_MAX)
}

/// Deletes a page of expired messages of all user agents. Returns whether there may be more.
pub(crate) fn delete_expired(conn: &Connection, now: Time) -> rusqlite::Result<(usize, bool)> {
    let mut statement = conn.prepare_cached(DELETE_EXPIRED)?;
    let deleted = statement.execute(params![to_i64(now.0), PAGE_ROWS_MAX as i64])?;
    Ok((deleted, deleted == PAGE_ROWS_MAX))
}

/// Copies a page of a user agent's messages to the month that its record names. Returns the last one's id if more follow,
/// and adds the receipts that are not expected any more.
///
/// A message of the same topic in the new month stays, whatever the ids: it was pushed after the record had moved, or its
/// push is not answered yet.
pub(crate) fn copy_page(
    from: &Connection,
    to: &Connection,
    uaid: Uaid,
    replaced: &mut Vec<ExpectedReceipt>,
) -> rusqlite::Result<Option<MessageId>> {
    let mut statement = from.prepare_cached(FETCH)?;
    let mut rows = statement.query(params![uaid.0, &[][..]])?;
    let (mut copied, mut last) = (0, None);
    while let Some(row) = rows.next()? {
        if copied == PAGE_ROWS_MAX {
            return Ok(last);
        }
        let message = Columns(row).message(0)?;
        match of_topic(to, uaid, &message)?.filter(|there| there.id != message.id) {
            Some(_) => replaced.extend(ExpectedReceipt::of(&message)),
            None => drop(insert(to, uaid, &message)?),
        }
        (copied, last) = (copied + 1, Some(message.id));
    }
    Ok(None)
}

/// Deletes a user agent's messages up to this one.
pub(crate) fn delete_up_to(conn: &Connection, uaid: Uaid, last: MessageId) -> rusqlite::Result<()> {
    change(conn, DELETE_UP_TO, params![uaid.0, last.to_bytes()]).map(|_is_changed| ())
}

pub(crate) fn delete_all(conn: &Connection, uaid: Uaid) -> rusqlite::Result<()> {
    change(conn, DELETE_ALL, params![uaid.0]).map(|_is_changed| ())
}

pub(crate) const STORE: &str = "
    INSERT INTO messages
        (uaid, id, expires_at, chid, topic, urgency, accepted_at, ttl,
         encoding, encryption, crypto_key, data, receipt, offers)
    SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14
    WHERE EXISTS (SELECT 1 FROM channels WHERE uaid = ?1 AND chid = ?4)
    ON CONFLICT (uaid, chid, topic) WHERE topic IS NOT NULL DO UPDATE SET
        id = excluded.id,
        expires_at = excluded.expires_at,
        urgency = excluded.urgency,
        accepted_at = excluded.accepted_at,
        ttl = excluded.ttl,
        encoding = excluded.encoding,
        encryption = excluded.encryption,
        crypto_key = excluded.crypto_key,
        offers = excluded.offers,
        receipt = excluded.receipt,
        data = excluded.data
        WHERE excluded.id > messages.id
    ON CONFLICT (uaid, id) DO NOTHING";

pub(crate) const INSERT_ROW: &str = "
    INSERT OR IGNORE INTO messages
        (uaid, id, expires_at, chid, topic, urgency, accepted_at, ttl,
         encoding, encryption, crypto_key, data, receipt, offers)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";

pub(crate) const FETCH: &str = "
    SELECT id, expires_at, chid, topic, urgency, accepted_at, ttl,
        encoding, encryption, crypto_key, data, offers, receipt
    FROM messages WHERE uaid = ?1 AND id > ?2 ORDER BY id";

pub(crate) const DELETE: &str = "
    DELETE FROM messages WHERE uaid = ?1 AND id = ?2 AND chid = ?3";

pub(crate) const SETTLE: &str = "
    DELETE FROM messages WHERE uaid = ?1 AND id = ?2 AND chid = ?3 RETURNING receipt, expires_at";

pub(crate) const OF_TOPIC: &str = "
    SELECT id, receipt, expires_at FROM messages
    WHERE uaid = ?1 AND chid = ?2 AND topic = ?3 AND topic IS NOT NULL";

pub(crate) const RECORD_OFFER: &str = "
    UPDATE messages SET offers = offers + 1 WHERE uaid = ?1 AND id = ?2 AND chid = ?3";

pub(crate) const SWEEP: &str = "
    DELETE FROM messages WHERE rowid IN (
        SELECT rowid FROM messages
        WHERE uaid = ?1 AND id BETWEEN ?2 AND ?3 AND expires_at <= ?4 LIMIT ?5)";

pub(crate) const DELETE_EXPIRED: &str = "
    DELETE FROM messages
    WHERE rowid IN (SELECT rowid FROM messages WHERE expires_at <= ?1 LIMIT ?2)";

pub(crate) const DELETE_ALL: &str = "DELETE FROM messages WHERE uaid = ?1";

pub(crate) const DELETE_UP_TO: &str = "DELETE FROM messages WHERE uaid = ?1 AND id <= ?2";
