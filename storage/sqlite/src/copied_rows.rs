//! The SQL of copies of a whole store: pages of tables, and their rows as they are.

use rusqlite::types::Type;
use rusqlite::{Connection, Row as SqlRow, params};
use state_machine::{Chid, ReceiptRequest, Uaid};
use storage::copied_rows::{CopiedPage, CopiedRow, PAGE_BYTES_MAX, PAGE_ROWS_MAX};
use storage::feeds::FeedName;
use storage::maintenance::Table;
use storage::notifications::Notification;
use storage::receipts::ExpectedReceipt;
use storage::record_row::RecordRow;
use storage::rules::feed_rows::KeyRow;
use storage::rules::finished;
use storage::rules::record_rows::RecordRows;
use storage::store::Cursor;

use crate::columns::{change, corrupt, no_position, position, to_i64};
use crate::copy_table::{ALL_CHANNELS, ALL_MESSAGES, CopyPosition};
use crate::feed_rows::{self, to_column};
use crate::router_file::RouterFile;
use crate::statements::first_row;
use crate::{channels, expected_receipts, messages, notifications, router};

pub(crate) fn read(
    conn: &Connection,
    table: Table,
    after: Option<&Cursor>,
) -> rusqlite::Result<CopiedPage> {
    match table {
        Table::Router => read_records(conn, after),
        Table::Notifications => read_versions(conn, after),
        Table::Sequences => read_sequences(conn, after),
        Table::Feeds => match after.map(|after| after.as_str().strip_prefix(EXPECTED)) {
            Some(Some(after)) => read_expected(conn, after),
            _ => read_keys(conn, after).map(|mut page| {
                page.next = page.next.or_else(|| Some(Cursor::new(format!("{EXPECTED}0"))));
                page
            }),
        },
        Table::Messages(_) => {
            match after.map_or(Ok(CopyPosition::Channels(None)), CopyPosition::read)? {
                CopyPosition::Channels(after) => read_channels(conn, after),
                CopyPosition::Messages(after) => read_messages(conn, after),
            }
        }
    }
}

/// Keys of feeds are read as two rows, and the channels of an agent as one.
pub(crate) fn count(conn: &Connection, table: Table) -> rusqlite::Result<u64> {
    let count = |statement: &str| -> rusqlite::Result<u64> {
        let count = first_row(&mut conn.prepare(statement)?, [], |row| row.get::<_, i64>(0))?;
        Ok(count.map_or(0, i64::unsigned_abs))
    };
    Ok(match table {
        Table::Router => count("SELECT count(*) FROM router")?,
        Table::Notifications => count("SELECT count(*) FROM notifications")?,
        Table::Sequences => count("SELECT count(*) FROM sequences")?,
        Table::Feeds => {
            2 * count("SELECT count(*) FROM feed_keys")?
                + count("SELECT count(*) FROM receipts_expected")?
        }
        Table::Messages(_) => {
            count("SELECT count(DISTINCT uaid) FROM channels")?
                + count("SELECT count(*) FROM messages")?
        }
    })
}

pub(crate) fn write(conn: &Connection, row: &CopiedRow) -> rusqlite::Result<()> {
    match row {
        CopiedRow::Record(record) => router::write(conn, record, true).map(drop),
        CopiedRow::Version(uaid, version) => notifications::save(conn, *uaid, version).map(drop),
        CopiedRow::Sequence(feed) => {
            let sequence = feed.sequence;
            let parameters = params![
                feed.name.as_str(),
                to_column(sequence.value.0)?,
                to_column(sequence.version)?,
                to_column(sequence.keys)?,
                to_column(sequence.horizon.0)?,
                to_column(sequence.forgotten.0)?,
                sequence.mark.map(|mark| to_column(mark.number.0)).transpose()?,
                sequence.mark.map(|mark| to_i64(mark.at.0)),
            ];
            change(conn, PUT_SEQUENCE, parameters).map(drop)
        }
        CopiedRow::Key { .. } => Ok(()),
        CopiedRow::Value { feed, key, version, number, value } => {
            let row = KeyRow { version: *version, number: *number };
            feed_rows::put_key(conn, feed, key, row, value.as_ref())
        }
        CopiedRow::ExpectedReceipt { feed, key, deadline } => {
            let request = ReceiptRequest { subscription: feed.clone(), key: key.clone() };
            let expected = ExpectedReceipt { request, deadline: *deadline };
            expected_receipts::insert(conn, &expected).map(drop)
        }
        CopiedRow::Channels(uaid, chids) => channels::add(conn, *uaid, chids),
        CopiedRow::Message(uaid, message) => messages::insert_row(conn, *uaid, message).map(drop),
    }
}

