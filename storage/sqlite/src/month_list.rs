//! The router file's list of the months that have a file, so that a missing file is an error and
//! not an empty month.
//!
//! A month is listed after its file was created, and unlisted before the file is removed. A crash
//! between leaves an unlisted file, which is listed when the store is opened.

use std::collections::BTreeSet;

use rusqlite::types::Type;
use rusqlite::{Connection, params};
use state_machine::Month;

use crate::columns::corrupt;

pub(crate) fn read(conn: &Connection) -> rusqlite::Result<BTreeSet<Month>> {
    let mut statement = conn.prepare("SELECT month FROM months")?;
    let months = statement.query_map([], |row| {
        let text: String = row.get(0)?;
        text.parse().map_err(|error| corrupt(0, Type::Text, error))
    })?;
    months.collect()
}

pub(crate) fn add(conn: &Connection, month: Month) -> rusqlite::Result<()> {
    let add = "INSERT INTO months (month) VALUES (?1) ON CONFLICT DO NOTHING";
    conn.execute(add, params![month.to_string()]).map(|_| ())
}

pub(crate) fn remove(conn: &Connection, month: Month) -> rusqlite::Result<()> {
    conn.execute("DELETE FROM months WHERE month = ?1", params![month.to_string()]).map(|_| ())
}
