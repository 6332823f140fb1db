//! Users that stay away, in SQL: found by the index on `last_connect`, dropped by what was read.

use rusqlite::types::Type;
use rusqlite::{Connection, params};
use state_machine::{LastConnect, Uaid};

use super::router;
use super::values::{corrupt, from_i64, to_i64};
use crate::contract::Cursor;
use crate::upkeep::{Months, StaleUser, StaleUsers, USERS_IN_A_BATCH};

pub(super) fn find(
    conn: &Connection,
    seen: Months,
    after: Option<&Cursor>,
) -> rusqlite::Result<StaleUsers> {
    let keys = seen.keys();
    let before_all = StaleUser { uaid: Uaid([0; 16]), last_connect: keys.start };
    let StaleUser { uaid, last_connect } = after.map(place).transpose()?.unwrap_or(before_all);
    let mut statement = conn.prepare_cached(FIND)?;
    let parameters =
        params![to_i64(last_connect.0), uaid.0, to_i64(keys.end.0), USERS_IN_A_BATCH as i64];
    let rows = statement.query_map(parameters, |row| {
        Ok(StaleUser { uaid: Uaid(row.get(1)?), last_connect: LastConnect(from_i64(row.get(0)?)) })
    })?;
    let users = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    let next = users.get(USERS_IN_A_BATCH - 1).map(cursor);
    Ok(StaleUsers { users, next })
}

/// Drops those whose record still says what was read.
pub(super) fn drop_unchanged(conn: &Connection, users: &[StaleUser]) -> rusqlite::Result<usize> {
    let mut statement = conn.prepare_cached(DROP_UNCHANGED)?;
    users
        .iter()
        .map(|user| statement.execute(params![user.uaid.0, to_i64(user.last_connect.0)]))
        .sum()
}

pub(super) fn drop_all(conn: &Connection, uaids: &[Uaid]) -> rusqlite::Result<()> {
    uaids.iter().try_for_each(|uaid| router::drop_user(conn, *uaid).map(|_there| ()))
}

fn cursor(user: &StaleUser) -> Cursor {
    Cursor::new(format!("{} {}", user.last_connect.0, user.uaid))
}

fn place(cursor: &Cursor) -> rusqlite::Result<StaleUser> {
    let text = cursor.as_str();
    let place = text.split_once(' ').and_then(|(key, uaid)| {
        Some(StaleUser { uaid: uaid.parse().ok()?, last_connect: LastConnect(key.parse().ok()?) })
    });
    place.ok_or_else(|| corrupt(0, Type::Text, "not a place among stale users"))
}

pub(super) const FIND: &str = "
    SELECT last_connect, uaid FROM router
    WHERE (last_connect, uaid) > (?1, ?2) AND last_connect < ?3
    ORDER BY last_connect, uaid LIMIT ?4";

pub(super) const DROP_UNCHANGED: &str = "DELETE FROM router WHERE uaid = ?1 AND last_connect = ?2";
