//! The SQL of copies of a whole store: pages of tables, and their rows as they are.

use rusqlite::{Connection, Row, params};
use state_machine::{Chid, Uaid};
use storage::copied_rows::{CopiedPage, CopiedRow, PAGE_BYTES_MAX, PAGE_ROWS_MAX};
use storage::maintenance::Table;
use storage::rules::finished;
use storage::rules::record_rows::RecordRows;
use storage::sql::copies::{self, Copied};
use storage::sql::rows::SqlRow;
use storage::store::Cursor;

use crate::columns::{no_position, position, too_large};
use crate::copy_table::{ALL_CHANNELS, ALL_MESSAGES, CopyPosition};
use crate::router_file::RouterFile;
use crate::sql_rows::{Columns, query};
use crate::statements::first_row;
use crate::{channels, messages};

pub(crate) fn read(
    conn: &Connection,
    table: Table,
    after: Option<&Cursor>,
) -> rusqlite::Result<CopiedPage> {
    match table {
        Table::Router => finished(RouterFile(conn).records(after)).map(CopiedPage::from),
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
    if let Some((statement, values)) = copies::write(row).map_err(too_large)? {
        return query(conn, statement, &values).map(drop);
    }
    match row {
        CopiedRow::Channels(uaid, chids) => channels::add(conn, *uaid, chids),
        CopiedRow::Message(uaid, message) => messages::insert_row(conn, *uaid, message).map(drop),
        _ => Ok(()),
    }
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
        let row = Columns(row);
        Ok(CopiedRow::Version(row.uaid(0)?, row.notification(1)?))
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
    let feeds = statement
        .query_map(params![after, PAGE_ROWS_MAX as i64], |row| Columns(row).feed_state(0))?;
    let feeds = feeds.collect::<rusqlite::Result<Vec<_>>>()?;
    let next = feeds.get(PAGE_ROWS_MAX - 1).map(|last| Cursor::new(last.name.as_str()));
    let rows = feeds.into_iter().map(CopiedRow::Sequence).collect();
    Ok(CopiedPage { rows, next, ..CopiedPage::default() })
}

fn read_keys(conn: &Connection, after: Option<&Cursor>) -> rusqlite::Result<CopiedPage> {
    page_by_rowid(conn, KEYS, after, |row| copies::read_key(row, 1))
}

/// Before the rowid in positions behind the keys.
const EXPECTED: &str = "expected ";

fn read_expected(conn: &Connection, after: &str) -> rusqlite::Result<CopiedPage> {
    let after = Cursor::new(after);
    let page =
        page_by_rowid(conn, EXPECTED_ROWS, Some(&after), |row| copies::read_expected(row, 1));
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
        page.rows.push(CopiedRow::Message(Uaid(row.get(13)?), Columns(row).message(0)?));
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
    decode: impl Fn(&Columns<&Row<'_>>) -> rusqlite::Result<Copied>,
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
        let (read, bytes_read) = decode(&Columns(row))?;
        page.rows.extend(read);
        bytes += bytes_read;
        last = row.get(0)?;
    }
    Ok(page)
}

pub(crate) const VERSIONS: &str = "
    SELECT uaid, chid, version, data FROM notifications
    WHERE (uaid, chid) > (?1, ?2) ORDER BY uaid, chid LIMIT ?3";

/// Also those of receipt subscriptions, which a list of feeds leaves out.
pub(crate) const SEQUENCES: &str = "
    SELECT name, value, version, keys, horizon, forgotten, mark, marked_at
    FROM sequences WHERE name > ?1 ORDER BY name LIMIT ?2";

pub(crate) const KEYS: &str = "
    SELECT rowid, feed, key, version, feed_sync_id, value
    FROM feed_keys WHERE rowid > ?1 ORDER BY rowid";

pub(crate) const EXPECTED_ROWS: &str = "
    SELECT rowid, feed, key, deadline FROM receipts_expected WHERE rowid > ?1 ORDER BY rowid";
