//! The data directory of a server: its lock, who may use it, and the names of the databases in it. Also a server on
//! another database has one, for its keys.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fmt, iter};

use state_machine::Month;

use crate::durable;
use crate::owner::OtherOwner;

/// Why a data directory cannot be used. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum DirError {
    /// The directory or a file in it cannot be created, read or written.
    #[error("cannot use {} as a data directory: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    /// The disk is mounted so that nothing can be written.
    #[error(
        "cannot write {}: its file system is read-only, so mount it writable, or set data_dir to a directory on another \
         disk",
        path.display()
    )]
    ReadOnly { path: PathBuf },
    /// The directory or a file in it belongs to another user, who could replace or read it.
    #[error(
        "{} belongs to uid {}, and this runs as uid {}: run it as that user, or run `chown {} {}` if you \
         know what wrote it",
        path.display(), .other.owner, .other.own, .other.own, path.display()
    )]
    OtherOwner { path: PathBuf, other: OtherOwner },
    /// The modes of the directory or of files in it give other users rights.
    #[error("{}", .0.iter().map(Exposed::to_string).collect::<Vec<_>>().join("\n"))]
    Exposed(Vec<Exposed>),
    /// A power loss would lose what was answered.
    #[error(
        "the file system of the data directory {} cannot sync {lost}, so a power loss can lose subscriptions and messages: \
         use a directory on another disk, or accept that with allow_unsynced_data_dir = true",
        dir.display()
    )]
    Unsynced { dir: PathBuf, lost: &'static str },
    /// Another process, or another store of this one, holds the lock.
    #[error(
        "the data directory {} is in use by another process, a server or a kalends command: wait \
         for it or stop it",
        dir.display()
    )]
    InUse { dir: PathBuf },
    /// The disk has no space for the file, or for one that SQLite keeps beside it.
    #[error(
        "cannot use {}: its disk has {free_bytes} free bytes, which is too little: move another file away, or make the \
         disk larger; with a few MB, `kalends tables drop-old` can free more",
        file.display()
    )]
    NoSpace { file: PathBuf, free_bytes: u64 },
}

/// A directory or a file to which other users have rights that `safe` does not give them.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} has mode {mode:04o}, so other users can change it, or read it: run `chmod {safe:o} {}`",
    path.display(), path.display()
)]
pub struct Exposed {
    pub path: PathBuf,
    pub mode: u32,
    pub safe: u32,
}

impl DirError {
    pub fn io(path: &Path, source: io::Error) -> Self {
        match source.kind() {
            ErrorKind::StorageFull => Self::no_space(path),
            ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path: path.to_owned() },
            _ => Self::Directory { path: path.to_owned(), source },
        }
    }

    pub fn no_space(file: &Path) -> Self {
        let free_bytes = file.parent().and_then(|dir| free_bytes(dir).ok()).unwrap_or(0);
        Self::NoSpace { file: file.to_owned(), free_bytes }
    }
}

/// A database file: `router.db` or `messages_2026_11.db`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKey {
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

impl DirLock {
    /// Locks a directory, which must exist.
    pub fn take(dir: &Path) -> Result<Self, DirError> {
        check_dir(dir)?;
        let failed = |error| DirError::io(dir, error);
        let itself = File::open(dir).map_err(failed)?;
        match itself.try_lock() {
            Err(TryLockError::WouldBlock) => {
                return Err(DirError::InUse { dir: dir.to_owned() });
            }
            // A network file system locks only files that are open for writing.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let path = dir.join("lock");
        let file = durable::lock_file(&path).map_err(|error| DirError::io(&path, error))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { dir: itself, file }),
            Err(TryLockError::WouldBlock) => Err(DirError::InUse { dir: dir.to_owned() }),
            Err(TryLockError::Error(error)) => Err(DirError::io(&path, error)),
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

impl FileKey {
    /// None for a name that is not exactly a database's, for example of a copy.
    pub fn parse(name: &str) -> Option<Self> {
        if name == Self::Router.to_string() {
            return Some(Self::Router);
        }
        let month = name.strip_prefix("messages_")?.strip_suffix(".db")?;
        month.parse().ok().map(Self::Month)
    }
}

/// Whether SQLite databases were ever made in the directory.
pub fn has_databases(dir: &Path) -> bool {
    dir.join(FileKey::Router.to_string()).exists()
}

impl fmt::Display for FileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Router => f.write_str("router.db"),
            Self::Month(month) => write!(f, "messages_{month}.db"),
        }
    }
}

/// Refuses a directory that other users may change, and databases in it, with SQLite's files beside them, that they may
/// read or change. They may list it. Of a symbolic link, the target is checked.
pub fn check_dir(dir: &Path) -> Result<(), DirError> {
    let failed = |error| DirError::io(dir, error);
    let mut found: Vec<_> = exposed(dir, OTHERS_WRITE, 0o700)?.into_iter().collect();
    let names = fs::read_dir(dir).map_err(failed)?.map(|entry| Ok(entry?.file_name()));
    let mut names: Vec<_> = names.collect::<io::Result<_>>().map_err(failed)?;
    names.retain(|name| name.to_str().is_some_and(|name| FileKey::parse(name).is_some()));
    names.sort();
    // What is no file is refused when it is opened, and so is what SQLite keeps beside a missing database.
    let databases = names.iter().map(|name| dir.join(name)).filter(|path| path.is_file());
    let files = databases.flat_map(|path| {
        let beside = BESIDE.map(|end| sibling(&path, end));
        iter::once(path).chain(beside.into_iter().filter(|path| path.is_file()))
    });
    for path in files {
        match check_private(&path) {
            // Another process has just removed what SQLite keeps beside a database.
            Err(DirError::Directory { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            checked => found.extend(checked?),
        }
    }
    if found.is_empty() { Ok(()) } else { Err(DirError::Exposed(found)) }
}

/// Refuses a file of another user. Returns it if other users may read or change it.
pub fn check_private(path: &Path) -> Result<Option<Exposed>, DirError> {
    exposed(path, OTHERS_RIGHTS, 0o600)
}

/// Refuses a directory or a file of another user. Returns it if its mode has a right of `denied`.
fn exposed(path: &Path, denied: u32, safe: u32) -> Result<Option<Exposed>, DirError> {
    let metadata = fs::metadata(path).map_err(|error| DirError::io(path, error))?;
    if let Some(other) = OtherOwner::of(&metadata) {
        return Err(DirError::OtherOwner { path: path.to_owned(), other });
    }
    let mode = metadata.mode() & 0o7777;
    Ok((mode & denied != 0).then(|| Exposed { path: path.to_owned(), mode, safe }))
}

pub fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Free bytes on the disk of a directory for this user.
pub fn free_bytes(dir: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(dir)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// What SQLite may keep beside a database.
pub const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// The rights of group and others in a mode: all, and to write.
const OTHERS_RIGHTS: u32 = 0o077;
const OTHERS_WRITE: u32 = 0o022;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_names_are_files_of_a_month() {
        assert_eq!(
            FileKey::parse("messages_2026_11.db"),
            Month::new(2026, 11).ok().map(FileKey::Month)
        );
        for other in ["messages_2026_13.db", "messages_2026_11.db.new", "messages_2026_11 (1).db"] {
            assert_eq!(FileKey::parse(other), None, "{other}");
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
        assert!(matches!(DirLock::take(dir), Err(DirError::InUse { .. })));
        drop(lock);
        DirLock::take(dir).unwrap();
    }
}
