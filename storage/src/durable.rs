//! The one way to write a file: what a call here did is on disk when it returns, and a power loss does not undo it.
//!
//! A file is written beside its name and synced, gets its name, and the directory is synced. So its old or its new
//! contents are there, whole. `clippy.toml` refuses the calls of the standard library and of `tempfile` that this
//! replaces.
//!
//! An error names the path and what failed. After a failed sync of a directory, the change may or may not be on disk.
//! A file or directory that is new is removed again then, and one that was renamed gets its former name, so that a
//! repeated call makes it anew.

#![expect(clippy::disallowed_methods, reason = "this module is what the lint leads to")]

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::OFlags;
use rustix::io::Errno;
use tempfile::NamedTempFile;

/// The mode of a file that only its owner may read.
pub const PRIVATE: u32 = 0o600;

/// A file under a temporary name in the directory of its path. Dropped, it is removed.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    file: NamedTempFile,
}

impl NewFile {
    /// A private file that is to be `path`. Of a symbolic link, the target is replaced.
    pub fn new(path: &Path) -> io::Result<Self> {
        Self::with_mode(path, PRIVATE)
    }

    /// The umask takes bits from `mode`.
    pub fn with_mode(path: &Path, mode: u32) -> io::Result<Self> {
        let path = target(path)?;
        let dir = parent(&path);
        let (prefix, mut builder) = (temporary_prefix(&path), tempfile::Builder::new());
        builder.prefix(&prefix).suffix(TEMPORARY).permissions(Permissions::from_mode(mode));
        let file = builder.tempfile_in(dir).map_err(failed("create a file in", dir))?;
        Ok(Self { path, file })
    }

    /// The temporary name, to read the file before it gets its own.
    pub fn temporary(&self) -> &Path {
        self.file.path()
    }

    /// For a child process that writes it.
    pub fn as_file(&self) -> &File {
        self.file.as_file()
    }

    /// Gives the file its name, in place of a file that has it. A device, a pipe or a directory is not replaced.
    pub fn replace(self) -> io::Result<()> {
        let Self { path, file } = self;
        let found = fs::metadata(&path);
        if found.as_ref().is_ok_and(|found| !found.is_file()) {
            let why = format!("{} is not a regular file", path.display());
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        sync(file.as_file(), SyncedKind::File).map_err(failed("sync", file.path()))?;
        file.persist(&path).map_err(|error| failed("replace", &path)(error.error))?;
        let is_new = found.is_err();
        sync_dir(parent(&path)).inspect_err(|_| _ = is_new.then(|| fs::remove_file(&path)))
    }

    /// Gives the file its name. Fails with [`ErrorKind::AlreadyExists`] if something has it.
    pub fn create(self) -> io::Result<()> {
        let Self { path, file } = self;
        sync(file.as_file(), SyncedKind::File).map_err(failed("sync", file.path()))?;
        file.persist_noclobber(&path).map_err(|error| failed("create", &path)(error.error))?;
        sync_dir(parent(&path)).inspect_err(|_| _ = fs::remove_file(&path))
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.as_file_mut().write(bytes).map_err(failed("write", &self.path))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_file_mut().flush()
    }
}

/// Writes a private file, in place of the one that is there. Of a symbolic link, the target is replaced.
pub fn replace(path: &Path, contents: impl AsRef<[u8]>) -> io::Result<()> {
    written(path, PRIVATE, contents.as_ref())?.replace()
}

/// Writes a private file. Fails with [`ErrorKind::AlreadyExists`], and changes nothing, if something has its name.
pub fn create(path: &Path, contents: impl AsRef<[u8]>) -> io::Result<()> {
    written(path, PRIVATE, contents.as_ref())?.create()
}

/// As [`replace`], for a file with another mode.
pub fn replace_with_mode(path: &Path, mode: u32, contents: impl AsRef<[u8]>) -> io::Result<()> {
    written(path, mode, contents.as_ref())?.replace()
}

fn written(path: &Path, mode: u32, contents: &[u8]) -> io::Result<NewFile> {
    let mut file = NewFile::with_mode(path, mode)?;
    file.write_all(contents)?;
    Ok(file)
}

/// Removes what killed processes left while they wrote this file. Only for a process that holds a lock without which no
/// other one writes it.
pub fn remove_leftovers(path: &Path) -> io::Result<()> {
    let (path, mut left) = (target(path)?, Vec::new());
    let (dir, prefix) = (parent(&path), temporary_prefix(&path));
    for entry in fs::read_dir(dir).map_err(failed("list", dir))? {
        let name = entry.map_err(failed("list", dir))?.file_name();
        let random = name.as_encoded_bytes().strip_prefix(prefix.as_encoded_bytes());
        let random = random.and_then(|rest| rest.strip_suffix(TEMPORARY.as_bytes()));
        // A point is in the name of another file.
        if random.is_some_and(|random| !random.contains(&b'.')) {
            left.push(dir.join(name));
        }
    }
    remove_all(&left)
}

/// The start of the temporary names of a file; a random part and [`TEMPORARY`] follow.
fn temporary_prefix(path: &Path) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(path.file_name().unwrap_or_default());
    prefix.push(".");
    prefix
}

