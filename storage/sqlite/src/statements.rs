//! Statements that are run to their ends.
//!
//! Outside of a transaction, SQLite commits a statement when it ends. One that returns rows ends behind its last row:
//! `PRAGMA journal_mode` is such a statement. `execute_batch`, `pragma_update` and `query_row` of rusqlite stop at the
//! first row. They drop the error of the end, so that a failed commit looks like success. `clippy.toml` refuses them.

use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::types::FromSql;
use rusqlite::{Batch, Connection, Params, Row, Statement};

/// Runs all statements of a text.
pub(crate) fn run(conn: &Connection, text: &str) -> rusqlite::Result<()> {
    let mut statements = Batch::new(conn, text);
    while let Some(mut statement) = statements.next()? {
        first_row(&mut statement, [], |_row| Ok(()))?;
        statement.finalize()?;
    }
    Ok(())
}

/// Runs a statement and reads its first row. None if it returns none.
pub(crate) fn first_row<T>(
    statement: &mut Statement<'_>,
    parameters: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    let mut rows = statement.query(parameters)?;
    let first = rows.next()?.map(read).transpose()?;
    while rows.next()?.is_some() {}
    Ok(first)
}

/// Whether a query finds a row.
pub(crate) fn has_row(
    conn: &Connection,
    query: &str,
    parameters: impl Params,
) -> rusqlite::Result<bool> {
    let mut statement = conn.prepare_cached(query)?;
    first_row(&mut statement, parameters, |_row| Ok(())).map(|row| row.is_some())
}

/// The first column of the only row that a pragma returns.
pub(crate) fn pragma<T: FromSql>(conn: &Connection, pragma: &str) -> rusqlite::Result<T> {
    let mut statement = conn.prepare(&format!("PRAGMA {pragma}"))?;
    let value = first_row(&mut statement, [], |row| row.get(0))?;
    statement.finalize()?;
    value.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails after its first row.
    const FAILS_LATE: &str =
        "SELECT abs(x) FROM (SELECT 1 AS x UNION ALL SELECT -9223372036854775808)";

    #[test]
    fn an_error_behind_the_first_row_is_an_error() {
        let conn = Connection::open_in_memory().unwrap();
        assert!(run(&conn, FAILS_LATE).is_err());
        let mut statement = conn.prepare(FAILS_LATE).unwrap();
        assert!(first_row(&mut statement, [], |row| row.get::<_, i64>(0)).is_err());
    }

    #[test]
    fn a_commit_that_fails_behind_a_row_is_an_error() {
        let conn = Connection::open_in_memory().unwrap();
        let tables = "PRAGMA foreign_keys = ON;
            CREATE TABLE a (x INTEGER PRIMARY KEY);
            CREATE TABLE b (x REFERENCES a DEFERRABLE INITIALLY DEFERRED)";
        run(&conn, tables).unwrap();
        assert!(run(&conn, "INSERT INTO b VALUES (7) RETURNING x").is_err());
        let mut count = conn.prepare("SELECT count(*) FROM b").unwrap();
        assert_eq!(first_row(&mut count, [], |row| row.get(0)), Ok(Some(0)));
    }

    #[test]
    fn all_statements_of_a_text_are_run() {
        let conn = Connection::open_in_memory().unwrap();
        run(&conn, "PRAGMA user_version = 3; -- the next one\nPRAGMA application_id = 4;\n")
            .unwrap();
        assert_eq!(pragma::<i64>(&conn, "user_version").unwrap(), 3);
        assert_eq!(pragma::<i64>(&conn, "application_id").unwrap(), 4);
    }
}
