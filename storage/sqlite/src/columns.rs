//! Changes of rows, and conversions between columns and the types of `state_machine`.

use std::error::Error;

use rusqlite::types::Type;
use rusqlite::{Connection, Params};

/// Executes a statement. Returns whether it changed a row.
pub(crate) fn change(
    conn: &Connection,
    statement: &str,
    parameters: impl Params,
) -> rusqlite::Result<bool> {
    Ok(conn.prepare_cached(statement)?.execute(parameters)? > 0)
}

/// Saturates: SQLite's integers are signed.
pub(crate) fn to_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(crate) fn from_i64(value: i64) -> u64 {
    value.max(0).unsigned_abs()
}

/// The error of a column with a value that this program does not write.
pub(crate) fn corrupt(
    column: usize,
    stored: Type,
    problem: impl Into<Box<dyn Error + Send + Sync>>,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, stored, problem.into())
}
