//! Inactive users, by the index on `last_connect`.

use state_machine::{LastConnect, Uaid};

use super::Statement;
use super::rows::SqlRow;
use super::values::values;
use crate::maintenance::{InactiveUser, InactiveUsers, MonthRange, USERS_IN_A_BATCH};

/// Finds a page of those who were seen last in these months, after one of them.
pub fn find(seen: MonthRange, after: Option<InactiveUser>) -> Statement<'static> {
    let keys = seen.keys();
    // No agent has a key below the first of its month, so that none is left out here.
    let before_all = InactiveUser { uaid: Uaid([0; 16]), last_connect: keys.start };
    let InactiveUser { uaid, last_connect } = after.unwrap_or(before_all);
    (FIND, values![last_connect.0, uaid, keys.end.0, USERS_IN_A_BATCH as u64])
}

pub fn page<R: SqlRow>(rows: &[R]) -> Result<InactiveUsers, R::Error> {
    let user = |row: &R| {
        Ok(InactiveUser { last_connect: LastConnect(row.number(0)?), uaid: row.uaid(1)? })
    };
    let users = rows.iter().map(user).collect::<Result<Vec<_>, _>>()?;
    let next = users.get(USERS_IN_A_BATCH - 1).map(InactiveUser::cursor);
    Ok(InactiveUsers { users, next })
}

pub const FIND: &str = "
    SELECT last_connect, uaid FROM main.router
    WHERE (last_connect, uaid) > (?1, ?2) AND last_connect < ?3
    ORDER BY last_connect, uaid LIMIT ?4";
