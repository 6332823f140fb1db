//! The position of `kalends feed tail`, and the file that keeps it with `--cursor-file`.
//!
//! The file is replaced by a rename, so that it is whole at any time. A lock on `FILE.lock` keeps a second tail away;
//! it ends with the process, also by kill -9.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::mem;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use state_machine::feed::{FeedName, FeedSyncId};
use storage::data_dir::sibling;
use storage::durable;

use crate::command::output::Progress;

/// Maximum size of a cursor file, in bytes.
const FILE_BYTES_MAX: u64 = 4096;

/// The position of a tail in its feed.
#[derive(Debug)]
pub struct TailCursor {
    feed: FeedName,
    cursor: FeedSyncId,
    head: FeedSyncId,
    count: u64,
    file: Option<CursorFile>,
}

/// A cursor file, which no other tail uses until this is dropped.
#[derive(Debug)]
struct CursorFile {
    path: PathBuf,
    _lock: File,
}

/// Why a cursor cannot be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum CursorError {
    #[error("cannot read {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("cannot keep the cursor in {}: {error}", path.display())]
    Unwritable { path: PathBuf, error: io::Error },
    /// A rename would replace a link or a pipe, and a directory cannot be replaced.
    #[error("{} is not a regular file: name one, or a name that is free", path.display())]
    NotAFile { path: PathBuf },
    #[error("another tail keeps its cursor in {}: end that one, or name another file", path.display())]
    InUse { path: PathBuf },
    #[error(
        "{} is not a cursor file: name another one, or remove it to begin with the feed's first update",
        path.display()
    )]
    Malformed { path: PathBuf },
    #[error("{} is the cursor of the feed {theirs}, not of {ours}: name another file", path.display())]
    OtherFeed { path: PathBuf, theirs: FeedName, ours: FeedName },
}

/// The JSON in a cursor file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    feed: FeedName,
    cursor: FeedSyncId,
}

impl TailCursor {
    /// Begins behind the number in the file, or behind `after` if there is no file or it does not exist yet.
    pub fn begin(feed: &FeedName, after: u64, path: Option<&Path>) -> Result<Self, CursorError> {
        let file = path.map(CursorFile::open).transpose()?;
        let kept = file.as_ref().map(|file| file.load(feed)).transpose()?.flatten();
        let cursor = kept.unwrap_or(FeedSyncId(after));
        Ok(Self { feed: feed.clone(), cursor, head: FeedSyncId::NONE, count: 0, file })
    }

    /// Keeps the cursor after `count` updates were printed. It is on disk when this returns.
    pub fn printed(
        &mut self,
        count: u64,
        cursor: FeedSyncId,
        head: FeedSyncId,
    ) -> Result<(), CursorError> {
        self.count += count;
        self.head = self.head.max(head);
        let before = mem::replace(&mut self.cursor, cursor);
        match &self.file {
            Some(file) if cursor != before => {
                file.save(&Contents { feed: self.feed.clone(), cursor })
            }
            _ => Ok(()),
        }
    }

    pub fn feed(&self) -> &FeedName {
        &self.feed
    }

    /// The number of the last update that was printed.
    pub fn cursor(&self) -> u64 {
        self.cursor.0
    }

    /// Number of updates that were printed.
    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn progress(&self) -> Progress {
        let (done, of) = (self.cursor.0, Some(self.head.0));
        Progress { what: format!("numbers of {}", self.feed), done, of }
    }

    /// The progress as a sentence, for the end of the command.
    pub fn summary(&self) -> String {
        let Self { feed, cursor, head, count, .. } = self;
        let updates = if *count == 1 { "update" } else { "updates" };
        match cursor < head {
            true => format!("{count} {updates} of {feed}, up to number {cursor} of {head}"),
            false => format!("{count} {updates} of {feed}, up to its number {cursor}"),
        }
    }
}

