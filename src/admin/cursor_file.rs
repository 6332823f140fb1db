//! Where `kalends feed tail` remembers how far it has come.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use state_machine::feed::FeedName;

use super::feed::Name;
use super::locked_file::{LockError, LockedFile};

/// Bytes of a cursor file at most.
const FILE_BYTES_MAX: u64 = 4096;

/// The file of one feed's cursor.
#[derive(Debug)]
pub struct CursorFile {
    /// As it was named.
    path: PathBuf,
    feed: FeedName,
    file: LockedFile,
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
    /// It is no file.
    #[error(transparent)]
    NotAFile(LockError),
    /// Another tail has it.
    #[error("another tail keeps its cursor in {}: end that one, or name another file", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
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
    /// The file, which need not be there yet but must be one that can be written, and the cursor in it. No other tail
    /// can open it until this is dropped.
    pub fn open(path: &Path, feed: &FeedName) -> Result<(Self, Option<u64>), CursorError> {
        let (path, feed) = (path.to_owned(), feed.clone());
        let file = match LockedFile::open(&path) {
            Ok(file) => file,
            Err(LockError::InUse) => return Err(CursorError::InUse { path }),
            Err(LockError::Io(error)) => return Err(CursorError::Unwritable { path, error }),
            Err(error @ LockError::NotAFile(_)) => return Err(CursorError::NotAFile(error)),
        };
        let file = Self { path, feed, file };
        let cursor = file.load()?;
        Ok((file, cursor))
    }

    /// Keeps a cursor. It is on disk once this returns, and the file is whole at any time.
    pub fn save(&mut self, cursor: u64) -> Result<(), CursorError> {
        let contents = Contents { feed: Name(self.feed.clone()), cursor };
        let mut text = serde_json::to_string(&contents).expect("it has only text as keys");
        text.push('\n');
        let replaced = self.file.replace(text.as_bytes());
        replaced.map_err(|error| CursorError::Unwritable { path: self.path.clone(), error })
    }

    fn load(&self) -> Result<Option<u64>, CursorError> {
        // One byte more than there may be, so that what is behind them is noticed.
        let text = self.file.read(FILE_BYTES_MAX + 1);
        let text = text.map_err(|error| CursorError::Unreadable { path: self.path.clone(), error });
        let Some(text) = text? else { return Ok(None) };
        let contents = parse(&text);
        let contents = contents.ok_or_else(|| CursorError::Malformed { path: self.path.clone() });
        let Contents { feed: Name(theirs), cursor } = contents?;
        if theirs == self.feed {
            return Ok(Some(cursor));
        }
        let (path, ours) = (self.path.clone(), self.feed.clone());
        Err(CursorError::OtherFeed { path, theirs, ours })
    }
}

fn parse(text: &[u8]) -> Option<Contents> {
    let is_whole = text.len() as u64 <= FILE_BYTES_MAX;
    is_whole.then(|| serde_json::from_slice(text).ok()).flatten()
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
        let mut expected = None;
        for number in [7, 9] {
            let (mut file, kept) = CursorFile::open(&path, &feed("a")).unwrap();
            assert_eq!(kept, expected);
            for number in [number, number + 1] {
                file.save(number).unwrap();
                let text = fs::read_to_string(&path).unwrap();
                assert_eq!(text, format!("{{\"feed\":\"a\",\"cursor\":{number}}}\n"));
            }
            expected = Some(number + 1);
        }
    }

    #[test]
    fn a_second_tail_is_refused_with_what_to_do() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("cursor");
        let first = CursorFile::open(&path, &feed("a")).unwrap();
        let why = cursor(&path, "a").unwrap_err();
        assert!(why.starts_with("another tail keeps its cursor in "), "{why}");
        drop(first);
        assert_eq!(cursor(&path, "a"), Ok(None));
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
    fn what_is_no_cursor_is_refused_with_what_to_do_and_left_as_it_was() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("cursor");
        let (whole, spaces) = (r#"{"feed":"a","cursor":3}"#, " ".repeat(5000));
        let negative = whole.replace('3', "-1");
        let (long, garbage) = (format!("{whole}{spaces}"), format!("{whole}{spaces}x"));
        for wrong in [
            "",
            "7",
            "{",
            r#"{"feed":"a"}"#,
            r#"{"feed":"A","cursor":1}"#,
            &negative,
            &long,
            &garbage,
        ] {
            fs::write(&path, wrong).unwrap();
            assert!(cursor(&path, "a").unwrap_err().contains("remove it to begin"), "{wrong}");
            assert_eq!(fs::read_to_string(&path).unwrap(), wrong);
        }
        let padding = usize::try_from(FILE_BYTES_MAX).unwrap() - whole.len();
        fs::write(&path, format!("{whole}{}", &spaces[..padding])).unwrap();
        assert_eq!(cursor(&path, "a"), Ok(Some(3)));
    }

    #[test]
    fn a_file_that_could_not_be_kept_is_told_before_anything_is_printed() {
        let why = cursor(Path::new("/nowhere/at/all"), "a").unwrap_err();
        assert!(why.starts_with("cannot keep the cursor in /nowhere/at/all: "), "{why}");
        let why = cursor(Path::new("/dev/null"), "a").unwrap_err();
        assert!(why.starts_with("/dev/null is not a regular file: name one"), "{why}");
    }
}
