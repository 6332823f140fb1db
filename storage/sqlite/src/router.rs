//! The SQL of the router table.

use rusqlite::{Connection, params};
use state_machine::{BridgeRecipient, RouterRecord, Uaid};
use storage::record_row::RecordRow;
use storage::registration::NewRecord;
use storage::rules::record_rows::{Changed, GuardedChange, RecordPage, RecordRows};
use storage::sql::rows::SqlRow;
use storage::sql::statements::{DROP_RECORD, READ_RECORD, WRITE_RECORD};
use storage::sql::values;
use storage::store::{Cursor, RegisterResult};

use crate::columns::{change, position};
use crate::router_file::RouterFile;
use crate::sql_rows::{Columns, bound};
use crate::statements::{first_row, has_row};

/// Records in one page.
const RECORDS_MAX: usize = 1000;

/// The writer reads, then writes: no other thread changes records in between.
impl RecordRows for RouterFile<'_> {
    type Error = rusqlite::Error;

    async fn record(&self, uaid: Uaid) -> rusqlite::Result<Option<RecordRow>> {
        row(self, uaid)
    }

    async fn change_record(&self, of_record: &GuardedChange) -> rusqlite::Result<Changed> {
        let GuardedChange { uaid, guards, change } = of_record;
        let Some(there) = row(self, *uaid)? else { return Ok(Changed::Refused(None)) };
        if !guards.iter().all(|guard| guard.holds(&there)) {
            return Ok(Changed::Refused(Some(there)));
        }
        write(self, &change.apply(there.clone()), true)?;
        Ok(Changed::Done(there))
    }

    /// In the order of the rowids.
    async fn records(&self, after: Option<&Cursor>) -> rusqlite::Result<RecordPage> {
        let mut statement = self.prepare_cached(RECORDS)?;
        let mut rows = statement.query(params![position(after)?, RECORDS_MAX as i64])?;
        let mut page = RecordPage::default();
        while let Some(row) = rows.next()? {
            page.rows.push(Columns(row).record(0)?);
            if page.rows.len() == RECORDS_MAX {
                page.next = Some(Cursor::new(row.get::<_, i64>(8)?.to_string()));
            }
        }
        Ok(page)
    }
}

pub(crate) fn read(conn: &Connection, uaid: Uaid) -> rusqlite::Result<Option<RouterRecord>> {
    row(conn, uaid).map(|row| row.and_then(RecordRow::served))
}

fn row(conn: &Connection, uaid: Uaid) -> rusqlite::Result<Option<RecordRow>> {
    let mut statement = conn.prepare_cached(READ_RECORD)?;
    first_row(&mut statement, params![uaid.0], |row| Columns(row).record(0))
}

pub(crate) fn register(conn: &Connection, new: &NewRecord) -> rusqlite::Result<RegisterResult> {
    let result = new.over(row(conn, new.uaid)?.as_ref());
    if let RegisterResult::Registered(record, _before) = &result {
        write(conn, &record.clone().into(), true)?;
    }
    Ok(result)
}

/// Writes a whole record. One that is there stays, unless `may_replace`. Returns whether it was written.
pub(crate) fn write(
    conn: &Connection,
    record: &RecordRow,
    may_replace: bool,
) -> rusqlite::Result<bool> {
    change(conn, WRITE_RECORD, bound(&values::record(record, may_replace)))
}

pub(crate) fn drop_user(conn: &Connection, uaid: Uaid) -> rusqlite::Result<bool> {
    has_row(conn, DROP_RECORD, params![uaid.0])
}

pub(crate) fn drop_bridged(
    conn: &Connection,
    uaid: Uaid,
    recipient: &BridgeRecipient,
) -> rusqlite::Result<bool> {
    match row(conn, uaid)? {
        Some(there) if there.is_reached_by(recipient) => drop_user(conn, uaid),
        _ => Ok(false),
    }
}

/// The write of a health check.
pub(crate) fn check(conn: &Connection) -> rusqlite::Result<()> {
    change(conn, CHECK, []).map(|_is_changed| ())
}

pub(crate) const RECORDS: &str = "
    SELECT uaid, router_type, node_id, connected_at, last_connect, curmonth, oldmonth, router_data, rowid
    FROM router WHERE rowid > ?1 ORDER BY rowid LIMIT ?2";

const CHECK: &str = "
    INSERT INTO health (id, checks) VALUES (1, 1)
    ON CONFLICT (id) DO UPDATE SET checks = checks + 1";
