//! The data directory: its lock, and how its files are created, verified, opened and removed.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::iter;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use rusqlite::Connection;
use state_machine::Month;

use super::connection::{ConnectionRole, connect, connect_in_any_mode, empty_log, set_wal};
use super::error::{Exposed, OpenError, is_of_full_disk};
use super::month_list;
use super::schema::{MESSAGES, ROUTER, Schema};
use super::space::free_bytes;
use crate::durable;
use crate::owner::OtherOwner;
use crate::sync_support::SyncSupport;

/// A database file: `router.db` or `messages_2026_11.db`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileKey {
    Router,
    Month(Month),
}

/// Excludes every other store and every other server from a directory while it lives.
///
/// The directory itself is locked, so that the removal of a file in it does not admit another
/// server. The file `lock` is locked too, for earlier versions and for file systems that lock no
/// directories.
#[derive(Debug)]
pub struct DirLock {
    dir: File,
    file: File,
}

pub(super) struct DataDir {
    path: PathBuf,
    support: SyncSupport,
}

/// The months that have a file; only the writer changes them.
pub(super) struct MonthFiles(RwLock<BTreeSet<Month>>);

impl DataDir {
    /// Opens or creates a data directory, and verifies each file in it.
    pub(super) fn open(path: &Path) -> Result<(Self, DirLock, MonthFiles), OpenError> {
        durable::create_dir_all(path, 0o700).map_err(|error| OpenError::io(path, error))?;
        let lock = DirLock::take(path)?;
        // A sync of the directory also keeps names that a process gave before it was killed.
        let dir = Self { path: path.to_owned(), support: SyncSupport::of(path)? };
        let months = dir.list_months().map_err(|error| OpenError::io(path, error))?;
        dir.ensure_router(&months)?;
        for key in [FileKey::Router].into_iter().chain(months.iter().copied().map(FileKey::Month)) {
            dir.verify(key)?;
        }
        // A journal or a log that was removed must not be there again after a power loss.
        dir.sync().map_err(|error| OpenError::io(path, error))?;
        dir.compare_with_list(&months)?;
        Ok((dir, lock, MonthFiles(RwLock::new(months))))
    }

    /// Creates a file with its tables. It is renamed to its name only when it is complete and on
    /// disk, so that a crash never leaves a file without its tables.
    pub(super) fn make(&self, key: FileKey) -> Result<(), OpenError> {
        let path = self.path_of(key);
        let unfinished = sibling(&path, ".new");
        let failed = |error| OpenError::io(&unfinished, error);
        remove_with_log(&unfinished).map_err(failed)?;
        durable::empty_file(&unfinished).map_err(failed)?;
        make_database(key, &unfinished, self.support)?;
        check_made(key, &unfinished, self.support)?;
        durable::sync_file(&unfinished).map_err(failed)?;
        self.give_name(&unfinished, &path).map_err(|error| OpenError::io(&path, error))
    }

    fn give_name(&self, unfinished: &Path, path: &Path) -> io::Result<()> {
        if path.try_exists()? {
            return Err(ErrorKind::AlreadyExists.into());
        }
        // A process that died while it removed the former file of this name may have left its log:
        // SQLite would apply it to the new database.
        remove_log(path)?;
        durable::rename(unfinished, path).inspect_err(|_| {
            // A file whose name may not be on disk is made anew.
            let _ = fs::remove_file(path);
        })
    }

    /// Removes a file on which no connection is open.
    pub(super) fn remove(&self, key: FileKey) -> io::Result<()> {
        remove_with_log(&self.path_of(key))
    }

    pub(super) fn connect(
        &self,
        key: FileKey,
        role: ConnectionRole,
    ) -> rusqlite::Result<Connection> {
        connect(&self.path_of(key), role, self.support)
    }

    /// Syncs the names in the directory.
    pub(super) fn sync(&self) -> io::Result<()> {
        durable::sync_dir(&self.path)
    }

    fn ensure_router(&self, months: &BTreeSet<Month>) -> Result<(), OpenError> {
        let file = self.path_of(FileKey::Router);
        let there = |path: &Path| path.try_exists().map_err(|error| OpenError::io(path, error));
        if there(&file)? {
            Ok(())
        } else if !months.is_empty() || there(&sibling(&file, "-wal"))? {
            Err(OpenError::RouterMissing { file })
        } else {
            self.make(FileKey::Router)
        }
    }

    /// Requires a file for each listed month, and lists each unlisted file.
    fn compare_with_list(&self, months: &BTreeSet<Month>) -> Result<(), OpenError> {
        let router = self.path_of(FileKey::Router);
        let failed = |error| OpenError::unreadable(&router, &error);
        let conn = self.connect(FileKey::Router, ConnectionRole::Writer).map_err(failed)?;
        let listed = month_list::read(&conn).map_err(failed)?;
        if let Some(missing) = listed.difference(months).next() {
            return Err(OpenError::MonthMissing { file: self.path_of(FileKey::Month(*missing)) });
        }
        months
            .difference(&listed)
            .try_for_each(|month| month_list::add(&conn, *month))
            .map_err(failed)
    }

