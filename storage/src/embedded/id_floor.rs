//! The floor of message ids, in one row of the router's file.

use rusqlite::{Connection, OptionalExtension, params};
use state_machine::Time;

use super::columns::{from_i64, to_i64};
use crate::maintenance::ID_FLOOR_AHEAD_MAX;

/// None if no server has reserved one.
pub(super) fn read(conn: &Connection) -> rusqlite::Result<Option<Time>> {
    let floor = conn.query_row("SELECT floor FROM id_floor", [], |row| row.get(0)).optional()?;
    Ok(floor.map(from_i64).map(Time))
}

pub(super) fn raise(conn: &Connection, floor: Time) -> rusqlite::Result<()> {
    let ahead = floor + ID_FLOOR_AHEAD_MAX;
    conn.execute(RAISE, params![to_i64(floor.0), to_i64(ahead.0)]).map(|_rows| ())
}

const RAISE: &str = "
    INSERT INTO id_floor (id, floor) VALUES (1, ?1)
    ON CONFLICT (id) DO UPDATE SET floor = excluded.floor
    WHERE floor < excluded.floor OR floor > ?2";
