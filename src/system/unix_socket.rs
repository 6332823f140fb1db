//! The file of a Unix socket: made at the start of a server, and removed at its end.

use std::fs::{self, File, Metadata, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};
use storage::data_dir::sibling;
use storage::durable;

/// Each user of the machine may connect, as to a port on loopback. The mode of the directory restricts that.
const MODE: u32 = 0o666;

/// The end of the name of the file beside a socket that the server on it keeps locked.
const LOCK: &str = ".lock";

/// The file of a socket that this process made. It is removed when this is dropped, unless another file has its name.
#[derive(Debug)]
pub struct SocketFile {
    place: SocketPlace,
    /// Only its holder removes and makes the socket: of two starts that find one left, one goes on. The file stays.
    lock: File,
}

/// The path of a socket, and the file that was there.
#[derive(Debug, Clone)]
pub struct SocketPlace {
    path: PathBuf,
    /// Device and inode. An open socket keeps its inode, so no other file has it. None if there was no file.
    file: Option<(u64, u64)>,
}

/// What happened to the file of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    Removed,
    Replaced,
}

/// Listens at a path. A socket that a killed process left there is replaced.
pub fn bind(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let lock = lock(&sibling(path, LOCK))?;
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            remove_left(path)?;
            UnixListener::bind(path)?
        }
        bound => bound?,
    };
    let file = SocketFile { place: SocketPlace::of(path), lock };
    fs::set_permissions(path, Permissions::from_mode(MODE))?;
    Ok((listener, file))
}

fn lock(path: &Path) -> io::Result<File> {
    let of_file =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let lock = durable::lock_file(path).map_err(|error| match fs::symlink_metadata(path) {
        Ok(found) => of_file(not_ours(error, found.uid())),
        Err(_) => of_file(error),
    })?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            let why = format!("another process listens there: it holds {}", path.display());
            Err(io::Error::new(ErrorKind::AddrInUse, why))
        }
        Err(TryLockError::Error(error)) => Err(of_file(error)),
    }
}

/// The error of a file that is there: if it may not be opened, its directory is right, and its owner is not.
fn not_ours(error: io::Error, owner: u32) -> io::Error {
    match error.kind() {
        ErrorKind::PermissionDenied => io::Error::other(format!(
            "it belongs to uid {owner}: remove it, or run the server as that user"
        )),
        _ => error,
    }
}

/// Removes a socket if no process listens on it.
fn remove_left(path: &Path) -> io::Result<()> {
    let taken = |why: &str| Err(io::Error::new(ErrorKind::AddrInUse, why));
    let found = fs::symlink_metadata(path)?.file_type();
    if found.is_dir() {
        return taken("there is a directory: name a file in it");
    }
    if !found.is_socket() {
        return taken("there is a file that is no socket: remove it, or name another path");
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A process that accepts nothing would not answer.
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
        _ => taken("another process listens there"),
    }
}

impl SocketPlace {
    /// The place of a socket that is bound.
    pub fn of(path: &Path) -> Self {
        let file = fs::symlink_metadata(path).ok().map(|file| id(&file));
        Self { path: path.to_owned(), file }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// None if the path leads to the socket, or if that cannot be seen.
    pub fn lost(&self) -> Option<Lost> {
        match fs::symlink_metadata(&self.path) {
            Ok(file) if Some(id(&file)) == self.file => None,
            Ok(_) => Some(Lost::Replaced),
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => Some(Lost::Removed),
                _ => None,
            },
        }
    }
}

fn id(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

impl SocketFile {
    pub fn place(&self) -> &SocketPlace {
        &self.place
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.place.lost().is_none() {
            // The next server replaces a file that stays.
            let _ = fs::remove_file(&self.place.path);
        }
        // A child process that was just forked holds the file open too. A failed unlock ends with the process.
        let _ = self.lock.unlock();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn a_socket_is_for_all_users_and_its_file_ends_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("http.sock");
        let (listener, file) = bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
        let _client = UnixStream::connect(&path).unwrap();
        listener.accept().unwrap();
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn only_a_socket_on_which_no_process_listens_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("http.sock");
        let refused = || bind(&path).unwrap_err().to_string();
        fs::write(&path, "").unwrap();
        assert_eq!(refused(), "there is a file that is no socket: remove it, or name another path");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(refused(), "there is a directory: name a file in it");
        fs::remove_dir(&path).unwrap();
        let first = UnixListener::bind(&path).unwrap();
        assert_eq!(refused(), "another process listens there");
        drop(first);
        let (_listener, _file) = bind(&path).unwrap();
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn a_link_in_place_of_the_lock_is_named_and_its_target_is_not_made() {
        let dir = tempfile::tempdir().unwrap();
        let (path, lock) = (dir.path().join("http.sock"), dir.path().join("http.sock.lock"));
        std::os::unix::fs::symlink("target", &lock).unwrap();
        let why = "this is a link, and a lock is a regular file: remove it";
        let expected = format!("{}: {why}", lock.display());
        assert_eq!(bind(&path).unwrap_err().to_string(), expected);
        assert!(!dir.path().join("target").exists());
    }

    #[test]
    fn a_lock_that_may_not_be_opened_is_told_with_its_owner() {
        let told = |kind| not_ours(io::Error::from(kind), 7).to_string();
        let expected = "it belongs to uid 7: remove it, or run the server as that user";
        assert_eq!(told(ErrorKind::PermissionDenied), expected);
        assert!(!told(ErrorKind::StorageFull).contains("uid"));
    }

    #[test]
    fn the_file_of_another_process_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("http.sock");
        let (_listener, file) = bind(&path).unwrap();
        assert_eq!(file.place().lost(), None);
        fs::remove_file(&path).unwrap();
        assert_eq!(file.place().lost(), Some(Lost::Removed));
        assert_eq!(SocketPlace::of(&path).lost(), Some(Lost::Removed));
        let _other = UnixListener::bind(&path).unwrap();
        assert_eq!(file.place().lost(), Some(Lost::Replaced));
        drop(file);
        assert!(path.exists());
    }

    #[test]
    fn of_starts_at_once_on_a_socket_that_was_left_one_goes_on() {
        const STARTS: usize = 4;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("http.sock");
        for _ in 0..100 {
            let _ = fs::remove_file(&path);
            drop(UnixListener::bind(&path).unwrap());
            let together = Barrier::new(STARTS);
            let start = || {
                together.wait();
                bind(&path)
            };
            let starts: Vec<_> = thread::scope(|scope| {
                let threads: Vec<_> = (0..STARTS).map(|_| scope.spawn(start)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let (bound, refused): (Vec<_>, Vec<_>) = starts.into_iter().partition(Result::is_ok);
            let [Ok((listener, file))] = &bound[..] else { panic!("{bound:?}, {refused:?}") };
            assert_eq!(file.place().lost(), None);
            for error in refused.into_iter().filter_map(Result::err) {
                let why =
                    format!("another process listens there: it holds {}.lock", path.display());
                assert_eq!((error.kind(), error.to_string()), (ErrorKind::AddrInUse, why));
            }
            UnixStream::connect(&path).unwrap();
            listener.accept().unwrap();
        }
    }
}
