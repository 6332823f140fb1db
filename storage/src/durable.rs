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
mod tests;