    /// The size on disk, the write-ahead log included.
    pub(super) fn bytes(&self, key: FileKey) -> io::Result<u64> {
        let path = self.path_of(key);
        let log = match fs::metadata(sibling(&path, "-wal")) {
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            log => log?.len(),
        };
        Ok(fs::metadata(&path)?.len() + log)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn support(&self) -> SyncSupport {
        self.support
    }

    /// Free bytes on the disk for this user.
    pub(super) fn free_bytes(&self) -> io::Result<u64> {
        free_bytes(&self.path)
    }

    pub(super) fn is_there(&self, key: FileKey) -> bool {
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
        key.schema().check(&conn, &path)?;
        set_wal(&conn).map_err(|error| OpenError::journal_mode(&path, &error))?;
        key.schema().migrate(&mut conn, &path)?;
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
            months.extend(entry?.file_name().to_str().and_then(month_of_name));
        }
        Ok(months)
    }

    fn path_of(&self, key: FileKey) -> PathBuf {
        self.path.join(key.to_string())
    }
}

impl DirLock {
    /// Locks a directory, which must exist.
    pub fn take(dir: &Path) -> Result<Self, OpenError> {
        check_dir(dir)?;
        let failed = |error| OpenError::io(dir, error);
        let itself = File::open(dir).map_err(failed)?;
        match itself.try_lock() {
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse { dir: dir.to_owned() });
            }
            // A network file system locks only files that are open for writing.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let path = dir.join("lock");
        let file = durable::lock_file(&path).map_err(|error| OpenError::io(&path, error))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { dir: itself, file }),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse { dir: dir.to_owned() }),
            Err(TryLockError::Error(error)) => Err(OpenError::io(&path, error)),
        }
    }
}

impl Drop for DirLock {
    /// Unlocks explicitly: a child process that was just forked holds the file open too, until its
    /// `exec`.
    fn drop(&mut self) {
        // A failed unlock ends with the process. The file is last: a store that waits for it may
        // then lock both.
        let _ = self.dir.unlock();
        let _ = self.file.unlock();
    }
}

impl MonthFiles {
    pub(super) fn contains(&self, month: Month) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(&month)
    }

    pub(super) fn list(&self) -> Vec<Month> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// The files that a health check looks at: records, and the months in which messages are stored now.
    pub(super) fn checked(&self) -> Vec<FileKey> {
        let months = self.list().into_iter().rev().take(MONTHS_CHECKED).map(FileKey::Month);
        iter::once(FileKey::Router).chain(months).collect()
    }

    pub(super) fn insert(&self, month: Month) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(month);
    }

    pub(super) fn remove(&self, month: Month) -> bool {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&month)
    }
}

impl FileKey {
    fn schema(self) -> &'static Schema {
        match self {
            Self::Router => &ROUTER,
            Self::Month(_) => &MESSAGES,
        }
    }
}

impl fmt::Display for FileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Router => f.write_str("router.db"),
            Self::Month(month) => write!(f, "messages_{month}.db"),
        }
    }
}

/// None for a name that is not exactly a month's, for example of a copy.
fn month_of_name(name: &str) -> Option<Month> {
    name.strip_prefix("messages_")?.strip_suffix(".db")?.parse().ok()
}

