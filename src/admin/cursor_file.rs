//! Where `kalends feed tail` remembers how far it has come.
//!
//! One tail has the file at a time. It holds a lock on it, and on the file that takes its place before it lets go of the
//! one before. Until there is a file, the lock is on the one beside it that will become it. The lock ends with the
//! process, whatever ends that.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use state_machine::feed::FeedName;

use super::feed::Name;

/// Bytes of a cursor file at most.
const FILE_BYTES_MAX: u64 = 4096;

/// What is behind a cursor file's name in that of the file that will take its place.
const NEXT: &str = ".kalends-next";

/// Symbolic links that lead to the file at most, as in Linux itself.
const LINKS_MAX: usize = 40;

/// How often a file is looked at that another tail replaces meanwhile.
const LOOKS_MAX: usize = 16;

/// The file of one feed's cursor.
#[derive(Debug)]
pub struct CursorFile {
    /// As it was named.
    name: PathBuf,
    /// Where it is, behind all links.
    path: PathBuf,
    feed: FeedName,
    lock: Lock,
}

/// What keeps other tails out.
#[derive(Debug)]
struct Lock {
    file: File,
    /// Whether that is the file itself, and not the one that will take its place.
    is_there: bool,
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
    /// It is a directory, a pipe or a device.
    #[error("{} is not a regular file: name one, or a name that is free", path.display())]
    NotAFile {
        /// What is there.
        path: PathBuf,
    },
    /// Another tail has it.
    #[error("another tail keeps its cursor in {}: name another file, or end that tail", path.display())]
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
    /// The file, which need not be there yet but must be one that can be written, and the cursor in it. Others cannot
    /// open it until this one is dropped.
    pub fn open(path: &Path, feed: &FeedName) -> Result<(Self, Option<u64>), CursorError> {
        let name = path.to_owned();
        let path = behind_links(path)
            .map_err(|error| CursorError::Unwritable { path: name.clone(), error })?
            .ok_or_else(|| CursorError::NotAFile { path: name.clone() })?;
        let lock = lock(&name, &path)?;
        let file = Self { name, path, feed: feed.clone(), lock };
        let cursor = file.load()?;
        // Better now than when there is something to be kept.
        file.try_out().map_err(|error| file.unwritable(error))?;
        Ok((file, cursor))
    }

    /// Keeps a cursor. It is on disk once this returns, and the file is whole at any time.
    pub fn save(&mut self, cursor: u64) -> Result<(), CursorError> {
        let contents = Contents { feed: Name(self.feed.clone()), cursor };
        let mut text = serde_json::to_string(&contents).expect("it has only text as keys");
        text.push('\n');
        self.replace(&text).map_err(|error| self.unwritable(error))
    }

    fn load(&self) -> Result<Option<u64>, CursorError> {
        if !self.lock.is_there {
            return Ok(None);
        }
        let contents = serde_json::from_slice::<Contents>(&self.read()?)
            .map_err(|_| CursorError::Malformed { path: self.name.clone() })?;
        let Contents { feed: Name(theirs), cursor } = contents;
        if theirs == self.feed {
            return Ok(Some(cursor));
        }
        let (path, ours) = (self.name.clone(), self.feed.clone());
        Err(CursorError::OtherFeed { path, theirs, ours })
    }

    fn read(&self) -> Result<Vec<u8>, CursorError> {
        let mut text = Vec::new();
        // One more than there may be, so that what is behind them is noticed.
        (&self.lock.file)
            .take(FILE_BYTES_MAX + 1)
            .read_to_end(&mut text)
            .map_err(|error| CursorError::Unreadable { path: self.name.clone(), error })?;
        match text.len() as u64 > FILE_BYTES_MAX {
            true => Err(CursorError::Malformed { path: self.name.clone() }),
            false => Ok(text),
        }
    }

    fn try_out(&self) -> io::Result<()> {
        if self.lock.is_there {
            self.next()?;
            fs::remove_file(next_to(&self.path))?;
        }
        Ok(())
    }

    fn replace(&mut self, text: &str) -> io::Result<()> {
        if !self.is_still_ours()? {
            return Err(io::Error::other("it was removed or replaced while this tail had it"));
        }
        let mut next = match self.lock.is_there {
            true => self.next()?,
            false => self.lock.file.try_clone()?,
        };
        next.set_len(0)?;
        next.write_all(text.as_bytes())?;
        next.sync_all()?;
        fs::rename(next_to(&self.path), &self.path)?;
        self.lock = Lock { file: next, is_there: true };
        File::open(dir_of(&self.path))?.sync_all()
    }

