//! How the databases of a data directory are created, verified, opened and removed.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use rusqlite::Connection;
use state_machine::Month;
use storage::SyncSupport;
use storage::data_dir::{BESIDE, DirError, DirLock, FileKey, check_private, free_bytes, sibling};
use storage::durable;
use storage::upgrade::{UpgradeStep, UpgradeWatch};

use crate::before_migration;
use crate::connection::{ConnectionRole, connect, connect_in_any_mode, empty_log, set_wal};
use crate::error::{OpenError, is_of_full_disk};
use crate::month_list;
use crate::schema::{MESSAGES, ROUTER, Schema};
use crate::upgrade::{OldFile, Upgrading};

pub(crate) struct DataDir {
    path: PathBuf,
    support: SyncSupport,
}

/// The months that have a file; only the writer changes them.
pub(crate) struct MonthFiles(RwLock<BTreeSet<Month>>);

impl DataDir {
    /// Opens or creates a data directory, and verifies the head of each file: what it is, and of which version. No file is
    /// changed before all are known to be usable. With `migration_copy`, those that are to be migrated are copied first; it
    /// is the space to leave free. The watch follows the copies and the migrations.
    pub(crate) fn open(
        path: &Path,
        migration_copy: Option<u64>,
        watch: UpgradeWatch<'_>,
    ) -> Result<(Self, DirLock, MonthFiles), OpenError> {
        durable::create_dir_all(path, 0o700).map_err(|error| DirError::io(path, error))?;
        let lock = DirLock::take(path)?;
        // A sync of the directory also keeps names that a process gave before it was killed.
        let dir = Self { path: path.to_owned(), support: SyncSupport::of(path)? };
        let months = dir.list_months().map_err(|error| DirError::io(path, error))?;
        dir.ensure_router(&months)?;
        let keys = || iter::once(FileKey::Router).chain(months.iter().copied().map(FileKey::Month));
        let old = keys().filter_map(|key| dir.old(key).transpose());
        let old = old.collect::<Result<Vec<_>, _>>()?;
        dir.require_listed(&months)?;
        let upgrading = Upgrading::new(old, migration_copy.is_some(), watch);
        if let Some(free_bytes_min) = migration_copy {
            before_migration::check_space(path, &upgrading, free_bytes_min)?;
        }
        upgrading.watched(|| {
            if migration_copy.is_some() {
                before_migration::copy(path, &upgrading, dir.support)?;
            }
            let verify = |key| match upgrading.files.iter().find(|file| file.key == key) {
                Some(old) => upgrading.step(UpgradeStep::Change(key), old, |_| dir.verify(key)),
                None => dir.verify(key),
            };
            keys().try_for_each(verify)
        })?;
        // A journal or a log that was removed must not be there again after a power loss.
        dir.sync().map_err(|error| DirError::io(path, error))?;
        dir.list_unlisted(&months)?;
        Ok((dir, lock, MonthFiles(RwLock::new(months))))
    }

    /// Creates a file with its tables. It is renamed to its name only when it is complete and on
    /// disk, so that a crash never leaves a file without its tables.
    pub(crate) fn make(&self, key: FileKey) -> Result<(), OpenError> {
        let path = self.path_of(key);
        let unfinished = sibling(&path, ".new");
        let failed = |error| DirError::io(&unfinished, error);
        remove_with_log(&unfinished).map_err(failed)?;
        durable::empty_file(&unfinished).map_err(failed)?;
        make_database(key, &unfinished, self.support)?;
        check_made(key, &unfinished, self.support)?;
        durable::sync_file(&unfinished).map_err(failed)?;
        Ok(self.give_name(&unfinished, &path).map_err(|error| DirError::io(&path, error))?)
    }

    fn give_name(&self, unfinished: &Path, path: &Path) -> io::Result<()> {
        if path.try_exists()? {
            return Err(ErrorKind::AlreadyExists.into());
        }
        // A process that died while it removed the former file of this name may have left its log:
        // SQLite would apply it to the new database.
        remove_log(path)?;
        // A file whose name may not be on disk is made anew.
        durable::rename(unfinished, path).inspect_err(|_| _ = fs::remove_file(unfinished))
    }

    /// Removes a file on which no connection is open.
    pub(crate) fn remove(&self, key: FileKey) -> io::Result<()> {
        remove_with_log(&self.path_of(key))
    }

