//! The SQL of inactive users, which are found by the index on `last_connect`, and of dropping users.

use rusqlite::{Connection, params};
use state_machine::Uaid;
use storage::maintenance::{DROPPED, InactiveUser, InactiveUsers, MonthRange, ROWS_IN_A_STEP};
use storage::sql::inactive_users as sql;
use storage::store::Cursor;

use crate::columns::no_position;
use crate::messages::PAGE_ROWS_MAX;
use crate::sql_rows::query;

pub(crate) fn find(
    conn: &Connection,
    seen: MonthRange,
    after: Option<&Cursor>,
) -> rusqlite::Result<InactiveUsers> {
    let after = after.map(|after| InactiveUser::at(after).ok_or_else(no_position)).transpose()?;
    let (statement, values) = sql::find(seen, after);
    sql::page(&query(conn, statement, &values)?)
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

const DELETE_MARKED: &str = "DELETE FROM router WHERE uaid = ?1 AND router_type = ?2";

pub(crate) const DELETE_CHANNELS: &str = "DELETE FROM channels WHERE uaid = ?1";

pub(crate) const DELETE_MESSAGES: &str = "
    DELETE FROM messages WHERE rowid IN (SELECT rowid FROM messages WHERE uaid = ?1 LIMIT ?2)";