    /// The file that will take the place of this one, with a lock of its own. A killed tail may have left one there.
    fn next(&self) -> io::Result<File> {
        let path = next_to(&self.path);
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error);
        }
        let next = writable().create_new(true).open(path)?;
        next.lock()?;
        Ok(next)
    }

    /// Whoever removes the file lets another tail begin with it, which is not to be disturbed.
    fn is_still_ours(&self) -> io::Result<bool> {
        let Lock { file, is_there } = &self.lock;
        match is_there {
            true => is_at(file, &self.path),
            false => Ok(look(&self.path)?.is_none() && is_at(file, &next_to(&self.path))?),
        }
    }

    fn unwritable(&self, error: io::Error) -> CursorError {
        CursorError::Unwritable { path: self.name.clone(), error }
    }
}

impl Drop for CursorFile {
    fn drop(&mut self) {
        if !self.lock.is_there && self.is_still_ours().unwrap_or(false) {
            // What cannot be removed is in nobody's way.
            let _ = fs::remove_file(next_to(&self.path));
        }
        // Said explicitly: a child process that was just forked has the file open too. What cannot be given up goes with
        // the process.
        let _ = self.lock.file.unlock();
    }
}

/// Locks the file, or the one that will become it.
fn lock(name: &Path, path: &Path) -> Result<Lock, CursorError> {
    let unwritable = |error| CursorError::Unwritable { path: name.to_owned(), error };
    for _ in 0..LOOKS_MAX {
        let is_there = is_file(path)?;
        let at = if is_there { path.to_owned() } else { next_to(path) };
        is_file(&at)?;
        let file = match writable().create(!is_there).open(&at) {
            Ok(file) => file,
            Err(error) if is_there && error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(unwritable(error)),
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => break,
            Err(TryLockError::Error(error)) => return Err(unwritable(error)),
        }
        // Another tail may have come on between the look and the lock.
        if is_file(path)? == is_there && is_at(&file, &at).map_err(unwritable)? {
            return Ok(Lock { file, is_there });
        }
    }
    Err(CursorError::InUse { path: name.to_owned() })
}

/// Whether a file is there, and nothing else. To open a pipe may be to wait for its other end.
fn is_file(path: &Path) -> Result<bool, CursorError> {
    match look(path) {
        Ok(Some(found)) if found.is_file() => Ok(true),
        Ok(Some(_)) => Err(CursorError::NotAFile { path: path.to_owned() }),
        Ok(None) => Ok(false),
        Err(error) => Err(CursorError::Unreadable { path: path.to_owned(), error }),
    }
}

/// Whether an open file is the one at this path.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    let is_same = |found: Metadata| (found.dev(), found.ino()) == (held.dev(), held.ino());
    Ok(look(path)?.is_some_and(is_same))
}

fn look(path: &Path) -> io::Result<Option<Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// For writing too: some file systems lock no other files.
fn writable() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

/// Where links lead to, be anything there or not; none where that has no name. To replace a link by a file would be no
/// help to whoever put the link there.
fn behind_links(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Some(name) = path.file_name() else { return Ok(None) };
        let dir = fs::canonicalize(dir_of(&path))?;
        let here = dir.join(name);
        match look(&here)? {
            Some(found) if found.is_symlink() => path = dir.join(fs::read_link(here)?),
            _ => return Ok(Some(here)),
        }
    }
    Err(io::Error::other("its links lead nowhere"))
}

fn next_to(path: &Path) -> PathBuf {
    let mut next = path.as_os_str().to_owned();
    next.push(NEXT);
    next.into()
}

