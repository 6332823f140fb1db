//! What can go wrong: when a data directory is opened, and inside the engine.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use crate::store::StoreError;

/// Why a data directory cannot be used. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory or a file in it cannot be made, read or written.
    #[error("cannot use {} as a data directory: {source}", path.display())]
    Directory {
        /// The directory or the file in it.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// Another process, or another store of this one, has it open.
    #[error(
        "the data directory {} is in use by another process, a server or a kalends command: wait \
         for it or stop it",
        dir.display()
    )]
    InUse {
        /// The directory.
        dir: PathBuf,
    },
    /// There are message tables but no router table: starting would forget every user agent.
    #[error(
        "{} is missing but other tables are there: restore it from a backup, \
         or move the other tables away to start empty",
        file.display()
    )]
    RouterMissing {
        /// The file that should be there.
        file: PathBuf,
    },
    /// A month's messages and channels are gone: starting would forget them.
    #[error("{} is missing: restore it from a backup", file.display())]
    MonthMissing {
        /// The file that should be there.
        file: PathBuf,
    },
    /// The file is some other program's database, an empty file, or a table under a wrong name.
    #[error(
        "{} is not the database that its name says: move it away or restore it from a backup",
        file.display()
    )]
    Foreign {
        /// The file.
        file: PathBuf,
    },
    /// The file was written by a newer version of this program.
    #[error(
        "{} has schema version {found} and this program knows none above {known}: \
         run the newer version again, or restore a backup from before it",
        file.display()
    )]
    Newer {
        /// The file.
        file: PathBuf,
        /// Its schema version.
        found: usize,
        /// The newest schema version known here.
        known: usize,
    },
    /// The file, or one that SQLite keeps beside it, may not be opened or written.
    #[error(
        "cannot use {}: {reason}; look at the owner and the mode of the file, of those beside it and \
         of the directory",
        file.display()
    )]
    Denied {
        /// The file.
        file: PathBuf,
        /// What SQLite says.
        reason: String,
    },
    /// The file is damaged, not a database, or cannot be brought up to date.
    #[error("cannot open {}: {reason}; if it is damaged, restore it from a backup", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What SQLite says.
        reason: String,
    },
    /// The writer thread could not be started.
    #[error("cannot start the store's writer thread: {0}")]
    Thread(io::Error),
}

impl OpenError {
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        Self::Directory { path: path.to_owned(), source }
    }

    pub(super) fn unreadable(file: &Path, error: &rusqlite::Error) -> Self {
        let (file, reason) = (file.to_owned(), error.to_string());
        match error.sqlite_error_code() {
            Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
                Self::Denied { file, reason }
            }
            _ => Self::Unreadable { file, reason },
        }
    }
}

/// Why a job of the writer did not do what it should.
#[derive(Debug)]
pub(super) enum WriterError {
    /// This is the answer. The job left nothing behind that its neighbours in the transaction
    /// should not be committed with.
    Refused(StoreError),
    /// A statement failed half-way: the transaction must be rolled back.
    Broken(StoreError),
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn told(code: i32) -> String {
        let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        OpenError::unreadable(Path::new("router.db"), &error).to_string()
    }

    #[test]
    fn a_backup_is_named_only_where_a_file_may_be_damaged() {
        for code in [ffi::SQLITE_CORRUPT, ffi::SQLITE_NOTADB] {
            assert!(told(code).contains("restore it from a backup"), "{}", told(code));
        }
        // The last one is said where the log beside the file cannot be written.
        let readonly = [ffi::SQLITE_READONLY, ffi::SQLITE_READONLY_CANTINIT];
        for code in [ffi::SQLITE_CANTOPEN, ffi::SQLITE_PERM].into_iter().chain(readonly) {
            let told = told(code);
            assert!(told.contains("look at the owner and the mode"), "{told}");
            assert!(!told.contains("backup"), "{told}");
        }
    }
}
