//! The SQL of inactive users, which are found by the index on `last_connect`.

use rusqlite::types::Type;
use rusqlite::{Connection, params};
use state_machine::{LastConnect, Uaid};

use super::columns::{corrupt, from_i64, to_i64};
use super::router;
use crate::maintenance::{InactiveUser, InactiveUsers, MonthRange, USERS_IN_A_BATCH};
use crate::store::Cursor;

pub(super) fn find(
    conn: &Connection,
    seen: MonthRange,
    after: Option<&Cursor>,
) -> rusqlite::Result<InactiveUsers> {
    let keys = seen.keys();
    let before_all = InactiveUser { uaid: Uaid([0; 16]), last_connect: keys.start };
    let InactiveUser { uaid, last_connect } =
        after.map(position).transpose()?.unwrap_or(before_all);
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
    let next = users.get(USERS_IN_A_BATCH - 1).map(cursor);
    Ok(InactiveUsers { users, next })
}

/// Drops those whose `last_connect` is unchanged.
pub(super) fn drop_unchanged(conn: &Connection, users: &[InactiveUser]) -> rusqlite::Result<usize> {
    let mut statement = conn.prepare_cached(DROP_UNCHANGED)?;
    users
        .iter()
        .map(|user| statement.execute(params![user.uaid.0, to_i64(user.last_connect.0)]))
        .sum()
}

pub(super) fn drop_all(conn: &Connection, uaids: &[Uaid]) -> rusqlite::Result<()> {
    uaids.iter().try_for_each(|uaid| router::drop_user(conn, *uaid).map(|_there| ()))
}

fn cursor(user: &InactiveUser) -> Cursor {
    Cursor::new(format!("{} {}", user.last_connect.0, user.uaid))
}

fn position(cursor: &Cursor) -> rusqlite::Result<InactiveUser> {
    let text = cursor.as_str();
    let position = text.split_once(' ').and_then(|(key, uaid)| {
        Some(InactiveUser {
            uaid: uaid.parse().ok()?,
            last_connect: LastConnect(key.parse().ok()?),
        })
    });
    position.ok_or_else(|| corrupt(0, Type::Text, "not a position among inactive users"))
}

pub(super) const FIND: &str = "
    SELECT last_connect, uaid FROM router
    WHERE (last_connect, uaid) > (?1, ?2) AND last_connect < ?3
    ORDER BY last_connect, uaid LIMIT ?4";

pub(super) const DROP_UNCHANGED: &str = "DELETE FROM router WHERE uaid = ?1 AND last_connect = ?2";