impl CursorFile {
    /// Takes the lock. The file may not exist yet, but must be one that can be written.
    fn open(path: &Path) -> Result<Self, CursorError> {
        let path = path.to_owned();
        if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_file()) {
            return Err(CursorError::NotAFile { path });
        }
        let lock = match durable::lock_file(&sibling(&path, ".lock")) {
            Ok(lock) => lock,
            Err(error) => return Err(CursorError::Unwritable { path, error }),
        };
        match lock.try_lock() {
            Ok(()) => match durable::remove_leftovers(&path) {
                Ok(()) => Ok(Self { path, _lock: lock }),
                Err(error) => Err(CursorError::Unwritable { path, error }),
            },
            Err(TryLockError::WouldBlock) => Err(CursorError::InUse { path }),
            Err(TryLockError::Error(error)) => Err(CursorError::Unwritable { path, error }),
        }
    }

    /// The cursor in the file; none if the file does not exist yet.
    fn load(&self, feed: &FeedName) -> Result<Option<FeedSyncId>, CursorError> {
        let path = self.path.clone();
        let mut text = Vec::new();
        let read = File::open(&path)
            // One byte more than allowed shows that the file is too large.
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text));
        match read {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(CursorError::Unreadable { path, error }),
            Ok(_) => {}
        }
        match serde_json::from_slice(&text) {
            Ok(Contents { feed: theirs, .. }) if theirs != *feed => {
                Err(CursorError::OtherFeed { path, theirs, ours: feed.clone() })
            }
            Ok(Contents { cursor, .. }) if text.len() as u64 <= FILE_BYTES_MAX => Ok(Some(cursor)),
            Ok(_) | Err(_) => Err(CursorError::Malformed { path }),
        }
    }

    fn save(&self, contents: &Contents) -> Result<(), CursorError> {
        let text = serde_json::to_string(contents).expect("all keys are text") + "\n";
        durable::replace(&self.path, text)
            .map_err(|error| CursorError::Unwritable { path: self.path.clone(), error })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use tempfile::TempDir;

    use super::*;

    fn home() -> (TempDir, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("cursor");
        (home, path)
    }

    fn begin(path: &Path, feed: &str) -> Result<TailCursor, String> {
        let feed = FeedName::parse(feed).unwrap();
        TailCursor::begin(&feed, 0, Some(path)).map_err(|error| error.to_string())
    }

    fn cursor(path: &Path, feed: &str) -> Result<u64, String> {
        begin(path, feed).map(|tail| tail.cursor())
    }

    fn save(tail: &mut TailCursor, number: u64) {
        let cursor = FeedSyncId(number);
        tail.printed(1, cursor, cursor).unwrap();
    }

    #[test]
    fn a_cursor_is_found_again_and_replaced() {
        let (home, path) = home();
        let mut expected = 0;
        for number in [7, 9] {
            let mut tail = begin(&path, "a").unwrap();
            assert_eq!(tail.cursor(), expected);
            for number in [number, number + 1] {
                save(&mut tail, number);
                let text = fs::read_to_string(&path).unwrap();
                assert_eq!(text, format!("{{\"feed\":\"a\",\"cursor\":{number}}}\n"));
            }
            expected = number + 1;
        }
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2, "the file and its lock");
    }

    #[test]
    fn a_second_tail_is_refused_until_the_first_ends() {
        let (_home, path) = home();
        let mut first = begin(&path, "a").unwrap();
        for number in [0, 7, 8] {
            save(&mut first, number);
            let why = cursor(&path, "a").unwrap_err();
            assert!(why.starts_with("another tail keeps its cursor in "), "{why}");
        }
        drop(first);
        assert_eq!(cursor(&path, "a"), Ok(8));
    }

    #[test]
    fn tails_that_start_and_end_at_once_never_share_the_file() {
        const THREADS: u64 = 3;
        const TURNS: u64 = 10;
        let (_home, path) = home();
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| (0..TURNS).for_each(|_| add_one(&path)));
            }
        });
        assert_eq!(cursor(&path, "a"), Ok(THREADS * TURNS));
    }

    /// Adds one to the cursor: two tails at a time would lose one.
    fn add_one(path: &Path) {
        loop {
            match begin(path, "a") {
                Ok(mut tail) => {
                    let next = tail.cursor() + 1;
                    return save(&mut tail, next);
                }
                Err(why) if why.starts_with("another tail") => thread::yield_now(),
                Err(why) => panic!("{why}"),
            }
        }
    }

    #[test]
    fn a_file_that_is_removed_or_replaced_during_a_run_is_written_again() {
        let (home, path) = home();
        let mut tail = begin(&path, "a").unwrap();
        save(&mut tail, 7);
        fs::remove_file(&path).unwrap();
        save(&mut tail, 8);
        fs::write(sibling(&path, ".other"), "another file").unwrap();
        fs::rename(sibling(&path, ".other"), &path).unwrap();
        save(&mut tail, 9);
        drop(tail);
        assert_eq!(cursor(&path, "a"), Ok(9));
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2, "the file and its lock");
    }

    #[test]
    fn the_cursor_of_another_feed_is_refused_with_both_names() {
        let (_home, path) = home();
        save(&mut begin(&path, "a").unwrap(), 7);
        let why = cursor(&path, "b").unwrap_err();
        assert!(why.ends_with("is the cursor of the feed a, not of b: name another file"), "{why}");
    }

    #[test]
    fn a_file_that_is_no_cursor_is_refused_and_stays_as_it_was() {
        let (_home, path) = home();
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
        assert_eq!(cursor(&path, "a"), Ok(3));
    }

    #[test]
    fn a_path_that_is_no_regular_file_is_refused() {
        let (home, path) = home();
        let (socket, link) = (home.path().join("socket"), home.path().join("link"));
        let _socket = UnixListener::bind(&socket).unwrap();
        symlink(&path, &link).unwrap();
        let [null, root, parent] = ["/dev/null", "/", ".."].map(Path::new);
        for wrong in [home.path(), &socket, &link, null, root, parent] {
            let why = cursor(wrong, "a").unwrap_err();
            assert!(
                why.contains("is not a regular file: name one, or a name that is free"),
                "{why}"
            );
        }
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2, "nothing was made");
    }

    #[test]
    fn a_cursor_that_cannot_be_kept_is_reported_before_anything_is_printed() {
        let why = cursor(Path::new("/nowhere/at/all"), "a").unwrap_err();
        assert!(why.starts_with("cannot keep the cursor in /nowhere/at/all: "), "{why}");
    }
}
