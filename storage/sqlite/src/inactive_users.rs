//! The SQL of inactive users, which are found by the index on `last_connect`, and of dropping users.

use rusqlite::{Connection, params};
use state_machine::{LastConnect, Uaid};
use storage::maintenance::{
    DROPPED, InactiveUser, InactiveUsers, MonthRange, ROWS_IN_A_STEP, USERS_IN_A_BATCH,
};
use storage::store::Cursor;

use crate::columns::{from_i64, no_position, to_i64};
use crate::messages::PAGE_ROWS_MAX;

pub(crate) fn find(
    conn: &Connection,
    seen: MonthRange,
    after: Option<&Cursor>,
) -> rusqlite::Result<InactiveUsers> {
    let keys = seen.keys();
    let before_all = InactiveUser { uaid: Uaid([0; 16]), last_connect: keys.start };
    let InactiveUser { uaid, last_connect } = after
        .map(|after| InactiveUser::at(after).ok_or_else(no_position))
        .transpose()?
        .unwrap_or(before_all);
    let mut statement = conn.prepare_cached(FIND)?;
    let parameters =
        params![to_i64(last_connect.0), uaid.0, to_i64(keys.end.0), USERS_IN_A_BATCH as i64];
    let rows = statement.query_map(parameters, |row| {
        Ok(InactiveUser {
            uaid: Uaid(row.get(1)?),
            last_connect: LastConnect(from_i64(row.get(0)?)),
        })
    })?;
    let users = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    let next = users.get(USERS_IN_A_BATCH - 1).map(InactiveUser::cursor);
    Ok(InactiveUsers { users, next })
}

/// Deletes the channels of the first of these users in a month, and a step of their messages, until a page of rows is
/// full. Returns the number of users and of rows.
pub(crate) fn delete_page(conn: &Connection, uaids: &[Uaid]) -> rusqlite::Result<(usize, usize)> {
    let mut channels = conn.prepare_cached(DELETE_CHANNELS)?;
    let mut messages = conn.prepare_cached(DELETE_MESSAGES)?;
    let (mut users, mut rows) = (0, 0);
    while users < uaids.len() && rows < PAGE_ROWS_MAX {
        let uaid = uaids[users].0;
        rows += channels.execute(params![uaid])?;
        rows += messages.execute(params![uaid, ROWS_IN_A_STEP as i64])?;
        users += 1;
    }
    Ok((users, rows))
}

pub(crate) fn delete_marked(conn: &Connection, uaids: &[Uaid]) -> rusqlite::Result<()> {
    let mut delete = conn.prepare_cached(DELETE_MARKED)?;
    uaids.iter().try_for_each(|uaid| delete.execute(params![uaid.0, DROPPED]).map(|_deleted| ()))
}

pub(crate) const FIND: &str = "
    SELECT last_connect, uaid FROM router
    WHERE (last_connect, uaid) > (?1, ?2) AND last_connect < ?3
    ORDER BY last_connect, uaid LIMIT ?4";

const DELETE_MARKED: &str = "DELETE FROM router WHERE uaid = ?1 AND router_type = ?2";

pub(crate) const DELETE_CHANNELS: &str = "DELETE FROM channels WHERE uaid = ?1";

pub(crate) const DELETE_MESSAGES: &str = "
    DELETE FROM messages WHERE rowid IN (SELECT rowid FROM messages WHERE uaid = ?1 LIMIT ?2)";
