//! The SQL of the router table.

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};
use state_machine::{LastConnect, Month, NodeId, RouterRecord, RouterType, Time, Uaid};

use super::columns::{change, corrupt, from_i64, to_i64};
use crate::store::{MonthStep, RegisterResult, Registration};

pub(super) fn read(conn: &Connection, uaid: Uaid) -> rusqlite::Result<Option<RouterRecord>> {
    let row = conn.prepare_cached(READ)?.query_row(params![uaid.0], |row| decode(uaid, row));
    row.optional().map(Option::flatten)
}

/// Reads, then writes: no other thread changes records in between.
pub(super) fn register(
    conn: &Connection,
    registration: &Registration,
) -> rusqlite::Result<RegisterResult> {
    let Registration { uaid, ref router_type, ref node, connected_at, last_connect, create_in } =
        *registration;
    let there = read(conn, uaid)?;
    let before = there.as_ref().and_then(RouterRecord::binding);
    let (curmonth, oldmonth) = match (there, create_in) {
        (Some(record), _) if record.connected_at >= connected_at => {
            return Ok(RegisterResult::Superseded(record.connected_at));
        }
        (Some(record), _) => (record.curmonth, record.oldmonth),
        (None, Some(month)) => (month, None),
        (None, None) => return Ok(RegisterResult::UnknownAgent),
    };
    let parameters = params![
        uaid.0,
        router_type.as_str(),
        node.as_str(),
        to_i64(connected_at.0),
        to_i64(last_connect.0),
        curmonth.to_string(),
        oldmonth.map(|month: Month| month.to_string()),
    ];
    if !change(conn, WRITE, parameters)? {
        return Ok(RegisterResult::UnknownAgent);
    }
    let (node, router_type) = (Some(node.clone()), router_type.clone());
    let record =
        RouterRecord { uaid, router_type, node, connected_at, last_connect, curmonth, oldmonth };
    Ok(RegisterResult::Registered(record, before))
}

/// Creates a record, unless there is one. Returns whether it did.
pub(super) fn create(conn: &Connection, record: &RouterRecord) -> rusqlite::Result<bool> {
    let RouterRecord { uaid, ref router_type, ref node, connected_at, last_connect, .. } = *record;
    let parameters = params![
        uaid.0,
        router_type.as_str(),
        node.as_ref().map(NodeId::as_str),
        to_i64(connected_at.0),
        to_i64(last_connect.0),
        record.curmonth.to_string(),
        record.oldmonth.map(|month| month.to_string()),
    ];
    change(conn, CREATE, parameters)
}

pub(super) fn update_message_month(conn: &Connection, step: &MonthStep) -> rusqlite::Result<bool> {
    let MonthStep { uaid, ref node, connected_at, from, to, last_connect } = *step;
    let (from, to) = (from.to_string(), to.to_string());
    let (connected_at, last_connect) = (to_i64(connected_at.0), to_i64(last_connect.0));
    let parameters = params![uaid.0, node.as_str(), connected_at, to, from, last_connect];
    change(conn, UPDATE_MONTH, parameters)
}

pub(super) fn finish_month_move(conn: &Connection, step: &MonthStep) -> rusqlite::Result<bool> {
    let MonthStep { uaid, ref node, connected_at, from, .. } = *step;
    let parameters = params![uaid.0, node.as_str(), to_i64(connected_at.0), from.to_string()];
    change(conn, FINISH_MOVE, parameters)
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

/// The write of a health check.
pub(super) fn check(conn: &Connection) -> rusqlite::Result<()> {
    change(conn, CHECK, []).map(|_is_changed| ())
}

/// None for a record with another router type.
fn decode(uaid: Uaid, row: &Row<'_>) -> rusqlite::Result<Option<RouterRecord>> {
    let Some(router_type) = RouterType::parse(row.get_ref(0)?.as_str()?) else { return Ok(None) };
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

pub(super) fn month(column: usize, text: &str) -> rusqlite::Result<Month> {
    text.parse().map_err(|error| corrupt(column, Type::Text, error))
}

pub(super) const READ: &str = "
    SELECT router_type, node_id, connected_at, last_connect, curmonth, oldmonth
    FROM router WHERE uaid = ?1";

pub(super) const WRITE: &str = "
    INSERT INTO router
        (uaid, router_type, node_id, connected_at, last_connect, curmonth, oldmonth)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
    ON CONFLICT (uaid) DO UPDATE SET
        router_type = excluded.router_type,
        node_id = excluded.node_id,
        connected_at = excluded.connected_at,
        last_connect = excluded.last_connect,
        curmonth = excluded.curmonth,
        oldmonth = excluded.oldmonth
        WHERE router.router_type = excluded.router_type";

const CREATE: &str = "
    INSERT INTO router
        (uaid, router_type, node_id, connected_at, last_connect, curmonth, oldmonth)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
    ON CONFLICT (uaid) DO NOTHING";

pub(super) const UPDATE_MONTH: &str = "
    UPDATE router SET curmonth = ?4, oldmonth = ?5, last_connect = ?6
    WHERE uaid = ?1 AND node_id = ?2 AND connected_at = ?3";

pub(super) const FINISH_MOVE: &str = "
    UPDATE router SET oldmonth = nullif(oldmonth, ?4)
    WHERE uaid = ?1 AND node_id = ?2 AND connected_at = ?3";

pub(super) const CLEAR_NODE: &str = "
    UPDATE router SET node_id = NULL
    WHERE uaid = ?1 AND node_id = ?2 AND connected_at = ?3";

pub(super) const DROP: &str = "DELETE FROM router WHERE uaid = ?1";

const CHECK: &str = "
    INSERT INTO health (id, checks) VALUES (1, 1)
    ON CONFLICT (id) DO UPDATE SET checks = checks + 1";