const TEMPORARY: &str = ".kalends-tmp";

/// Makes a directory and its missing parents, all with `mode`.
pub fn create_dir_all(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = parent(path);
    // The same only if the working directory was removed.
    if above != path {
        create_dir_all(above, mode)?;
    }
    match DirBuilder::new().mode(mode).create(path) {
        // Another process was faster, or the path ends in `..`.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => sync_dir(above),
        Err(error) => Err(failed("create the directory", path)(error)),
        Ok(()) => sync_dir(above).inspect_err(|_| _ = fs::remove_dir(path)),
    }
}

/// Renames what is on disk already, such as a file after [`sync_file`]. After an error it has its former name.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let what = format!("rename {} to", from.display());
    fs::rename(from, to).map_err(failed(&what, to))?;
    let synced = sync_dir(parent(to)).and_then(|()| match parent(from) == parent(to) {
        true => Ok(()),
        false => sync_dir(parent(from)),
    });
    synced.inspect_err(|_| _ = fs::rename(to, from))
}

/// Removes a file. A missing one is removed already.
pub fn remove(path: &Path) -> io::Result<()> {
    remove_all(&[path])
}

/// Removes files of one directory, and syncs it once. Missing ones are removed already.
pub fn remove_all(paths: &[impl AsRef<Path>]) -> io::Result<()> {
    for path in paths.iter().map(AsRef::as_ref) {
        match fs::remove_file(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed.map_err(failed("remove", path))?,
        }
    }
    match paths.first().map(|path| sync_dir(parent(path.as_ref()))) {
        Some(Err(error)) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A new and empty private file for SQLite, which fills it and knows how to sync it. Its name is not on disk yet.
pub fn empty_file(path: &Path) -> io::Result<()> {
    let created = OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(path);
    created.map(drop).map_err(failed("create", path))
}

/// Opens a private file to lock it, and creates it if it is missing. It has no contents that a power loss could take.
pub fn lock_file(path: &Path) -> io::Result<File> {
    // Some file systems lock only files that are open for writing.
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(PRIVATE);
    // No link is followed, whose target anybody may have chosen, and no reader of a pipe is waited for.
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    let refused = |what| {
        let why = format!("this is {what}, and a lock is a regular file: remove it");
        Err(io::Error::new(ErrorKind::InvalidInput, why))
    };
    match options.open(path) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => refused("a link"),
        Ok(file) if !file.metadata()?.is_file() => refused("a pipe or a device"),
        opened => opened,
    }
}

/// Opens a file that is there to lock it.
pub fn lock_existing_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// Syncs the contents of a file.
pub fn sync_file(path: &Path) -> io::Result<()> {
    let synced = File::open(path).and_then(|file| sync(&file, SyncedKind::File));
    synced.map_err(failed("sync", path))
}

/// Syncs the names in a directory.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    let synced = File::open(path).and_then(|dir| sync(&dir, SyncedKind::Directory));
    synced.map_err(failed("sync the directory", path))
}

/// From now on, a sync that the file system does not support counts as done, in this process. An operator accepts with
/// it that a power loss takes answered pushes. Other failures of a sync stay errors.
pub fn tolerate_unsynced() {
    UNSYNCED_TOLERATED.store(true, Ordering::Relaxed);
}

pub fn is_unsynced_tolerated() -> bool {
    UNSYNCED_TOLERATED.load(Ordering::Relaxed)
}

static UNSYNCED_TOLERATED: AtomicBool = AtomicBool::new(false);

#[derive(Debug, Clone, Copy)]
enum SyncedKind {
    File,
    Directory,
}

fn sync(file: &File, kind: SyncedKind) -> io::Result<()> {
    judge(file.sync_all(), kind, is_unsynced_tolerated())
}

