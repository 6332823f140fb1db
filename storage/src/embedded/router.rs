//! The SQL of the router table.

use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};
use state_machine::{
    BridgeRecipient, LastConnect, Month, NodeId, RouterRecord, RouterType, Time, Uaid,
};

use super::columns::{change, corrupt, from_i64, to_i64};
use super::statements::first_row;
use crate::registration::{self, NewRecord};
use crate::store::{MonthStep, RegisterResult};

pub(super) fn read(conn: &Connection, uaid: Uaid) -> rusqlite::Result<Option<RouterRecord>> {
    let mut statement = conn.prepare_cached(READ)?;
    first_row(&mut statement, params![uaid.0], |row| decode(uaid, row)).map(Option::flatten)
}

/// Reads, then writes: no other thread changes records in between.
pub(super) fn register(conn: &Connection, new: &NewRecord) -> rusqlite::Result<RegisterResult> {
    let there = read(conn, new.uaid)?;
    let is_there = there.is_some();
    let before = there.as_ref().and_then(RouterRecord::binding);
    let (curmonth, oldmonth) = match (there, new.create_in) {
        (Some(record), _) if !new.may_replace(&record.router_type) => {
            return Ok(RegisterResult::UnknownAgent);
        }
        (Some(record), _) if record.connected_at >= new.connected_at => {
            return Ok(RegisterResult::Superseded(record.connected_at));
        }
        (Some(record), _) => (record.curmonth, record.oldmonth),
        (None, Some(month)) => (month, None),
        (None, None) => return Ok(RegisterResult::UnknownAgent),
    };
    let record = new.record(curmonth, oldmonth);
    match write(conn, &record, is_there)? {
        true => Ok(RegisterResult::Registered(record, before)),
        false => Ok(RegisterResult::UnknownAgent),
    }
}

/// Creates a record, unless there is one. Returns whether it did.
pub(super) fn create(conn: &Connection, record: &RouterRecord) -> rusqlite::Result<bool> {
    write(conn, record, false)
}

/// Writes a whole record. One that is there stays, unless `may_replace`. Returns whether it was written.
fn write(conn: &Connection, record: &RouterRecord, may_replace: bool) -> rusqlite::Result<bool> {
    let RouterRecord { uaid, ref router_type, ref node, connected_at, last_connect, .. } = *record;
    let parameters = params![
        uaid.0,
        router_type.as_str(),
        node.as_ref().map(NodeId::as_str),
        to_i64(connected_at.0),
        to_i64(last_connect.0),
        record.curmonth.to_string(),
        record.oldmonth.map(|month| month.to_string()),
        router_type.recipient().map(|recipient| registration::encode(recipient).to_string()),
        may_replace,
    ];
    change(conn, WRITE, parameters)
}

pub(super) fn update_message_month(conn: &Connection, step: &MonthStep) -> rusqlite::Result<bool> {
    let MonthStep { uaid, ref node, connected_at, from, to, last_connect } = *step;
    if node.is_none()
        && !is_bridged(conn, step, |record| record.oldmonth.is_none() && record.curmonth == from)?
    {
        return Ok(false);
    }
    let (from, to) = (from.to_string(), to.to_string());
    let (connected_at, last_connect) = (to_i64(connected_at.0), to_i64(last_connect.0));
    let node = node.as_ref().map(NodeId::as_str);
    let parameters = params![uaid.0, node, connected_at, to, from, last_connect];
    change(conn, UPDATE_MONTH, parameters)
}

pub(super) fn finish_month_move(conn: &Connection, step: &MonthStep) -> rusqlite::Result<bool> {
    let MonthStep { uaid, ref node, connected_at, from, .. } = *step;
    if node.is_none() && !is_bridged(conn, step, |_record| true)? {
        return Ok(false);
    }
    let node = node.as_ref().map(NodeId::as_str);
    change(conn, FINISH_MOVE, params![uaid.0, node, to_i64(connected_at.0), from.to_string()])
}

