//! `kalends backup` and `kalends restore`.
//!
//! A backup begins with a snapshot of the store's files, which the process that holds the store makes
//! ([`command`](crate::command)). The command then archives it with the files that belong to it.
//!
//! - [`age`]: encryption of an archive.
//! - [`archive`]: the format, a tar file that begins with `manifest.json`; [`archive_text`]: what it quotes.
//! - [`meter`] shows progress.
//! - [`create`]: `kalends backup`; [`restore`]: `kalends restore`.

mod age;
mod archive;
mod archive_text;
pub mod create;
mod meter;
pub mod restore;

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use storage::durable;

use self::archive_text::ArchiveText;
use crate::command::CommandError;
use crate::settings::keys::KeysError;
use crate::settings::store::OpenStoreError;
use crate::system::regular_file;

/// The highest message id, which the server keeps beside its store.
const CLOCK_FILE: &str = "clock";

/// A file name that means standard input or output.
const STANDARD: &str = "-";

/// Why a command did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error(transparent)]
    Admin(#[from] CommandError),
    #[error("{} exists: name another file, or add --force to replace it", file.display())]
    Exists { file: PathBuf },
    #[error("{} is not a file: name one, or - for standard output", file.display())]
    NotAFile { file: PathBuf },
    #[error("{} is the data directory: write the archive elsewhere, best to another disk", dir.display())]
    InDataDir { dir: PathBuf },
    #[error("another backup of {} is running: wait for it", dir.display())]
    Running { dir: PathBuf },
    #[error("{}", durable::cannot_write(.path, .error))]
    Unwritable { path: PathBuf, error: io::Error },
    #[error("cannot read {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("this is no archive of `kalends backup`")]
    NoArchive,
    #[error("the archive is truncated: {}", ArchiveText::of(.0))]
    Truncated(io::Error),
    #[error("the archive has format {found} and this program knows {known}: use the newer kalends")]
    Newer { found: u32, known: u32 },
    #[error("the archive is damaged: {0}")]
    Damaged(ArchiveText),
    #[error("the keys in the archive are not those that its manifest names")]
    ForeignKeys,
    #[error("the keys in the archive cannot be used: {}", ArchiveText::of(.0))]
    Keys(KeysError),
    #[error("a database in the archive cannot be used: {}", ArchiveText::of(.0))]
    Database(OpenStoreError),
    #[error(
        "the program age is not installed: install it (the package age), or pipe the archive to another program"
    )]
    NoAge,
    #[error("age failed, {0}")]
    Age(String),
    #[error("{} is not empty: restore into a directory that is empty or missing", dir.display())]
    NotEmpty { dir: PathBuf },
}

/// Reads from standard input or from a file.
fn open(file: &Path) -> Result<Box<dyn Read + Send>, BackupError> {
    if file.as_os_str() == STANDARD {
        return Ok(Box::new(io::stdin()));
    }
    let opened = regular_file::open(file);
    let unreadable = |error| BackupError::Unreadable { path: file.to_owned(), error };
    Ok(Box::new(io::BufReader::new(opened.map_err(unreadable)?)))
}

/// The directory of a file.
fn parent(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}