    pub(crate) fn connect(
        &self,
        key: FileKey,
        role: ConnectionRole,
    ) -> rusqlite::Result<Connection> {
        connect(&self.path_of(key), role, self.support)
    }

    /// Syncs the names in the directory.
    pub(crate) fn sync(&self) -> io::Result<()> {
        durable::sync_dir(&self.path)
    }

    fn ensure_router(&self, months: &BTreeSet<Month>) -> Result<(), OpenError> {
        let file = self.path_of(FileKey::Router);
        let there = |path: &Path| path.try_exists().map_err(|error| DirError::io(path, error));
        if there(&file)? {
            Ok(())
        } else if !months.is_empty() || there(&sibling(&file, "-wal"))? {
            Err(OpenError::RouterMissing { file })
        } else {
            self.make(FileKey::Router)
        }
    }

    /// Requires a file for each listed month.
    fn require_listed(&self, months: &BTreeSet<Month>) -> Result<(), OpenError> {
        let router = self.path_of(FileKey::Router);
        let failed = |error| OpenError::unreadable(&router, &error);
        let conn = connect_in_any_mode(&router, ConnectionRole::Reader, self.support);
        let listed = conn.and_then(|conn| month_list::read(&conn)).map_err(failed)?;
        match listed.difference(months).next() {
            Some(missing) => {
                Err(OpenError::MonthMissing { file: self.path_of(FileKey::Month(*missing)) })
            }
            None => Ok(()),
        }
    }

    /// Lists each file of a month that is not listed.
    fn list_unlisted(&self, months: &BTreeSet<Month>) -> Result<(), OpenError> {
        let router = self.path_of(FileKey::Router);
        let failed = |error| OpenError::unreadable(&router, &error);
        let conn = self.connect(FileKey::Router, ConnectionRole::Writer).map_err(failed)?;
        let listed = month_list::read(&conn).map_err(failed)?;
        months
            .difference(&listed)
            .try_for_each(|month| month_list::add(&conn, *month))
            .map_err(failed)
    }

    /// A file, if it is of an older version. Refuses one that this program cannot use, and changes none.
    fn old(&self, key: FileKey) -> Result<Option<OldFile>, OpenError> {
        let path = self.path_of(key);
        let conn = connect_in_any_mode(&path, ConnectionRole::Reader, self.support)
            .map_err(|error| OpenError::unreadable(&path, &error))?;
        if schema(key).is_complete(&conn, &path)? {
            return Ok(None);
        }
        let bytes = self.bytes(key).map_err(|error| DirError::io(&path, error))?;
        Ok(Some(OldFile { key, path, bytes }))
    }

    /// The size on disk, the write-ahead log included.
    pub(crate) fn bytes(&self, key: FileKey) -> io::Result<u64> {
        let path = self.path_of(key);
        let log = match fs::metadata(sibling(&path, "-wal")) {
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            log => log?.len(),
        };
        Ok(fs::metadata(&path)?.len() + log)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn support(&self) -> SyncSupport {
        self.support
    }

    /// Free bytes on the disk for this user.
    pub(crate) fn free_bytes(&self) -> io::Result<u64> {
        free_bytes(&self.path)
    }

    pub(crate) fn is_there(&self, key: FileKey) -> bool {
        self.path_of(key).exists()
    }

    /// Checks and migrates a file, gives it a write-ahead log if it has none, and empties the log that a killed process
    /// left.
    ///
    /// The log is empty before the first write, because its last commit may not be on disk: after a failed fsync the
    /// kernel has the pages in memory only, though they look written. SQLite would append the next commit behind them,
    /// and a power loss would end the log before it. The checkpoint writes what it found into the database and syncs that,
    /// and the next log starts empty. Only a full disk keeps the log: the store must open, so that space can be freed.
    fn verify(&self, key: FileKey) -> Result<(), OpenError> {
        let path = self.path_of(key);
        let failed = |error| OpenError::unreadable(&path, &error);
        let mut conn =
            connect_in_any_mode(&path, ConnectionRole::Writer, self.support).map_err(failed)?;
        schema(key).check(&conn, &path)?;
        set_wal(&conn).map_err(|error| OpenError::journal_mode(&path, &error))?;
        schema(key).migrate(&mut conn, &path)?;
        match empty_log(&conn) {
            Ok(false) => return Err(OpenError::LogInUse { file: path }),
            Err(error) if !is_of_full_disk(&error) => return Err(failed(error)),
            Ok(true) | Err(_) => {}
        }
        conn.close().map_err(|(_, error)| failed(error))?;
        self.connect(key, ConnectionRole::Writer).map_err(failed).map(drop)
    }

    fn list_months(&self) -> io::Result<BTreeSet<Month>> {
        let mut months = BTreeSet::new();
        for entry in fs::read_dir(&self.path)? {
            if let Some(FileKey::Month(month)) =
                entry?.file_name().to_str().and_then(FileKey::parse)
            {
                months.insert(month);
            }
        }
        Ok(months)
    }

    fn path_of(&self, key: FileKey) -> PathBuf {
        self.path.join(key.to_string())
    }
}

impl MonthFiles {
    pub(crate) fn contains(&self, month: Month) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(&month)
    }