fn judge(synced: io::Result<()>, kind: SyncedKind, is_tolerated: bool) -> io::Result<()> {
    let why = match kind {
        SyncedKind::File => "its file system cannot sync files",
        SyncedKind::Directory => "its file system cannot sync directories",
    };
    match synced {
        Err(error) if !is_unsupported(&error) => Err(error),
        Err(_) if !is_tolerated => Err(io::Error::new(ErrorKind::Unsupported, why)),
        _ => Ok(()),
    }
}

/// Whether the file system does not know the sync, which is no error of the disk.
pub fn is_unsupported(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOTSUP].contains(&errno))
}

/// The target of a symbolic link, or the path itself.
fn target(path: &Path) -> io::Result<PathBuf> {
    match fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        true => fs::canonicalize(path).map_err(failed("follow the link", path)),
        false => Ok(path.to_owned()),
    }
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

/// An error of the same kind that names what failed.
fn failed(what: &str, path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |error| {
        let text = format!("cannot {what} {}: {error}", path.display());
        io::Error::new(error.kind(), Failed(text))
    }
}

/// Why a file was not written. An error of this module names a path already.
pub fn cannot_write(path: &Path, error: &io::Error) -> String {
    match error.get_ref().is_some_and(|error| error.is::<Failed>()) {
        true => error.to_string(),
        false => format!("cannot write {}: {error}", path.display()),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Failed(String);

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    fn names(dir: &Path) -> Vec<String> {
        let names = dir.read_dir().unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_whole_and_only_its_owner_reads_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        fs::write(&path, "a longer text").unwrap();
        replace(&path, "one").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("one", 0o600));
        replace_with_mode(&path, 0o640, "two").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("two", 0o640));
        assert_eq!(names(home.path()), ["file"]);
    }

    #[test]
    fn a_file_that_is_there_is_not_created_again() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        create(&path, "one").unwrap();
        assert_eq!(create(&path, "two").unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("one", 0o600));
        assert_eq!(names(home.path()), ["file"]);
    }

    #[test]
    fn a_lock_is_a_regular_file_and_no_link_is_followed() {
        let home = tempfile::tempdir().unwrap();
        let [lock, link, pipe, target] =
            ["lock", "link", "pipe", "target"].map(|name| home.path().join(name));
        lock_file(&lock).unwrap().try_lock().unwrap();
        lock_existing_file(&lock).unwrap();
        symlink("target", &link).unwrap();
        let refused = |path| lock_file(path).unwrap_err().to_string();
        assert_eq!(refused(&link), "this is a link, and a lock is a regular file: remove it");
        assert!(!target.exists());
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        let expected = "this is a pipe or a device, and a lock is a regular file: remove it";
        assert_eq!(refused(&pipe), expected);
    }

    #[test]
    fn an_error_names_its_path_once() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("missing").join("file");
        let error = create(&path, "one").unwrap_err();
        assert_eq!(cannot_write(&path, &error), error.to_string());
        let error = io::Error::from(ErrorKind::StorageFull);
        let expected = format!("cannot write {}: {error}", path.display());
        assert_eq!(cannot_write(&path, &error), expected);
    }

    #[test]
    fn the_target_of_a_link_is_replaced_and_the_link_stays() {
        let home = tempfile::tempdir().unwrap();
        let (path, link) = (home.path().join("file"), home.path().join("link"));
        fs::write(&path, "one").unwrap();
        symlink("file", &link).unwrap();
        replace(&link, "two").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        symlink("nowhere", home.path().join("dangling")).unwrap();
        let error = replace(&home.path().join("dangling"), "two").unwrap_err().to_string();
        assert!(error.starts_with("cannot follow the link /"), "{error}");
    }

    #[test]
    fn what_is_no_regular_file_is_not_replaced() {
        let home = tempfile::tempdir().unwrap();
        let (socket, dir) = (home.path().join("socket"), home.path().join("dir"));
        let _listener = UnixListener::bind(&socket).unwrap();
        fs::create_dir(&dir).unwrap();
        for path in [socket, dir] {
            let error = replace(&path, "one").unwrap_err().to_string();
            assert_eq!(error, format!("{} is not a regular file", path.display()));
        }
        assert_eq!(names(home.path()), ["dir", "socket"]);
    }

    #[test]
    fn a_file_that_was_not_finished_leaves_nothing() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        let mut file = NewFile::new(&path).unwrap();
        file.write_all(b"half").unwrap();
        assert_eq!((names(home.path()).len(), mode(file.temporary())), (1, 0o600));
        drop(file);
        assert!(names(home.path()).is_empty());
    }

    #[test]
    fn what_killed_writers_of_a_file_left_is_removed_and_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        let [path, other] = ["file", "file.2"].map(|name| home.path().join(name));
        for left in [&path, &path, &other] {
            let file = NewFile::new(left).unwrap();
            file.file.keep().unwrap();
        }
        fs::write(home.path().join(".file.swp"), "of an editor").unwrap();
        remove_leftovers(&path).unwrap();
        let left = names(home.path());
        assert!(
            left.len() == 2 && left[0].starts_with(".file.2.") && left[1] == ".file.swp",
            "{left:?}"
        );
    }

    #[test]
    fn a_directory_is_made_with_its_parents_and_their_mode() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("one/two/three");
        create_dir_all(&path, 0o700).unwrap();
        for dir in ["one", "one/two", "one/two/three"] {
            assert_eq!(mode(&home.path().join(dir)), 0o700, "{dir}");
        }
        create_dir_all(&path, 0o700).unwrap();
        create_dir_all(&home.path().join("new/../other"), 0o700).unwrap();
        assert_eq!(names(home.path()), ["new", "one", "other"]);
        fs::write(home.path().join("file"), "").unwrap();
        let error = create_dir_all(&home.path().join("file/dir"), 0o700).unwrap_err().to_string();
        assert!(error.starts_with("cannot create the directory /"), "{error}");
    }

    #[test]
    fn a_relative_path_is_in_the_working_directory() {
        assert_eq!(parent(Path::new("file")), Path::new("."));
        assert_eq!(parent(Path::new("dir/")), Path::new("."));
        assert_eq!(parent(Path::new("./dir/file")), Path::new("./dir"));
        assert_eq!(parent(Path::new("/")), Path::new("/"));
        create_dir_all(Path::new("."), 0o700).unwrap();
        sync_dir(parent(Path::new("file"))).unwrap();
    }

    #[test]
    fn a_rename_and_a_removal_change_names_only() {
        let home = tempfile::tempdir().unwrap();
        let [one, two, dir] = ["one", "two", "dir"].map(|name| home.path().join(name));
        fs::write(&one, "one").unwrap();
        fs::create_dir(&dir).unwrap();
        rename(&one, &two).unwrap();
        rename(&two, &dir.join("three")).unwrap();
        remove(&dir.join("three")).unwrap();
        remove(&dir.join("three")).unwrap();
        remove(&home.path().join("nowhere/file")).unwrap();
        assert_eq!((names(home.path()), names(&dir).len()), (vec!["dir".to_owned()], 0));
    }

    #[test]
    fn an_error_names_the_path_and_what_failed() {
        let missing = Path::new("/nowhere/at/all");
        let text = |failed: io::Result<()>| failed.unwrap_err().to_string();
        let end = "No such file or directory (os error 2)";
        let file = text(replace(missing, ""));
        assert!(file.starts_with("cannot create a file in /nowhere/at: "), "{file}");
        let renamed = text(rename(missing, Path::new("/nowhere/else")));
        assert_eq!(renamed, format!("cannot rename /nowhere/at/all to /nowhere/else: {end}"));
        assert_eq!(text(sync_file(missing)), format!("cannot sync /nowhere/at/all: {end}"));
        let dir = text(sync_dir(missing));
        assert_eq!(dir, format!("cannot sync the directory /nowhere/at/all: {end}"));
        assert_eq!(text(remove(Path::new("/"))), "cannot remove /: Is a directory (os error 21)");
    }

    #[test]
    fn a_sync_that_is_not_supported_is_done_only_if_the_operator_accepts_it() {
        let judged = |errno: Errno, is_tolerated| {
            judge(Err(errno.into()), SyncedKind::Directory, is_tolerated)
        };
        for errno in [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOTSUP] {
            assert_eq!(
                judged(errno, false).unwrap_err().to_string(),
                "its file system cannot sync directories"
            );
            judged(errno, true).unwrap();
        }
        for errno in [Errno::IO, Errno::NOSPC, Errno::ROFS, Errno::BADF] {
            assert_eq!(judged(errno, true).unwrap_err().raw_os_error(), Some(errno.raw_os_error()));
        }
    }

    /// The kernel of `/proc` answers EINVAL to every sync.
    #[test]
    fn a_file_system_that_cannot_sync_is_named() {
        let error = sync_file(Path::new("/proc/self/status")).unwrap_err().to_string();
        assert_eq!(error, "cannot sync /proc/self/status: its file system cannot sync files");
        let error = sync_dir(Path::new("/proc/self")).unwrap_err().to_string();
        assert_eq!(
            error,
            "cannot sync the directory /proc/self: its file system cannot sync directories"
        );
    }
}
