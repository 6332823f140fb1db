//! How values of this program stand in columns.

use std::error::Error;

use rusqlite::types::Type;

/// SQLite's integers are signed. A time beyond the year 292,000,000 is held there.
pub(super) fn to_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn from_i64(value: i64) -> u64 {
    value.max(0).unsigned_abs()
}

/// The error of a column that holds what this program never wrote.
pub(super) fn corrupt(
    column: usize,
    stored: Type,
    problem: impl Into<Box<dyn Error + Send + Sync>>,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, stored, problem.into())
}
