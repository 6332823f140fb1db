//! Files of keys, agents, subscriptions and scripts, and what is printed.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use storage::durable;

/// Why a file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("cannot write {}: {error}", path.display())]
    Unwritable { path: PathBuf, error: io::Error },
    /// A file holds something else.
    #[error("{} is not {what}: {why}", path.display())]
    Malformed {
        path: PathBuf,
        /// What it should be.
        what: &'static str,
        why: String,
    },
    /// It belongs to something else.
    #[error("{}: {why}", path.display())]
    Foreign { path: PathBuf, why: String },
}

/// Reads at most so many MiB: a device would have no end.
pub(super) fn read_at_most(path: &Path, mib: u64, too_large: &str) -> Result<String, FileError> {
    let unreadable = |error| FileError::Unreadable { path: path.to_owned(), error };
    let mut text = String::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take((mib << 20) + 1).read_to_string(&mut text).map_err(unreadable)?;
    match text.len() as u64 > mib << 20 {
        true => Err(unreadable(io::Error::new(ErrorKind::InvalidData, too_large))),
        false => Ok(text),
    }
}

/// Reads a file of keys, of an agent or of a subscription.
pub(super) fn read(path: &Path) -> Result<String, FileError> {
    read_at_most(path, 1, "it is larger than 1 MiB")
}

/// Reads JSON; `what` it should be is named in the error.
pub(super) fn read_json<T: DeserializeOwned>(
    path: &Path,
    what: &'static str,
) -> Result<T, FileError> {
    let malformed = |why| FileError::Malformed { path: path.to_owned(), what, why };
    serde_json::from_str(&read(path)?).map_err(|error| malformed(error.to_string()))
}

/// Writes a file that only its owner may read. It appears whole or not at all.
pub(super) fn write_private(path: &Path, text: &str) -> Result<(), FileError> {
    durable::replace(path, text)
        .map_err(|error| FileError::Unwritable { path: path.to_owned(), error })
}

/// The same for a file that is not there. Of one that may not be on disk, nothing is left.
pub(super) fn create_private(path: &Path, text: &str) -> Result<(), FileError> {
    durable::create(path, text)
        .map_err(|error| FileError::Unwritable { path: path.to_owned(), error })
}

/// Prints lines until the reader of the output, such as `head`, is gone.
pub(super) fn print(lines: &[String]) -> io::Result<()> {
    print_to(&mut io::stdout().lock(), lines)
}

fn print_to(out: &mut impl Write, lines: &[String]) -> io::Result<()> {
    match lines.iter().try_for_each(|line| writeln!(out, "{line}")) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_private_file_is_the_owners_and_replaces_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        write_private(&path, "one").unwrap();
        write_private(&path, "two").unwrap();
        assert_eq!(read(&path).unwrap(), "two");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn printing_ends_with_its_reader() {
        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        print_to(&mut writer, &["a line".to_owned()]).unwrap();
        let full = print_to(&mut &mut [0; 3][..], &["a line".to_owned()]);
        assert_eq!(full.unwrap_err().kind(), ErrorKind::WriteZero);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let error = write_private(Path::new("/nowhere/at/all"), "").unwrap_err().to_string();
        assert!(error.starts_with("cannot write /nowhere/at/all: "), "{error}");
    }
}
