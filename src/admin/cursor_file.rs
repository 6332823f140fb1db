//! Where `kalends feed tail` remembers how far it has come.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use state_machine::feed::FeedName;

use super::feed::Name;

/// Bytes of a cursor file at most.
const FILE_BYTES_MAX: u64 = 4096;

/// The file of one feed's cursor.
#[derive(Debug)]
pub struct CursorFile {
    path: PathBuf,
    feed: FeedName,
}

/// Why a cursor is not known or not kept.
#[derive(Debug, thiserror::Error)]
pub enum CursorError {
    /// It cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It cannot be written.
    #[error("cannot keep the cursor in {}: {error}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It is something else.
    #[error(
        "{} is not a cursor file: name another one, or remove it to begin with the feed's first update",
        path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
    },
    /// It belongs to another feed.
    #[error("{} is the cursor of the feed {theirs}, not of {ours}: name another file", path.display())]
    OtherFeed {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        theirs: FeedName,
        /// Which was asked for.
        ours: FeedName,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    feed: Name,
    cursor: u64,
}

impl CursorFile {
    /// The file, which need not be there yet but must be one that can be written, and the cursor in it.
    pub fn open(path: &Path, feed: &FeedName) -> Result<(Self, Option<u64>), CursorError> {
        let file = Self { path: path.to_owned(), feed: feed.clone() };
        let cursor = file.load()?;
        // Better now than when there is something to be kept.
        tempfile::tempfile_in(file.dir()).map_err(|error| file.unwritable(error))?;
        Ok((file, cursor))
    }

    /// Keeps a cursor. It is on disk once this returns, and the file is whole at any time.
    pub fn save(&self, cursor: u64) -> Result<(), CursorError> {
        let contents = Contents { feed: Name(self.feed.clone()), cursor };
        let mut text = serde_json::to_string(&contents).expect("it has only text as keys");
        text.push('\n');
        self.replace(&text).map_err(|error| self.unwritable(error))
    }

    fn load(&self) -> Result<Option<u64>, CursorError> {
        let Some(text) = self.read()? else { return Ok(None) };
        let contents = serde_json::from_slice::<Contents>(&text)
            .map_err(|_| CursorError::Malformed { path: self.path.clone() })?;
        let Contents { feed: Name(theirs), cursor } = contents;
        if theirs == self.feed {
            return Ok(Some(cursor));
        }
        let (path, ours) = (self.path.clone(), self.feed.clone());
        Err(CursorError::OtherFeed { path, theirs, ours })
    }

    fn read(&self) -> Result<Option<Vec<u8>>, CursorError> {
        let mut text = Vec::new();
        let read = File::open(&self.path)
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut text));
        match read {
            Ok(_) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(CursorError::Unreadable { path: self.path.clone(), error }),
        }
    }

    fn replace(&self, text: &str) -> io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(".cursor-").tempfile_in(self.dir())?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(&self.path)?;
        File::open(self.dir())?.sync_all()
    }

    fn dir(&self) -> &Path {
        match self.path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        }
    }

    fn unwritable(&self, error: io::Error) -> CursorError {
        CursorError::Unwritable { path: self.path.clone(), error }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn feed(name: &str) -> FeedName {
        FeedName::parse(name).unwrap()
    }

    fn cursor(path: &Path, name: &str) -> Result<Option<u64>, String> {
        let opened = CursorFile::open(path, &feed(name));
        opened.map(|(_, cursor)| cursor).map_err(|error| error.to_string())
    }

    #[test]
    fn a_cursor_is_found_again_and_replaced() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("cursor");
        let (file, none) = CursorFile::open(&path, &feed("a")).unwrap();
        assert_eq!(none, None);
        for number in [7, 8] {
            file.save(number).unwrap();
            assert_eq!(cursor(&path, "a"), Ok(Some(number)));
        }
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_cursor_of_another_feed_is_refused_with_both_names() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("cursor");
        CursorFile::open(&path, &feed("a")).unwrap().0.save(7).unwrap();
        let why = cursor(&path, "b").unwrap_err();
        assert!(why.ends_with("is the cursor of the feed a, not of b: name another file"), "{why}");
    }

    #[test]
    fn what_is_no_cursor_is_refused_with_what_to_do() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("cursor");
        for wrong in ["", "7", "{", r#"{"feed":"a"}"#, r#"{"feed":"A","cursor":1}"#] {
            fs::write(&path, wrong).unwrap();
            assert!(cursor(&path, "a").unwrap_err().contains("remove it to begin"), "{wrong}");
        }
        fs::write(&path, r#"{"feed":"a","cursor":-1}"#).unwrap();
        assert!(cursor(&path, "a").is_err());
        assert!(cursor(home.path(), "a").unwrap_err().starts_with("cannot read "));
    }

    #[test]
    fn a_file_that_could_not_be_written_is_told_before_anything_is_printed() {
        let why = cursor(Path::new("/nowhere/at/all"), "a").unwrap_err();
        assert!(why.starts_with("cannot keep the cursor in /nowhere/at/all: "), "{why}");
    }
}
