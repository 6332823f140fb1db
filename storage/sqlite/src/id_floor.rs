//! The floor of message ids, in one row of the router's file.

use rusqlite::{Connection, params};
use state_machine::Time;
use storage::maintenance::ID_FLOOR_AHEAD_MAX;

use crate::columns::{change, from_i64, to_i64};
use crate::statements::first_row;

/// None if no server has reserved one.
pub(crate) fn read(conn: &Connection) -> rusqlite::Result<Option<Time>> {
    let mut statement = conn.prepare_cached(READ)?;
    let floor = first_row(&mut statement, [], |row| row.get(0))?;
    Ok(floor.map(from_i64).map(Time))
}

pub(crate) fn raise(conn: &Connection, floor: Time) -> rusqlite::Result<()> {
    let ahead = floor + ID_FLOOR_AHEAD_MAX;
    change(conn, RAISE, params![to_i64(floor.0), to_i64(ahead.0)]).map(|_is_raised| ())
}

const READ: &str = "SELECT floor FROM id_floor";

const RAISE: &str = "
    INSERT INTO id_floor (id, floor) VALUES (1, ?1)
    ON CONFLICT (id) DO UPDATE SET floor = excluded.floor
    WHERE floor < excluded.floor OR floor > ?2";