    pub(crate) fn list(&self) -> Vec<Month> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// The files that a health check looks at: records, and the months in which messages are stored now.
    pub(crate) fn checked(&self) -> Vec<FileKey> {
        let months = self.list().into_iter().rev().take(MONTHS_CHECKED).map(FileKey::Month);
        iter::once(FileKey::Router).chain(months).collect()
    }

    pub(crate) fn insert(&self, month: Month) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(month);
    }

    pub(crate) fn remove(&self, month: Month) -> bool {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&month)
    }
}

fn schema(key: FileKey) -> &'static Schema {
    match key {
        FileKey::Router => &ROUTER,
        FileKey::Month(_) => &MESSAGES,
    }
}

/// Gives an empty file its tables and a write-ahead log.
fn make_database(key: FileKey, path: &Path, support: SyncSupport) -> Result<(), OpenError> {
    let failed = |error| OpenError::unreadable(path, &error);
    let mut conn = connect_in_any_mode(path, ConnectionRole::Writer, support).map_err(failed)?;
    schema(key).create(&mut conn, path)?;
    set_wal(&conn).map_err(failed)?;
    conn.close().map_err(|(_, error)| failed(error))
}

/// Checks rights, journal mode and schema of a file that was just made, on a new connection.
fn check_made(key: FileKey, path: &Path, support: SyncSupport) -> Result<(), OpenError> {
    if let Some(exposed) = check_private(path)? {
        return Err(DirError::Exposed(vec![exposed]).into());
    }
    let failed = |error| OpenError::unreadable(path, &error);
    let conn = connect(path, ConnectionRole::Writer, support).map_err(failed)?;
    if !schema(key).is_complete(&conn, path)? {
        let (file, reason) = (path.to_owned(), "its tables are not on disk".to_owned());
        return Err(OpenError::Unreadable { file, reason, is_damaged: false });
    }
    conn.close().map_err(|(_, error)| failed(error))
}

/// Removes a database before its log: a database without its log would be an older one.
fn remove_with_log(path: &Path) -> io::Result<()> {
    durable::remove(path)?;
    remove_log(path)
}

fn remove_log(path: &Path) -> io::Result<()> {
    durable::remove_all(&BESIDE.map(|end| sibling(path, end)))
}

/// The newest months, which a health check looks at.
const MONTHS_CHECKED: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::pragma;

    #[test]
    fn every_write_is_synced_before_it_is_answered() {
        let home = tempfile::tempdir().unwrap();
        let (dir, _lock, _months) = DataDir::open(home.path(), None, UpgradeWatch::NONE).unwrap();
        let conn = dir.connect(FileKey::Router, ConnectionRole::Writer).unwrap();
        assert_eq!(pragma::<String>(&conn, "journal_mode").unwrap(), "wal");
        assert_eq!(pragma::<i64>(&conn, "synchronous").unwrap(), 2, "FULL");
    }

    #[test]
    fn an_old_log_is_not_applied_to_a_new_file() {
        let home = tempfile::tempdir().unwrap();
        let (dir, _lock, _months) = DataDir::open(home.path(), None, UpgradeWatch::NONE).unwrap();
        let key = FileKey::Month("2026_11".parse().unwrap());
        let log = sibling(&dir.path_of(key), "-wal");
        fs::write(&log, "left by a process that died").unwrap();
        dir.make(key).unwrap();
        assert!(!log.exists());
        dir.verify(key).unwrap();
    }
}
