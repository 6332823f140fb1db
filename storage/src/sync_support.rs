//! File systems that cannot sync files or directories: fsync answers EINVAL or ENOTSUP.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::data_dir::DirError;
use crate::durable;

/// What the file system of a data directory can sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncSupport {
    Everything,
    /// Not the names in a directory.
    Files,
    Nothing,
}

impl SyncSupport {
    /// Syncs a data directory and its file `lock`, which it creates. Refuses a file system that cannot do that, unless it
    /// is tolerated.
    pub fn of(dir: &Path) -> Result<Self, DirError> {
        let lock = dir.join("lock");
        let file = durable::lock_file(&lock).map_err(|error| DirError::io(&lock, error))?;
        let itself = File::open(dir).map_err(|error| DirError::io(dir, error))?;
        let syncs_files = can_sync(&file).map_err(|error| DirError::io(&lock, error))?;
        let syncs_names = can_sync(&itself).map_err(|error| DirError::io(dir, error))?;
        match Self::from(syncs_files, syncs_names) {
            Self::Everything => Ok(Self::Everything),
            support if durable::is_unsynced_tolerated() => Ok(support),
            support => Err(DirError::Unsynced { dir: dir.to_owned(), lost: support.lost() }),
        }
    }

    fn from(syncs_files: bool, syncs_names: bool) -> Self {
        match (syncs_files, syncs_names) {
            (true, true) => Self::Everything,
            (true, false) => Self::Files,
            (false, _) => Self::Nothing,
        }
    }

    /// What it cannot sync.
    pub fn lost(self) -> &'static str {
        match self {
            Self::Everything => "nothing",
            Self::Files => "directories",
            Self::Nothing => "files",
        }
    }
}

fn can_sync(file: &File) -> io::Result<bool> {
    match file.sync_all() {
        Err(error) if durable::is_unsupported(&error) => Ok(false),
        synced => synced.map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_system_cannot_sync_is_found() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(SyncSupport::of(home.path()).unwrap(), SyncSupport::Everything);
        // The kernel has no fsync for these.
        for path in ["/dev/null", "/proc/self"] {
            assert!(!can_sync(&File::open(path).unwrap()).unwrap(), "{path}");
        }
        assert_eq!(SyncSupport::from(true, false), SyncSupport::Files);
        assert_eq!(SyncSupport::from(false, true), SyncSupport::Nothing);
    }

    #[test]
    fn the_refusal_names_directory_and_setting() {
        let (dir, lost) = ("/data".into(), SyncSupport::Files.lost());
        let text = DirError::Unsynced { dir, lost }.to_string();
        assert!(text.contains("/data cannot sync directories"), "{text}");
        assert!(text.contains("allow_unsynced_data_dir"), "{text}");
    }
}
