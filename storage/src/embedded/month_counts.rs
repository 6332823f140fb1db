//! Counts and changes the months that the router records name, and repairs records of the future. The pages follow the rowids, which
//! an update does not change.

use std::collections::BTreeMap;

use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};
use state_machine::{LastConnect, Month, NodeId, Time, Uaid};

use super::columns::{corrupt, from_i64, to_i64};
use super::router;
use super::statements::first_row;
use crate::maintenance::{CopyProgress, RecordsByMonth, RepairClock};
use crate::store::Cursor;

/// Records in one page.
const RECORDS_MAX: i64 = 1000;

pub(super) fn count(conn: &Connection, after: Option<&Cursor>) -> rusqlite::Result<RecordsByMonth> {
    let mut statement = conn.prepare_cached(COUNT)?;
    let mut rows = statement.query(params![position(after)?, RECORDS_MAX])?;
    let mut counts = RecordsByMonth::default();
    let (mut last, mut seen) = (0, 0);
    while let Some(row) = rows.next()? {
        (last, seen) = (row.get(0)?, seen + 1);
        add(&mut counts.curmonth, router::month(1, row.get_ref(1)?.as_str()?)?);
        if let Some(month) = row.get_ref(2)?.as_str_or_null()? {
            add(&mut counts.oldmonth, router::month(2, month)?);
        }
        let (name, data) = (row.get_ref(3)?.as_str()?, row.get_ref(4)?.as_str_or_null()?);
        if let Some(node) = row.get_ref(5)?.as_str_or_null()? {
            *counts.nodes.entry(NodeId::new(node)).or_default() += 1;
        }
        counts.latest = counts.latest.max(Some(Time(from_i64(row.get(6)?))));
        counts.add_type(name, router::router_type(name, data).is_some());
    }
    counts.next = cursor(seen, last);
    Ok(counts)
}

/// Replaces `from` by `to` in a page of the records.
pub(super) fn rename(
    conn: &Connection,
    from: Month,
    to: Month,
    after: Option<&Cursor>,
) -> rusqlite::Result<CopyProgress> {
    let after = position(after)?;
    let page = params![after, RECORDS_MAX];
    let end = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let end = first_row(&mut *conn.prepare_cached(END_OF_PAGE)?, page, end)?;
    let (seen, last): (i64, Option<i64>) = end.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    let last = last.unwrap_or(after);
    let written = conn.prepare_cached(RENAME)?.execute(params![
        after,
        last,
        from.to_string(),
        to.to_string()
    ])?;
    Ok(CopyProgress {
        seen: seen.unsigned_abs(),
        written: written as u64,
        next: cursor(seen, last),
    })
}

/// Repairs the records of a page that are of connections in the future.
pub(super) fn repair(
    conn: &Connection,
    clock: RepairClock,
    after: Option<&Cursor>,
) -> rusqlite::Result<CopyProgress> {
    let mut statement = conn.prepare_cached(RECORDS)?;
    let records = statement.query_map(params![position(after)?, RECORDS_MAX], |row| {
        let (connected_at, last_connect) = (from_i64(row.get(2)?), from_i64(row.get(3)?));
        let rowid: i64 = row.get(0)?;
        Ok((rowid, Uaid(row.get(1)?), Time(connected_at), LastConnect(last_connect)))
    })?;
    let records = records.collect::<rusqlite::Result<Vec<_>>>()?;
    let mut update = conn.prepare_cached(REPAIR)?;
    let mut written = 0;
    for (rowid, uaid, _, there) in records.iter().filter(|record| record.2 > clock.latest) {
        let last_connect = clock.last_connect(*uaid, *there);
        written += update.execute(params![rowid, to_i64(clock.now.0), to_i64(last_connect.0)])?;
    }
    let seen = records.len() as i64;
    let next = records.last().and_then(|(last, ..)| cursor(seen, *last));
    Ok(CopyProgress { seen: records.len() as u64, written: written as u64, next })
}

fn add(counts: &mut BTreeMap<Month, u64>, month: Month) {
    *counts.entry(month).or_default() += 1;
}

fn position(after: Option<&Cursor>) -> rusqlite::Result<i64> {
    after.map_or(Ok(0), |cursor| {
        let position = cursor.as_str().parse();
        position.map_err(|_| corrupt(0, Type::Text, "not a position among router records"))
    })
}

/// None if the page is not full and so was the last.
fn cursor(seen: i64, last: i64) -> Option<Cursor> {
    (seen == RECORDS_MAX).then(|| Cursor::new(last.to_string()))
}

pub(super) const COUNT: &str = "
    SELECT rowid, curmonth, oldmonth, router_type, router_data, node_id, connected_at FROM router
    WHERE rowid > ?1 ORDER BY rowid LIMIT ?2";

pub(super) const RECORDS: &str = "
    SELECT rowid, uaid, connected_at, last_connect FROM router
    WHERE rowid > ?1 ORDER BY rowid LIMIT ?2";

pub(super) const REPAIR: &str =
    "UPDATE router SET connected_at = ?2, last_connect = ?3 WHERE rowid = ?1";

/// The subquery ends after a page, which bounds the outer query.
const END_OF_PAGE: &str = "
    SELECT count(*), max(id) FROM (
        SELECT rowid AS id FROM router WHERE rowid > ?1 ORDER BY rowid LIMIT ?2
    )";

pub(super) const RENAME: &str = "
    UPDATE router SET
        curmonth = iif(curmonth = ?3, ?4, curmonth),
        oldmonth = nullif(iif(oldmonth = ?3, ?4, oldmonth), iif(curmonth = ?3, ?4, curmonth))
    WHERE rowid > ?1 AND rowid <= ?2 AND (curmonth = ?3 OR oldmonth = ?3)";