fn dir_of(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn feed(name: &str) -> FeedName {
        FeedName::parse(name).unwrap()
    }

    fn cursor(path: &Path, name: &str) -> Result<Option<u64>, String> {
        let opened = CursorFile::open(path, &feed(name));
        opened.map(|(_, cursor)| cursor).map_err(|error| error.to_string())
    }

    fn names(dir: &Path) -> Vec<String> {
        let found = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = found.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
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
            assert_eq!(names(home.path()), ["cursor"]);
        }
    }

    #[test]
    fn one_tail_at_a_time_has_the_file_from_before_it_is_there() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("cursor");
        let is_refused = || {
            let why = cursor(&path, "a").unwrap_err();
            assert!(why.starts_with("another tail keeps its cursor in "), "{why}");
        };
        drop(CursorFile::open(&path, &feed("a")).unwrap());
        assert!(names(home.path()).is_empty());
        let (mut file, _) = CursorFile::open(&path, &feed("a")).unwrap();
        is_refused();
        for number in [7, 8, 9] {
            file.save(number).unwrap();
            is_refused();
        }
        drop(file);
        assert_eq!(cursor(&path, "a"), Ok(Some(9)));
    }

    #[test]
    fn tails_that_come_and_go_never_have_the_file_together() {
        const TAILS: u64 = 4;
        const TURNS: u64 = 50;
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("cursor");
        // Each turn adds one to what it finds: two at a time would come to less.
        let turn = || match CursorFile::open(&path, &feed("a")) {
            Ok((mut file, kept)) => file.save(kept.unwrap_or(0) + 1).is_ok(),
            Err(CursorError::InUse { .. }) => false,
            Err(other) => panic!("{other}"),
        };
        std::thread::scope(|scope| {
            for _ in 0..TAILS {
                scope.spawn(|| {
                    let mut turns = 0;
                    while turns < TURNS {
                        turns += u64::from(turn());
                    }
                });
            }
        });
        assert_eq!(cursor(&path, "a"), Ok(Some(TAILS * TURNS)));
        assert_eq!(names(home.path()), ["cursor"]);
    }

    #[test]
    fn what_a_killed_tail_left_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let (path, left) = (home.path().join("cursor"), home.path().join("cursor.kalends-next"));
        for number in [7, 8] {
            fs::write(&left, r#"{"feed":"a","cursor":5} and more than will be written there"#)
                .unwrap();
            let (mut file, kept) = CursorFile::open(&path, &feed("a")).unwrap();
            assert_eq!(kept, (number == 8).then_some(7));
            file.save(number).unwrap();
            drop(file);
            assert_eq!(cursor(&path, "a"), Ok(Some(number)));
            assert_eq!(names(home.path()), ["cursor"]);
        }
    }

    #[test]
    fn a_file_that_was_taken_away_is_left_to_the_next_tail() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("cursor");
        for is_kept in [false, true] {
            let (mut ours, _) = CursorFile::open(&path, &feed("a")).unwrap();
            if is_kept {
                ours.save(7).unwrap();
            }
            fs::remove_file(if is_kept { path.clone() } else { next_to(&path) }).unwrap();
            let (mut theirs, kept) = CursorFile::open(&path, &feed("a")).unwrap();
            assert_eq!(kept, None);
            for number in [1, 2] {
                let why = ours.save(8).unwrap_err().to_string();
                assert!(why.ends_with("removed or replaced while this tail had it"), "{why}");
                theirs.save(number).unwrap();
            }
            drop((ours, theirs));
            assert_eq!(cursor(&path, "a"), Ok(Some(2)));
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_link_stays_and_leads_to_the_cursor() {
        let home = tempfile::tempdir().unwrap();
        let (at, dir) = (|name: &str| home.path().join(name), home.path().join("dir"));
        fs::create_dir(&dir).unwrap();
        symlink("dir/cursor", at("near")).unwrap();
        symlink(at("near"), at("far")).unwrap();
        let mut expected = None;
        for (link, number) in [("near", 7), ("far", 8)] {
            let (mut file, kept) = CursorFile::open(&at(link), &feed("a")).unwrap();
            assert_eq!(kept, expected);
            assert!(cursor(&dir.join("cursor"), "a").is_err(), "it has one lock by all its names");
            file.save(number).unwrap();
            expected = Some(number);
        }
        assert_eq!(cursor(&dir.join("cursor"), "a"), Ok(Some(8)));
        assert_eq!(
            (names(&dir), names(home.path())),
            (vec!["cursor".into()], ["dir", "far", "near"].map(String::from).to_vec())
        );
        symlink("round", at("round")).unwrap();
        let why = cursor(&at("round"), "a").unwrap_err();
        assert!(why.ends_with("its links lead nowhere"), "{why}");
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
    fn what_is_no_file_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let (path, next) = (home.path().join("socket"), home.path().join("x.kalends-next"));
        let _sockets = [&path, &next].map(|path| UnixListener::bind(path).unwrap());
        let (of_next, null) = (home.path().join("x"), PathBuf::from("/dev/null"));
        for wrong in [home.path(), &path, &of_next, &null, Path::new("/"), Path::new("..")] {
            let why = cursor(wrong, "a").unwrap_err();
            assert!(why.contains(" is not a regular file: name one"), "{why}");
        }
        assert_eq!(names(home.path()), ["socket", "x.kalends-next"]);
    }

    #[test]
    fn a_file_that_could_not_be_written_is_told_before_anything_is_printed() {
        let why = cursor(Path::new("/nowhere/at/all"), "a").unwrap_err();
        assert!(why.starts_with("cannot keep the cursor in /nowhere/at/all: "), "{why}");
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("cursor");
        fs::write(&path, r#"{"feed":"a","cursor":3}"#).unwrap();
        fs::create_dir(next_to(&path)).unwrap();
        let why = cursor(&path, "a").unwrap_err();
        assert!(why.starts_with("cannot keep the cursor in "), "{why}");
    }
}
