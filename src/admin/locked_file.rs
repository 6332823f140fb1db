//! A file that one process at a time has, and replaces as a whole.
//!
//! It holds a lock on the file, and on the one that takes its place before it lets go of the one before. Until the file
//! is there, the lock is on the one beside it that will become it. The lock ends with the process, whatever ends that.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What is behind a file's name in that of the file that will take its place.
const NEXT: &str = ".kalends-next";

/// Symbolic links that lead to a file at most, as in Linux itself.
const LINKS_MAX: usize = 40;

/// How often a file is looked at that another process replaces meanwhile.
const LOOKS_MAX: usize = 16;

/// The file, which may not be there yet.
#[derive(Debug)]
pub struct LockedFile {
    /// Where it is, behind all links.
    path: PathBuf,
    /// What has the lock.
    lock: File,
    /// Whether that is the file itself, and not the one that will take its place.
    is_there: bool,
}

/// Why a file cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// It is a directory, a pipe or a device.
    #[error("{} is not a regular file: name one, or a name that is free", _0.display())]
    NotAFile(PathBuf),
    /// Another process has it.
    #[error("another one has it")]
    InUse,
    /// It cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl LockedFile {
    /// The file at this path or behind the links there, for as long as this is not dropped. It must be one that can be
    /// replaced.
    pub fn open(path: &Path) -> Result<Self, LockError> {
        let path = behind_links(path)?.ok_or_else(|| LockError::NotAFile(path.to_owned()))?;
        for _ in 0..LOOKS_MAX {
            let is_there = is_file(&path)?;
            let at = if is_there { path.clone() } else { next_to(&path) };
            is_file(&at)?;
            let lock = match writable().create(!is_there).open(&at) {
                Ok(lock) => lock,
                Err(error) if is_there && error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error.into()),
            };
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => break,
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
            // Another process may have come on between the look and the lock.
            if is_file(&path)? == is_there && is_at(&lock, &at)? {
                let file = Self { path, lock, is_there };
                file.try_out()?;
                return Ok(file);
            }
        }
        Err(LockError::InUse)
    }

    /// What it holds, but not more bytes than this; none where it is not there yet.
    pub fn read(&self, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
        if !self.is_there {
            return Ok(None);
        }
        let mut contents = Vec::new();
        let mut file = &self.lock;
        file.rewind()?;
        file.take(bytes_max).read_to_end(&mut contents)?;
        Ok(Some(contents))
    }

    /// Has it hold something else. That is on disk once this returns, and the file is whole at any time.
    pub fn replace(&mut self, contents: &[u8]) -> io::Result<()> {
        if !self.is_still_ours()? {
            return Err(io::Error::other("it was removed or replaced by something else"));
        }
        let mut next = match self.is_there {
            true => self.next()?,
            false => self.lock.try_clone()?,
        };
        next.set_len(0)?;
        next.write_all(contents)?;
        next.sync_all()?;
        fs::rename(next_to(&self.path), &self.path)?;
        (self.lock, self.is_there) = (next, true);
        File::open(dir_of(&self.path))?.sync_all()
    }

    fn try_out(&self) -> io::Result<()> {
        if self.is_there {
            self.next()?;
            fs::remove_file(next_to(&self.path))?;
        }
        Ok(())
    }

    /// The file that will take the place of this one, with a lock of its own. A killed process may have left one there.
    fn next(&self) -> io::Result<File> {
        let path = next_to(&self.path);
        for _ in 0..LOOKS_MAX {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            match writable().create_new(true).open(&path) {
                // Another process that had not seen this file yet made it, and will let go of it.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => {
                    let next = made?;
                    next.lock()?;
                    return Ok(next);
                }
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Whoever removes the file lets another process begin with it, which is not to be disturbed.
    fn is_still_ours(&self) -> io::Result<bool> {
        match self.is_there {
            true => is_at(&self.lock, &self.path),
            false => Ok(look(&self.path)?.is_none() && is_at(&self.lock, &next_to(&self.path))?),
        }
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        if !self.is_there && self.is_still_ours().unwrap_or(false) {
            // What cannot be removed is in nobody's way.
            let _ = fs::remove_file(next_to(&self.path));
        }
        // Said explicitly: a child process that was just forked has the file open too. What cannot be given up goes with
        // the process.
        let _ = self.lock.unlock();
    }
}

/// Whether a file is there, and nothing else. To open a pipe may be to wait for its other end.
fn is_file(path: &Path) -> Result<bool, LockError> {
    match look(path)? {
        Some(found) if found.is_file() => Ok(true),
        Some(_) => Err(LockError::NotAFile(path.to_owned())),
        None => Ok(false),
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
    use std::thread;

    use tempfile::TempDir;

    use super::*;

    fn home() -> (TempDir, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        (home, path)
    }

    fn open(path: &Path) -> LockedFile {
        LockedFile::open(path).unwrap()
    }

    fn contents(file: &LockedFile) -> Option<String> {
        file.read(1000).unwrap().map(|contents| String::from_utf8(contents).unwrap())
    }

    fn names(dir: &Path) -> Vec<String> {
        let found = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = found.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn one_at_a_time_has_the_file_from_before_it_is_there() {
        let (home, path) = home();
        let is_in_use = || assert!(matches!(LockedFile::open(&path), Err(LockError::InUse)));
        drop(open(&path));
        assert!(names(home.path()).is_empty());
        let mut file = open(&path);
        is_in_use();
        for text in ["7", "8", "9"] {
            file.replace(text.as_bytes()).unwrap();
            is_in_use();
            assert_eq!(names(home.path()), ["file"]);
        }
        drop(file);
        assert_eq!(contents(&open(&path)), Some("9".into()));
        assert_eq!(names(home.path()), ["file"]);
    }

    #[test]
    fn those_that_come_and_go_never_have_it_together() {
        const FILES: usize = 20;
        const THREADS: usize = 3;
        const TURNS: usize = 3;
        let (home, _) = home();
        for number in 0..FILES {
            let path = home.path().join(number.to_string());
            thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| (0..TURNS).for_each(|_| lengthen(&path)));
                }
            });
            assert_eq!(contents(&open(&path)), Some("x".repeat(THREADS * TURNS)));
        }
        assert_eq!(names(home.path()).len(), FILES);
    }

    /// Adds a letter to what it finds, when it is let to: two at a time would come to less.
    fn lengthen(path: &Path) {
        let mut file = loop {
            match LockedFile::open(path) {
                Ok(file) => break file,
                Err(LockError::InUse) => thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        };
        let longer = contents(&file).unwrap_or_default() + "x";
        file.replace(longer.as_bytes()).unwrap();
    }

    #[test]
    fn what_a_killed_process_left_is_replaced() {
        let (home, path) = home();
        for (found, text) in [(None, "7"), (Some("7".to_owned()), "8")] {
            fs::write(next_to(&path), "more than will be written there").unwrap();
            let mut file = open(&path);
            assert_eq!(contents(&file), found);
            fs::write(next_to(&path), "more than will be written there").unwrap();
            file.replace(text.as_bytes()).unwrap();
            assert_eq!(contents(&file), Some(text.into()));
            assert_eq!(names(home.path()), ["file"]);
        }
    }

    #[test]
    fn a_file_that_was_taken_away_is_left_to_the_next_one() {
        for is_there in [false, true] {
            let (_home, path) = home();
            let mut ours = open(&path);
            if is_there {
                ours.replace(b"7").unwrap();
            }
            fs::remove_file(if is_there { path.clone() } else { next_to(&path) }).unwrap();
            let mut theirs = open(&path);
            assert_eq!(contents(&theirs), None);
            is_lost(&mut ours);
            drop(ours);
            theirs.replace(b"1").unwrap();
            assert_eq!(contents(&theirs), Some("1".into()));
        }
    }

    #[test]
    fn a_file_that_somebody_put_there_is_left_to_the_next_one() {
        for is_there in [false, true] {
            let (home, path) = home();
            let mut ours = open(&path);
            if is_there {
                ours.replace(b"7").unwrap();
            }
            fs::write(home.path().join("put"), "1").unwrap();
            fs::rename(home.path().join("put"), &path).unwrap();
            is_lost(&mut ours);
            assert_eq!(contents(&open(&path)), Some("1".into()));
        }
    }

    fn is_lost(file: &mut LockedFile) {
        let why = file.replace(b"8").unwrap_err().to_string();
        assert_eq!(why, "it was removed or replaced by something else");
    }

    #[test]
    fn a_link_stays_and_leads_to_the_file() {
        let (home, path) = home();
        let (at, dir) = (|name: &str| home.path().join(name), home.path().join("dir"));
        fs::create_dir(&dir).unwrap();
        symlink("dir/file", at("near")).unwrap();
        symlink(at("near"), at("far")).unwrap();
        let mut found = None;
        for (link, text) in [("near", "7"), ("far", "8")] {
            let mut file = open(&at(link));
            assert_eq!(contents(&file), found);
            let other = LockedFile::open(&dir.join("file"));
            assert!(matches!(other, Err(LockError::InUse)), "it has one lock by all its names");
            file.replace(text.as_bytes()).unwrap();
            found = Some(text.to_owned());
        }
        assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "8");
        assert_eq!(
            (names(&dir).join(" "), names(home.path()).join(" ")),
            ("file".into(), "dir far near".into())
        );
        symlink("file", &path).unwrap();
        let why = LockedFile::open(&path).unwrap_err().to_string();
        assert_eq!(why, "its links lead nowhere");
    }

    #[test]
    fn what_is_no_file_is_refused_and_left() {
        let (home, path) = home();
        let socket = home.path().join("socket");
        let _sockets = [&socket, &next_to(&path)].map(|path| UnixListener::bind(path).unwrap());
        let [null, root, parent] = ["/dev/null", "/", ".."].map(Path::new);
        for wrong in [home.path(), &socket, &path, null, root, parent] {
            let opened = LockedFile::open(wrong);
            assert!(matches!(opened, Err(LockError::NotAFile(_))), "{wrong:?}: {opened:?}");
        }
        assert_eq!(names(home.path()), ["file.kalends-next", "socket"]);
    }

    #[test]
    fn a_file_that_could_not_be_replaced_is_told_at_once() {
        let (_home, path) = home();
        fs::write(&path, "7").unwrap();
        fs::create_dir(next_to(&path)).unwrap();
        for wrong in [&path, Path::new("/nowhere/at/all")] {
            let opened = LockedFile::open(wrong);
            assert!(matches!(opened, Err(LockError::Io(_))), "{wrong:?}: {opened:?}");
        }
    }
}
