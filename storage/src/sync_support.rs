//! File systems that cannot sync files or directories: fsync answers EINVAL or ENOTSUP.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use crate::embedded::OpenError;

/// What the file system of a data directory can sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncSupport {
    Everything,
    /// Not the names in a directory.
    Files,
    Nothing,
}

static IS_TOLERATED: AtomicBool = AtomicBool::new(false);

/// From now on such file systems are used as they are, with what a power loss then loses.
pub fn tolerate_unsynced() {
    IS_TOLERATED.store(true, Ordering::Relaxed);
}

impl SyncSupport {
    /// Syncs a data directory and its file `lock`, which it creates. Refuses a file system that cannot do that, unless it
    /// is tolerated.
    pub fn of(dir: &Path) -> Result<Self, OpenError> {
        let lock = dir.join("lock");
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&lock).map_err(|error| OpenError::io(&lock, error))?;
        let itself = File::open(dir).map_err(|error| OpenError::io(dir, error))?;
        let syncs_files = can_sync(&file).map_err(|error| OpenError::io(&lock, error))?;
        let syncs_names = can_sync(&itself).map_err(|error| OpenError::io(dir, error))?;
        match Self::from(syncs_files, syncs_names) {
            Self::Everything => Ok(Self::Everything),
            support if IS_TOLERATED.load(Ordering::Relaxed) => Ok(support),
            support => Err(OpenError::Unsynced { dir: dir.to_owned(), lost: support.lost() }),
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

/// Syncs a file or a directory of a file system that may be unable to, if that is tolerated.
pub(crate) fn sync(file: &File) -> io::Result<()> {
    match file.sync_all() {
        Err(error) if is_unsupported(&error) && IS_TOLERATED.load(Ordering::Relaxed) => Ok(()),
        synced => synced,
    }
}

fn can_sync(file: &File) -> io::Result<bool> {
    match file.sync_all() {
        Err(error) if is_unsupported(&error) => Ok(false),
        synced => synced.map(|()| true),
    }
}

/// Whether fsync is not known to a file system, which is no error of the disk.
pub(crate) fn is_unsupported(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| [Errno::INVAL, Errno::NOTSUP, Errno::OPNOTSUPP].contains(&errno))
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
    fn an_error_of_the_disk_is_not_taken_for_a_missing_fsync() {
        for errno in [Errno::IO, Errno::NOSPC, Errno::ROFS] {
            assert!(!is_unsupported(&errno.into()), "{errno}");
        }
    }

    #[test]
    fn the_refusal_names_directory_and_setting() {
        let (dir, lost) = ("/data".into(), SyncSupport::Files.lost());
        let text = OpenError::Unsynced { dir, lost }.to_string();
        assert!(text.contains("/data cannot sync directories"), "{text}");
        assert!(text.contains("allow_unsynced_data_dir"), "{text}");
    }
}