fn read_records(conn: &Connection, after: Option<&Cursor>) -> rusqlite::Result<CopiedPage> {
    let page = finished(RouterFile(conn).records(after))?;
    let rows = page.rows.into_iter().map(|row| CopiedRow::Record(RecordRow { node: None, ..row }));
    Ok(CopiedPage { rows: rows.collect(), next: page.next, ..CopiedPage::default() })
}

fn read_versions(conn: &Connection, after: Option<&Cursor>) -> rusqlite::Result<CopiedPage> {
    let position = |cursor: &Cursor| {
        let (uaid, chid) = cursor.as_str().split_once(' ')?;
        Some((Uaid::parse(uaid).ok()?.0.to_vec(), Chid::parse(chid).ok()?.0.to_vec()))
    };
    let (uaid, chid) = match after {
        None => (Vec::new(), Vec::new()),
        Some(cursor) => position(cursor).ok_or_else(no_position)?,
    };
    let mut statement = conn.prepare_cached(VERSIONS)?;
    let rows = statement.query_map(params![uaid, chid, PAGE_ROWS_MAX as i64], |row| {
        let version = u64::from_be_bytes(row.get(2)?);
        let notification = Notification { chid: Chid(row.get(1)?), version, data: row.get(3)? };
        Ok(CopiedRow::Version(Uaid(row.get(0)?), notification))
    })?;
    let rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    let next = match rows.get(PAGE_ROWS_MAX - 1) {
        Some(CopiedRow::Version(uaid, last)) => Some(Cursor::new(format!("{uaid} {}", last.chid))),
        _ => None,
    };
    Ok(CopiedPage { rows, next, ..CopiedPage::default() })
}

fn read_sequences(conn: &Connection, after: Option<&Cursor>) -> rusqlite::Result<CopiedPage> {
    let after = after.map_or("", Cursor::as_str);
    let mut statement = conn.prepare_cached(SEQUENCES)?;
    let feeds =
        statement.query_map(params![after, PAGE_ROWS_MAX as i64], feed_rows::decode_state)?;
    let feeds = feeds.collect::<rusqlite::Result<Vec<_>>>()?;
    let next = feeds.get(PAGE_ROWS_MAX - 1).map(|last| Cursor::new(last.name.as_str()));
    let rows = feeds.into_iter().map(CopiedRow::Sequence).collect();
    Ok(CopiedPage { rows, next, ..CopiedPage::default() })
}

fn read_keys(conn: &Connection, after: Option<&Cursor>) -> rusqlite::Result<CopiedPage> {
    page_by_rowid(conn, KEYS, after, |row| {
        let feed = FeedName::from_store(row.get_ref(1)?.as_str()?);
        let feed = feed.map_err(|error| corrupt(1, Type::Text, error))?;
        let (key, value) = (feed_rows::key(2, row)?, feed_rows::value(5, row)?);
        let KeyRow { version, number } = feed_rows::decode_key(3, row)?;
        let bytes = value.as_ref().map_or(0, |value| value.as_str().len());
        let of_key = CopiedRow::Key { feed: feed.clone(), key: key.clone(), version, number };
        Ok((vec![of_key, CopiedRow::Value { feed, key, version, number, value }], bytes))
    })
}

/// Before the rowid in positions behind the keys.
const EXPECTED: &str = "expected ";

fn read_expected(conn: &Connection, after: &str) -> rusqlite::Result<CopiedPage> {
    let page = page_by_rowid(conn, expected_receipts::ALL, Some(&Cursor::new(after)), |row| {
        let ExpectedReceipt { request, deadline } = expected_receipts::decode(1, row)?;
        let ReceiptRequest { subscription: feed, key } = request;
        Ok((vec![CopiedRow::ExpectedReceipt { feed, key, deadline }], 0))
    });
    page.map(|mut page| {
        page.next = page.next.map(|next| Cursor::new(format!("{EXPECTED}{}", next.as_str())));
        page
    })
}