/// Whether the record is one of an agent behind a bridge and has this property.
fn is_bridged(
    conn: &Connection,
    step: &MonthStep,
    property: impl FnOnce(&RouterRecord) -> bool,
) -> rusqlite::Result<bool> {
    let record = read(conn, step.uaid)?;
    Ok(record.is_some_and(|record| record.router_type.recipient().is_some() && property(&record)))
}

pub(super) fn clear_node(
    conn: &Connection,
    uaid: Uaid,
    node: &NodeId,
    connected_at: Time,
) -> rusqlite::Result<bool> {
    change(conn, CLEAR_NODE, params![uaid.0, node.as_str(), to_i64(connected_at.0)])
}

pub(super) fn drop_user(conn: &Connection, uaid: Uaid) -> rusqlite::Result<bool> {
    change(conn, DROP, params![uaid.0])
}

pub(super) fn drop_bridged(
    conn: &Connection,
    uaid: Uaid,
    recipient: &BridgeRecipient,
) -> rusqlite::Result<bool> {
    let is_it = |there: &BridgeRecipient| {
        (there.bridge, &there.app, &there.token)
            == (recipient.bridge, &recipient.app, &recipient.token)
    };
    match read(conn, uaid)?.map(|record| record.router_type) {
        Some(RouterType::Bridge(there)) if is_it(&there) => drop_user(conn, uaid),
        _ => Ok(false),
    }
}

/// The write of a health check.
pub(super) fn check(conn: &Connection) -> rusqlite::Result<()> {
    change(conn, CHECK, []).map(|_is_changed| ())
}

/// None for a record that is not served.
fn decode(uaid: Uaid, row: &Row<'_>) -> rusqlite::Result<Option<RouterRecord>> {
    let data = row.get_ref(6)?.as_str_or_null()?;
    let Some(router_type) = router_type(row.get_ref(0)?.as_str()?, data) else { return Ok(None) };
    Ok(Some(RouterRecord {
        uaid,
        router_type,
        node: row.get_ref(1)?.as_str_or_null()?.map(NodeId::new),
        connected_at: Time(from_i64(row.get(2)?)),
        last_connect: LastConnect(from_i64(row.get(3)?)),
        curmonth: month(4, row.get_ref(4)?.as_str()?)?,
        oldmonth: row.get_ref(5)?.as_str_or_null()?.map(|text| month(5, text)).transpose()?,
    }))
}

/// How an agent is reached. None for a record that is not served.
pub(super) fn router_type(name: &str, router_data: Option<&str>) -> Option<RouterType> {
    registration::router_type(name, || serde_json::from_str(router_data?).ok())
}

pub(super) fn month(column: usize, text: &str) -> rusqlite::Result<Month> {
    text.parse().map_err(|error| corrupt(column, Type::Text, error))
}

pub(super) const READ: &str = "
    SELECT router_type, node_id, connected_at, last_connect, curmonth, oldmonth, router_data
    FROM router WHERE uaid = ?1";

/// The last parameter is whether a record that is there is replaced.
pub(super) const WRITE: &str = "
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
        router_data = excluded.router_data
        WHERE ?9";

pub(super) const UPDATE_MONTH: &str = "
    UPDATE router SET curmonth = ?4, oldmonth = ?5, last_connect = ?6
    WHERE uaid = ?1 AND node_id IS ?2 AND connected_at = ?3";

pub(super) const FINISH_MOVE: &str = "
    UPDATE router SET oldmonth = nullif(oldmonth, ?4)
    WHERE uaid = ?1 AND node_id IS ?2 AND connected_at = ?3";

pub(super) const CLEAR_NODE: &str = "
    UPDATE router SET node_id = NULL
    WHERE uaid = ?1 AND node_id = ?2 AND connected_at = ?3";

pub(super) const DROP: &str = "DELETE FROM router WHERE uaid = ?1";

const CHECK: &str = "
    INSERT INTO health (id, checks) VALUES (1, 1)
    ON CONFLICT (id) DO UPDATE SET checks = checks + 1";
