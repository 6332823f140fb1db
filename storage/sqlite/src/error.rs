//! Errors of opening a data directory and of the writer's jobs.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{ErrorCode, ffi};
use storage::data_dir::{DirError, FileKey};
use storage::store::StoreError;

/// Why a data directory cannot be opened. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Dir(#[from] DirError),
    /// There are message tables but no router table: starting would lose every user agent.
    #[error(
        "{} is missing but other tables are there: restore it from a backup, \
         or move the other tables away to start empty",
        file.display()
    )]
    RouterMissing { file: PathBuf },
    /// A listed month has no file: starting would lose its messages and channels.
    #[error("{} is missing: restore it from a backup", file.display())]
    MonthMissing { file: PathBuf },
    /// The file is another program's database, empty, or a table under a wrong name.
    #[error(
        "{} is not the database that its name promises: move it away or restore it from a backup",
        file.display()
    )]
    Foreign { file: PathBuf },
    /// The file was written by a newer version of this program.
    #[error(
        "{} has schema version {found} of a newer kalends, and kalends {} knows none above {known}: \
         run the newer version again, or restore a backup from before it",
        file.display(), env!("CARGO_PKG_VERSION")
    )]
    Newer { file: PathBuf, found: usize, known: usize },
    /// The process may not open or write the file, or one that SQLite keeps beside it.
    #[error(
        "cannot use {}: {reason}; look at the owner and the mode of the file, of those beside it and \
         of the directory",
        file.display()
    )]
    Denied { file: PathBuf, reason: String, is_refused: bool },
    /// The file is damaged, not a database, or cannot be migrated.
    #[error("cannot open {}: {reason}; if it is damaged, restore it from a backup", file.display())]
    Unreadable { file: PathBuf, reason: String, is_damaged: bool },
    /// There is no space for what would lead back to the older version.
    #[error(
        "{} is of an older version, and {needed_bytes} bytes are needed for a copy before it is changed, and {free_bytes} are \
         free: free some, or make a backup with the older version and set migration_copy = false",
        file.display()
    )]
    NoSpaceForCopy { file: PathBuf, needed_bytes: u64, free_bytes: u64 },
    /// Through a link, the copies would be written elsewhere.
    #[error(
        "{} is no directory, and it is to have the copies of files of an older version: move it away, or make a backup with \
         the older version and set migration_copy = false",
        path.display()
    )]
    NoDirForCopy { path: PathBuf },
    #[error("cannot copy {} before it is changed: {error}", file.display())]
    Copy { file: PathBuf, error: StoreError },
    /// Another program or the mode of the file keeps SQLite's rollback journal, with which an answered write can be lost.
    #[error(
        "{} has a rollback journal, with which a power loss can lose answered writes, and cannot be given a write-ahead \
         log: {reason}; close other programs that use the file, and look at its owner and mode",
        file.display()
    )]
    JournalMode { file: PathBuf, reason: String },
    /// Another program reads what a killed process left in the log, so that it cannot be emptied.
    #[error("another program reads {} or its log: close that program, then start again", file.display())]
    LogInUse { file: PathBuf },
    /// The operating system refused the writer thread.
    #[error("cannot start the store's writer thread: {0}")]
    Thread(io::Error),
}

impl OpenError {
    pub(crate) fn unreadable(file: &Path, error: &rusqlite::Error) -> Self {
        if is_of_full_disk(error) {
            return DirError::no_space(file).into();
        }
        let (file, reason) = (file.to_owned(), error.to_string());
        match error.sqlite_error_code() {
            Some(
                code @ (ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied),
            ) => {
                // A disk that fails cannot be opened either.
                let is_refused = code != ErrorCode::CannotOpen;
                Self::Denied { file, reason, is_refused }
            }
            code => {
                let is_damaged =
                    matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase));
                Self::Unreadable { file, reason, is_damaged }
            }
        }
    }

    /// Whether every start fails until an operator changes a file, a mode or a setting, or runs another version.
    pub fn is_final(&self) -> bool {
        match self {
            Self::RouterMissing { .. }
            | Self::MonthMissing { .. }
            | Self::Foreign { .. }
            | Self::Newer { .. }
            | Self::NoSpaceForCopy { .. }
            | Self::NoDirForCopy { .. } => true,
            Self::Denied { is_refused, .. } => *is_refused,
            Self::Unreadable { is_damaged, .. } => *is_damaged,
            // These may end by themselves, or have their own classes.
            Self::Dir(_)
            | Self::Copy { .. }
            | Self::JournalMode { .. }
            | Self::LogInUse { .. }
            | Self::Thread(_) => false,
        }
    }

    /// The write-ahead log could not be chosen.
    pub(crate) fn journal_mode(file: &Path, error: &rusqlite::Error) -> Self {
        match is_of_full_disk(error) {
            true => DirError::no_space(file).into(),
            false => Self::JournalMode { file: file.to_owned(), reason: error.to_string() },
        }
    }
}

/// The error of a write to `file`.
pub(crate) fn write_error(file: FileKey, error: &rusqlite::Error) -> StoreError {
    match is_of_full_disk(error) {
        true => StoreError::NoSpace,
        false => StoreError::Failed(format!("cannot write {file}: {error}")),
    }
}

/// Whether the file, or the memory that SQLite shares beside it, could not grow.
pub(crate) fn is_of_full_disk(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| (error.code, error.extended_code));
    matches!(code, Some((ErrorCode::DiskFull, _) | (_, ffi::SQLITE_IOERR_SHMSIZE)))
}

/// Whether pages could not be read, or have other contents than were written.
pub(crate) fn is_of_read(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| (error.code, error.extended_code));
    matches!(
        code,
        Some(
            (ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase, _)
                | (_, ffi::SQLITE_IOERR_READ | ffi::SQLITE_IOERR_SHORT_READ)
        )
    )
}

/// Why a job of the writer failed.
#[derive(Debug)]
pub(crate) enum WriterError {
    /// The job changed nothing: the other jobs of its transaction may be committed.
    Refused(StoreError),
    /// A statement failed half-way: the transaction must be rolled back.
    Broken(StoreError),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(code: i32) -> String {
        let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        OpenError::unreadable(Path::new("router.db"), &error).to_string()
    }

    #[test]
    fn a_backup_is_named_only_where_a_file_may_be_damaged() {
        for code in [ffi::SQLITE_CORRUPT, ffi::SQLITE_NOTADB] {
            assert!(message(code).contains("restore it from a backup"), "{}", message(code));
        }
        // The last is SQLite's code if the write-ahead log cannot be written.
        let readonly = [ffi::SQLITE_READONLY, ffi::SQLITE_READONLY_CANTINIT];
        for code in [ffi::SQLITE_CANTOPEN, ffi::SQLITE_PERM].into_iter().chain(readonly) {
            let message = message(code);
            assert!(message.contains("look at the owner and the mode"), "{message}");
            assert!(!message.contains("backup"), "{message}");
        }
    }
}
