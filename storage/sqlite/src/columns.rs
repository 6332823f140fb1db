//! Changes of rows, and conversions between columns and the types of `state_machine`.

use std::error::Error;

use rusqlite::types::Type;
use rusqlite::{Connection, Params};
use storage::sql::values::TooLarge;
pub(crate) use storage::sql::values::to_i64;
use storage::store::Cursor;

/// Executes a statement. Returns whether it changed a row.
pub(crate) fn change(
    conn: &Connection,
    statement: &str,
    parameters: impl Params,
) -> rusqlite::Result<bool> {
    Ok(conn.prepare_cached(statement)?.execute(parameters)? > 0)
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

/// A saturated number would be assigned twice. An addition in SQL overflows to a real number, which a strict table rejects.
pub(crate) fn too_large(error: TooLarge) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(error.into())
}

/// The rowid of a position.
pub(crate) fn position(after: Option<&Cursor>) -> rusqlite::Result<i64> {
    after.map_or(Ok(0), |cursor| cursor.as_str().parse()).map_err(|_| no_position())
}

pub(crate) fn no_position() -> rusqlite::Error {
    corrupt(0, Type::Text, "not a position in a copy")
}