fn read_channels(conn: &Connection, after: Option<Uaid>) -> rusqlite::Result<CopiedPage> {
    let mut statement = conn.prepare_cached(ALL_CHANNELS)?;
    let mut rows = statement.query(params![after.as_ref().map_or(&[][..], |uaid| &uaid.0)])?;
    let (mut page, mut seen) = (CopiedPage::default(), 0);
    while let Some(row) = rows.next()? {
        let uaid = Uaid(row.get(0)?);
        if !matches!(page.rows.last(), Some(CopiedRow::Channels(last, _)) if *last == uaid) {
            if let Some(CopiedRow::Channels(last, _)) =
                page.rows.last().filter(|_| seen >= PAGE_ROWS_MAX)
            {
                page.next = Some(CopyPosition::Channels(Some(*last)).cursor());
                return Ok(page);
            }
            page.rows.push(CopiedRow::Channels(uaid, [].into()));
        }
        seen += 1;
        if let Some(CopiedRow::Channels(_, chids)) = page.rows.last_mut()
            && !row.get_ref(1)?.as_blob()?.is_empty()
        {
            chids.insert(Chid(row.get(1)?));
        }
    }
    page.next = Some(CopyPosition::Messages(0).cursor());
    Ok(page)
}

fn read_messages(conn: &Connection, after: i64) -> rusqlite::Result<CopiedPage> {
    let mut statement = conn.prepare_cached(ALL_MESSAGES)?;
    let mut rows = statement.query(params![after, PAGE_ROWS_MAX as i64])?;
    let (mut page, mut last) = (CopiedPage::default(), after);
    while let Some(row) = rows.next()? {
        page.rows.push(CopiedRow::Message(Uaid(row.get(13)?), messages::decode(row)?));
        last = row.get(14)?;
    }
    page.next = (page.rows.len() == PAGE_ROWS_MAX).then(|| CopyPosition::Messages(last).cursor());
    Ok(page)
}

/// Reads a page of a statement whose first column is the rowid. `decode` returns the rows, and the bytes of values in
/// them.
fn page_by_rowid(
    conn: &Connection,
    statement: &str,
    after: Option<&Cursor>,
    decode: impl Fn(&SqlRow<'_>) -> rusqlite::Result<(Vec<CopiedRow>, usize)>,
) -> rusqlite::Result<CopiedPage> {
    let after = position(after)?;
    let mut statement = conn.prepare_cached(statement)?;
    let mut rows = statement.query(params![after])?;
    let (mut page, mut bytes, mut last) = (CopiedPage::default(), 0, after);
    while let Some(row) = rows.next()? {
        if page.rows.len() >= PAGE_ROWS_MAX || bytes >= PAGE_BYTES_MAX {
            page.next = Some(Cursor::new(last.to_string()));
            return Ok(page);
        }
        let (read, bytes_read) = decode(row)?;
        page.rows.extend(read);
        bytes += bytes_read;
        last = row.get(0)?;
    }
    Ok(page)
}

pub(crate) const VERSIONS: &str = "
    SELECT uaid, chid, version, data FROM notifications
    WHERE (uaid, chid) > (?1, ?2) ORDER BY uaid, chid LIMIT ?3";

/// Also those of receipt subscriptions, which [`feed_rows::LIST`] leaves out.
pub(crate) const SEQUENCES: &str = "
    SELECT value, version, keys, horizon, forgotten, mark, marked_at, name
    FROM sequences WHERE name > ?1 ORDER BY name LIMIT ?2";

pub(crate) const KEYS: &str = "
    SELECT rowid, feed, key, version, feed_sync_id, value
    FROM feed_keys WHERE rowid > ?1 ORDER BY rowid";

pub(crate) const PUT_SEQUENCE: &str = "
    INSERT OR REPLACE INTO sequences
        (name, value, version, keys, horizon, forgotten, mark, marked_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
