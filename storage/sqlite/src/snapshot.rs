//! A copy of all files as they were at one moment, while the store is in use.
//!
//! Between two batches the writer begins a read transaction on each file. What was answered before is in all of them,
//! and what is written later in none. The pages are copied on another thread; meanwhile the write-ahead logs cannot be
//! reset, and grow with what is written.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use storage::SyncSupport;
use storage::data_dir::{DirError, FileKey};
use storage::durable;
use storage::maintenance::SNAPSHOT_DIR;
use storage::store::StoreError;
use storage::upgrade::UpgradeWatch;

use crate::connection::{ConnectionRole, connect};
use crate::error::{OpenError, WriterError};
use crate::files::DataDir;
use crate::page_copy::{PAGE_BYTES, copy_pages, failed, unwritable};
use crate::statements::{pragma, run};

/// Read transactions on all files.
pub(crate) struct Snapshot(Vec<(FileKey, Connection)>);

impl Snapshot {
    /// Begins the transactions. Only the writer thread may call this, and only between two commits.
    pub(crate) fn begin(
        dir: &DataDir,
        keys: impl Iterator<Item = FileKey>,
    ) -> Result<Self, WriterError> {
        let begin = |key: FileKey| {
            let conn = dir.connect(key, ConnectionRole::Reader)?;
            // A transaction begins with its first read.
            run(&conn, "BEGIN; SELECT count(*) FROM sqlite_schema")?;
            Ok((key, conn))
        };
        let begun: rusqlite::Result<_> = keys.map(begin).collect();
        begun.map(Self).map_err(|error| WriterError::Refused(failed("router.db", &error)))
    }

    /// Copies all files into [`SNAPSHOT_DIR`], which must exist. `on_step` gets the copied pages and those in all, and
    /// returns whether to continue.
    pub(crate) fn copy(
        self,
        data_dir: &DataDir,
        free_bytes_min: u64,
        mut on_step: impl FnMut(u64, u64) -> bool,
    ) -> Result<(), StoreError> {
        let pages = self.0.iter().map(|(key, conn)| pages(*key, conn));
        let total: u64 = pages.sum::<Result<_, _>>()?;
        check_space(data_dir, total * PAGE_BYTES, free_bytes_min)?;
        let (dir, mut done) = (data_dir.path().join(SNAPSHOT_DIR), 0);
        for (key, conn) in self.0 {
            let path = dir.join(key.to_string());
            done += copy_file(key, &conn, &path, data_dir.support(), |copied| {
                // Meanwhile the write-ahead logs grow, with no other bound.
                check_space(data_dir, 0, free_bytes_min)?;
                match on_step(done + copied, total) {
                    true => Ok(()),
                    false => Err(StoreError::Failed("the backup was interrupted".to_owned())),
                }
            })?;
        }
        durable::sync_dir(&dir).map_err(|error| unwritable(&dir, &error))
    }
}

fn check_space(dir: &DataDir, bytes: u64, free_bytes_min: u64) -> Result<(), StoreError> {
    let free = dir.free_bytes().map_err(|error| unwritable(dir.path(), &error))?;
    if free >= bytes.saturating_add(free_bytes_min) {
        return Ok(());
    }
    Err(StoreError::Failed(format!(
        "a backup needs {bytes} bytes in the data directory besides disk_free_min, and {free} are free"
    )))
}

/// Returns the number of pages.
fn copy_file(
    key: FileKey,
    from: &Connection,
    to: &Path,
    support: SyncSupport,
    on_step: impl FnMut(u64) -> Result<(), StoreError>,
) -> Result<u64, StoreError> {
    let copied = copy_pages(key, from, to, support, on_step)?;
    let checked = connect(to, ConnectionRole::Writer, support);
    checked
        .and_then(|conn| conn.close().map_err(|(_, error)| error))
        .map_err(|error| failed(&key.to_string(), &error))?;
    durable::sync_file(to).map_err(|error| unwritable(to, &error))?;
    Ok(copied)
}

fn pages(key: FileKey, conn: &Connection) -> Result<u64, StoreError> {
    let count = pragma(conn, "page_count").map(i64::unsigned_abs);
    count.map_err(|error| failed(&key.to_string(), &error))
}

/// Checks every database of a restored directory: its schema, its listed months, and its pages. Migrates files of an
/// older version, which the watch follows.
pub fn check_restored(dir: &Path, watch: UpgradeWatch<'_>) -> Result<(), OpenError> {
    let (opened, _lock, _months) = DataDir::open(dir, None, watch)?;
    for entry in fs::read_dir(dir).map_err(|error| DirError::io(dir, error))? {
        let path = entry.map_err(|error| DirError::io(dir, error))?.path();
        if path.file_name().and_then(|name| name.to_str()).and_then(FileKey::parse).is_some() {
            quick_check(&path, opened.support())?;
        }
    }
    Ok(())
}

fn quick_check(path: &Path, support: SyncSupport) -> Result<(), OpenError> {
    let checked = connect(path, ConnectionRole::Writer, support)
        .and_then(|conn| pragma::<String>(&conn, "quick_check(1)"));
    match checked {
        Ok(found) if found == "ok" => Ok(()),
        Ok(reason) => {
            Err(OpenError::Unreadable { file: path.to_owned(), reason, is_damaged: true })
        }
        Err(error) => Err(OpenError::unreadable(path, &error)),
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test looks at the first row")]
mod tests {
    use super::*;

    #[test]
    fn a_write_after_the_begin_of_a_snapshot_is_not_in_it() {
        let home = tempfile::tempdir().unwrap();
        let (dir, _lock, _months) = DataDir::open(home.path(), None, UpgradeWatch::NONE).unwrap();
        let writer = dir.connect(FileKey::Router, ConnectionRole::Writer).unwrap();
        run(&writer, "CREATE TABLE written (x); INSERT INTO written VALUES (1)").unwrap();
        let snapshot = Snapshot::begin(&dir, [FileKey::Router].into_iter()).unwrap_or_else(|_| {
            panic!("a file that is there can be read");
        });
        run(&writer, "INSERT INTO written VALUES (2)").unwrap();
        fs::create_dir(home.path().join(SNAPSHOT_DIR)).unwrap();
        snapshot.copy(&dir, 0, |_, _| true).unwrap();
        let copy = home.path().join(SNAPSHOT_DIR).join(FileKey::Router.to_string());
        let count = |path: &Path| -> i64 {
            let conn = Connection::open(path).unwrap();
            conn.query_row("SELECT count(*) FROM written", [], |row| row.get(0)).unwrap()
        };
        let original = home.path().join(FileKey::Router.to_string());
        assert_eq!((count(&copy), count(&original)), (1, 2));
    }
}
