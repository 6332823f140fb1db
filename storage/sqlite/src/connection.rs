//! Connections to database files. Each file has a write-ahead log, and no other journal.
//!
//! With SQLite's rollback journal an answered write can be lost at a power loss: SQLite does not sync the directory after
//! it removes the journal. Readers and backups would block the writer too. So the mode is read back each time a file is
//! opened.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, ffi};
use storage::SyncSupport;

use crate::statements::{pragma, run};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionRole {
    Writer,
    Reader,
}

/// Opens a file that has a write-ahead log.
///
/// Never creates a file: a missing file is an error and not an empty table.
pub(crate) fn connect(
    path: &Path,
    role: ConnectionRole,
    support: SyncSupport,
) -> rusqlite::Result<Connection> {
    let conn = connect_in_any_mode(path, role, support)?;
    match pragma::<String>(&conn, "journal_mode")?.as_str() {
        WAL => Ok(conn),
        other => Err(wrong_mode(&format!("has the journal mode {other} and not {WAL}"))),
    }
}

/// As [`connect`], also a file that was just created, or that earlier versions left with a rollback journal.
pub(crate) fn connect_in_any_mode(
    path: &Path,
    role: ConnectionRole,
    support: SyncSupport,
) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    conn.busy_timeout(match role {
        ConnectionRole::Writer => WRITER_BUSY_MAX,
        ConnectionRole::Reader => READER_BUSY_MAX,
    })?;
    run(&conn, synchronous(support))?;
    match role {
        ConnectionRole::Writer => run(&conn, WRITER_PRAGMAS)?,
        ConnectionRole::Reader => run(&conn, READER_PRAGMAS)?,
    }
    Ok(conn)
}

/// SQLite fails without a sync of files, and ignores that directories cannot be synced.
pub(crate) fn synchronous(support: SyncSupport) -> &'static str {
    match support {
        SyncSupport::Everything | SyncSupport::Files => "PRAGMA synchronous = FULL",
        SyncSupport::Nothing => "PRAGMA synchronous = OFF",
    }
}

/// Gives a file a write-ahead log. The caller reads the mode back on a new connection, and syncs the directory.
pub(crate) fn set_wal(conn: &Connection) -> rusqlite::Result<()> {
    match pragma::<String>(conn, "journal_mode = wal")?.as_str() {
        WAL => Ok(()),
        other => Err(wrong_mode(&format!("keeps the journal mode {other}"))),
    }
}

/// Copies the log into the database, syncs that, and empties the log. Returns whether the log is empty: another program
/// that reads it keeps it.
pub(crate) fn empty_log(conn: &Connection) -> rusqlite::Result<bool> {
    pragma::<i64>(conn, "wal_checkpoint(TRUNCATE)").map(|is_busy| is_busy == 0)
}

fn wrong_mode(what: &str) -> rusqlite::Error {
    let text = format!("the file {what}: close other programs that use it, and restart");
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_ERROR), Some(text))
}

const WAL: &str = "wal";

/// Prepared statements cached per connection; more than there are different ones.
const STATEMENTS_MAX: usize = 32;

/// How long the writer waits for a file that another program, such as an operator's shell, locked.
const WRITER_BUSY_MAX: Duration = Duration::from_secs(5);

/// How long a reader waits for the recovery of a file's log, the only thing that it waits for.
const READER_BUSY_MAX: Duration = Duration::from_secs(1);

/// A checkpoint starts with 4,000 pages of 4 KiB in the log: a longer log makes each stored message cheaper, because a page
/// that changed many times is written once. The writer's page cache is 8 MiB per file.
const WRITER_PRAGMAS: &str = "PRAGMA wal_autocheckpoint = 4000; PRAGMA cache_size = -8192";

/// A reader's page cache is 512 KiB per file; each commit invalidates it, so that more is of no use.
const READER_PRAGMAS: &str = "PRAGMA query_only = true; PRAGMA cache_size = -512";

#[cfg(test)]
mod tests {
    use super::*;

    fn file(home: &tempfile::TempDir) -> std::path::PathBuf {
        let path = home.path().join("file.db");
        let conn = Connection::open(&path).unwrap();
        run(&conn, "CREATE TABLE a (x)").unwrap();
        path
    }

    fn in_any_mode(path: &Path) -> Connection {
        connect_in_any_mode(path, ConnectionRole::Writer, SyncSupport::Everything).unwrap()
    }

    #[test]
    fn nothing_is_synced_only_where_no_file_can_be() {
        let home = tempfile::tempdir().unwrap();
        let path = file(&home);
        set_wal(&in_any_mode(&path)).unwrap();
        let supports = [SyncSupport::Everything, SyncSupport::Files, SyncSupport::Nothing];
        let synchronous = supports.map(|support| {
            let conn = connect(&path, ConnectionRole::Writer, support).unwrap();
            pragma::<i64>(&conn, "synchronous").unwrap()
        });
        assert_eq!(synchronous, [2, 2, 0], "FULL and OFF");
    }

    #[test]
    fn no_connection_is_given_to_a_file_without_a_log() {
        let home = tempfile::tempdir().unwrap();
        let path = file(&home);
        for role in [ConnectionRole::Writer, ConnectionRole::Reader] {
            let refused = connect(&path, role, SyncSupport::Everything).unwrap_err().to_string();
            assert!(refused.contains("the journal mode delete and not wal"), "{refused}");
        }
        set_wal(&in_any_mode(&path)).unwrap();
        connect(&path, ConnectionRole::Reader, SyncSupport::Everything).unwrap();
    }

    #[test]
    fn a_connection_that_may_not_write_gives_no_log() {
        let home = tempfile::tempdir().unwrap();
        let path = file(&home);
        let conn = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        set_wal(&conn).unwrap_err();
        assert!(connect(&path, ConnectionRole::Writer, SyncSupport::Everything).is_err());
    }

    #[test]
    fn a_lock_on_the_file_keeps_its_journal() {
        let home = tempfile::tempdir().unwrap();
        let path = file(&home);
        let other = Connection::open(&path).unwrap();
        run(&other, "BEGIN; SELECT count(*) FROM a").unwrap();
        let conn = in_any_mode(&path);
        conn.busy_timeout(Duration::ZERO).unwrap();
        set_wal(&conn).unwrap_err();
        drop(other);
        set_wal(&conn).unwrap();
    }
}
