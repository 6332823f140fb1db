//! The SQL of the router table.

use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};
use state_machine::{BridgeRecipient, LastConnect, Month, NodeId, RouterRecord, Time, Uaid};
use storage::record_row::RecordRow;
use storage::registration::{self, NewRecord};
use storage::rules::record_rows::{Changed, GuardedChange, RecordPage, RecordRows};
use storage::store::{Cursor, RegisterResult};

use crate::columns::{change, corrupt, from_i64, position, to_i64};
use crate::router_file::RouterFile;
use crate::statements::first_row;

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

    async fn change_records(&self, changes: Vec<GuardedChange>) -> rusqlite::Result<u64> {
        let mut written = 0;
        for change in changes {
            written += u64::from(self.change_record(&change).await?.is_done());
        }
        Ok(written)
    }

    /// In the order of the rowids.
    async fn records(&self, after: Option<&Cursor>) -> rusqlite::Result<RecordPage> {
        let mut statement = self.prepare_cached(RECORDS)?;
        let mut rows = statement.query(params![position(after)?, RECORDS_MAX as i64])?;
        let mut page = RecordPage::default();
        while let Some(row) = rows.next()? {
            page.rows.push(decode(row)?);
            if page.rows.len() == RECORDS_MAX {
                page.next = Some(Cursor::new(row.get::<_, i64>(0)?.to_string()));
            }
        }
        Ok(page)
    }
}

pub(crate) fn read(conn: &Connection, uaid: Uaid) -> rusqlite::Result<Option<RouterRecord>> {
    row(conn, uaid).map(|row| row.and_then(RecordRow::served))
}

fn row(conn: &Connection, uaid: Uaid) -> rusqlite::Result<Option<RecordRow>> {
    first_row(&mut *conn.prepare_cached(READ)?, params![uaid.0], decode)
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
    let parameters = params![
        record.uaid.0,
        record.router_type,
        record.node.as_ref().map(NodeId::as_str),
        to_i64(record.connected_at.0),
        to_i64(record.last_connect.0),
        record.curmonth.map(|month| month.to_string()),
        record.oldmonth.map(|month| month.to_string()),
        record.recipient.as_ref().map(|recipient| registration::encode(recipient).to_string()),
        may_replace,
    ];
    change(conn, WRITE, parameters)
}

pub(crate) fn drop_user(conn: &Connection, uaid: Uaid) -> rusqlite::Result<bool> {
    change(conn, DROP, params![uaid.0])
}

pub(crate) fn drop_bridged(
    conn: &Connection,
    uaid: Uaid,
    recipient: &BridgeRecipient,
) -> rusqlite::Result<bool> {
    let is_it = |there: &BridgeRecipient| {
        (there.bridge, &there.app, &there.token)
            == (recipient.bridge, &recipient.app, &recipient.token)
    };
    match row(conn, uaid)?.and_then(|there| there.recipient) {
        Some(there) if is_it(&there) => drop_user(conn, uaid),
        _ => Ok(false),
    }
}

/// The write of a health check.
pub(crate) fn check(conn: &Connection) -> rusqlite::Result<()> {
    change(conn, CHECK, []).map(|_is_changed| ())
}

fn decode(row: &Row<'_>) -> rusqlite::Result<RecordRow> {
    let (router_type, data) = (row.get_ref(2)?.as_str()?, row.get_ref(8)?.as_str_or_null()?);
    let month = |column: usize| {
        let text = row.get_ref(column)?.as_str_or_null()?;
        let month = text.map(str::parse::<Month>).transpose();
        month.map_err(|error| corrupt(column, Type::Text, error))
    };
    Ok(RecordRow {
        uaid: Uaid(row.get(1)?),
        router_type: router_type.to_owned(),
        recipient: registration::recipient(router_type, || serde_json::from_str(data?).ok()),
        node: row.get_ref(3)?.as_str_or_null()?.map(NodeId::new),
        connected_at: Time(from_i64(row.get(4)?)),
        last_connect: LastConnect(from_i64(row.get(5)?)),
        curmonth: month(6)?,
        oldmonth: month(7)?,
    })
}

pub(crate) const READ: &str = "
    SELECT rowid, uaid, router_type, node_id, connected_at, last_connect, curmonth, oldmonth, router_data
    FROM router WHERE uaid = ?1";

pub(crate) const RECORDS: &str = "
    SELECT rowid, uaid, router_type, node_id, connected_at, last_connect, curmonth, oldmonth, router_data
    FROM router WHERE rowid > ?1 ORDER BY rowid LIMIT ?2";

/// The last parameter is whether a record that is there is replaced. It keeps the data of a recipient that this program cannot
/// read.
pub(crate) const WRITE: &str = "
    INSERT INTO router
        (uaid, router_type, node_id, connected_at, last_connect, curmonth, oldmonth, router_data)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT (uaid) DO UPDATE SET
        router_type = excluded.router_type,
        node_id = excluded.node_id,
        connected_at = excluded.connected_at,
        last_connect = excluded.last_connect,
        curmonth = excluded.curmonth,
        oldmonth = excluded.oldmonth,
        router_data = ifnull(excluded.router_data, router_data)
        WHERE ?9";

pub(crate) const DROP: &str = "DELETE FROM router WHERE uaid = ?1";

const CHECK: &str = "
    INSERT INTO health (id, checks) VALUES (1, 1)
    ON CONFLICT (id) DO UPDATE SET checks = checks + 1";