/// Refuses a directory that other users may change, and databases in it, with SQLite's files beside them, that they may
/// read or change. They may list it. Of a symbolic link, the target is checked.
pub fn check_dir(dir: &Path) -> Result<(), OpenError> {
    let failed = |error| OpenError::io(dir, error);
    let mut exposed: Vec<_> = check_access(dir, OTHERS_WRITE, 0o700)?.into_iter().collect();
    let names = fs::read_dir(dir).map_err(failed)?.map(|entry| Ok(entry?.file_name()));
    let mut names: Vec<_> = names.collect::<io::Result<_>>().map_err(failed)?;
    names.retain(|name| name.to_str().is_some_and(is_database));
    names.sort();
    // What is no file is refused when it is opened, and so is what SQLite keeps beside a missing database.
    let databases = names.iter().map(|name| dir.join(name)).filter(|path| path.is_file());
    let files = databases.flat_map(|path| {
        let beside = BESIDE.map(|end| sibling(&path, end));
        iter::once(path).chain(beside.into_iter().filter(|path| path.is_file()))
    });
    for path in files {
        match check_access(&path, OTHERS_RIGHTS, 0o600) {
            // Another process has just removed what SQLite keeps beside a database.
            Err(OpenError::Directory { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            checked => exposed.extend(checked?),
        }
    }
    if exposed.is_empty() { Ok(()) } else { Err(OpenError::Exposed(exposed)) }
}

/// Gives an empty file its tables and a write-ahead log.
fn make_database(key: FileKey, path: &Path, support: SyncSupport) -> Result<(), OpenError> {
    let failed = |error| OpenError::unreadable(path, &error);
    let mut conn = connect_in_any_mode(path, ConnectionRole::Writer, support).map_err(failed)?;
    key.schema().create(&mut conn, path)?;
    set_wal(&conn).map_err(failed)?;
    conn.close().map_err(|(_, error)| failed(error))
}

/// Checks rights, journal mode and schema of a file that was just made, on a new connection.
fn check_made(key: FileKey, path: &Path, support: SyncSupport) -> Result<(), OpenError> {
    if let Some(exposed) = check_access(path, OTHERS_RIGHTS, 0o600)? {
        return Err(OpenError::Exposed(vec![exposed]));
    }
    let failed = |error| OpenError::unreadable(path, &error);
    let conn = connect(path, ConnectionRole::Writer, support).map_err(failed)?;
    if !key.schema().is_complete(&conn, path)? {
        let (file, reason) = (path.to_owned(), "its tables are not on disk".to_owned());
        return Err(OpenError::Unreadable { file, reason });
    }
    conn.close().map_err(|(_, error)| failed(error))
}

/// Refuses a directory or a file of another user. Returns it if its mode has a right of `denied`.
fn check_access(path: &Path, denied: u32, safe: u32) -> Result<Option<Exposed>, OpenError> {
    let metadata = fs::metadata(path).map_err(|error| OpenError::io(path, error))?;
    if let Some(other) = OtherOwner::of(&metadata) {
        return Err(OpenError::OtherOwner { path: path.to_owned(), other });
    }
    let mode = metadata.mode() & 0o7777;
    Ok((mode & denied != 0).then(|| Exposed { path: path.to_owned(), mode, safe }))
}

pub(super) fn is_database(name: &str) -> bool {
    name == FileKey::Router.to_string() || month_of_name(name).is_some()
}

/// Removes a database before its log: a database without its log would be an older one.
fn remove_with_log(path: &Path) -> io::Result<()> {
    durable::remove(path)?;
    remove_log(path)
}

fn remove_log(path: &Path) -> io::Result<()> {
    durable::remove_all(&BESIDE.map(|end| sibling(path, end)))
}

fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The newest months, which a health check looks at.
const MONTHS_CHECKED: usize = 2;

/// What SQLite may keep beside a database.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// The rights of group and others in a mode: all, and to write.
const OTHERS_RIGHTS: u32 = 0o077;
const OTHERS_WRITE: u32 = 0o022;

#[cfg(test)]
mod tests {
    use super::super::statements::pragma;
    use super::*;

    #[test]
    fn every_write_is_synced_before_it_is_answered() {
        let home = tempfile::tempdir().unwrap();
        let (dir, _lock, _months) = DataDir::open(home.path()).unwrap();
        let conn = dir.connect(FileKey::Router, ConnectionRole::Writer).unwrap();
        assert_eq!(pragma::<String>(&conn, "journal_mode").unwrap(), "wal");
        assert_eq!(pragma::<i64>(&conn, "synchronous").unwrap(), 2, "FULL");
    }

    #[test]
    fn only_exact_names_are_files_of_a_month() {
        assert_eq!(month_of_name("messages_2026_11.db"), Month::new(2026, 11).ok());
        for other in ["messages_2026_13.db", "messages_2026_11.db.new", "messages_2026_11 (1).db"] {
            assert_eq!(month_of_name(other), None, "{other}");
        }
    }

    #[test]
    fn a_lock_ends_with_its_store_though_a_child_process_has_a_copy_of_it() {
        let home = tempfile::tempdir().unwrap();
        let lock = DirLock::take(home.path()).unwrap();
        let _copies = [&lock.dir, &lock.file].map(|held| held.try_clone().unwrap());
        excludes_others_while_it_lives(lock, home.path());
    }

    #[test]
    fn a_lock_survives_the_removal_of_its_file() {
        let home = tempfile::tempdir().unwrap();
        let lock = DirLock::take(home.path()).unwrap();
        fs::remove_file(home.path().join("lock")).unwrap();
        excludes_others_while_it_lives(lock, home.path());
    }

    fn excludes_others_while_it_lives(lock: DirLock, dir: &Path) {
        assert!(matches!(DirLock::take(dir), Err(OpenError::InUse { .. })));
        drop(lock);
        DirLock::take(dir).unwrap();
    }

    #[test]
    fn an_old_log_is_not_applied_to_a_new_file() {
        let home = tempfile::tempdir().unwrap();
        let (dir, _lock, _months) = DataDir::open(home.path()).unwrap();
        let key = FileKey::Month("2026_11".parse().unwrap());
        let log = sibling(&dir.path_of(key), "-wal");
        fs::write(&log, "left by a process that died").unwrap();
        dir.make(key).unwrap();
        assert!(!log.exists());
        dir.verify(key).unwrap();
    }
}
