//! The file of a Unix socket: made at the start of a server, and removed at its end.

use std::fs::{self, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

/// Each user of the machine may connect, as to a port on loopback. The mode of the directory restricts that.
const MODE: u32 = 0o666;

/// The file of a socket that this process made. It is removed when this is dropped, unless another file has its name.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    made: Metadata,
}

/// Listens at a path. A socket that a killed process left there is replaced.
pub fn bind(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            remove_left(path)?;
            UnixListener::bind(path)?
        }
        bound => bound?,
    };
    let file = SocketFile { path: path.to_owned(), made: fs::symlink_metadata(path)? };
    fs::set_permissions(path, Permissions::from_mode(MODE))?;
    Ok((listener, file))
}

/// Removes a socket if no process listens on it.
fn remove_left(path: &Path) -> io::Result<()> {
    let taken = |why: &str| Err(io::Error::new(ErrorKind::AddrInUse, why));
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
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

impl Drop for SocketFile {
    fn drop(&mut self) {
        let id = |file: &Metadata| (file.dev(), file.ino());
        if fs::symlink_metadata(&self.path).is_ok_and(|file| id(&file) == id(&self.made)) {
            // The next server replaces a file that stays.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

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
        let first = UnixListener::bind(&path).unwrap();
        assert_eq!(refused(), "another process listens there");
        drop(first);
        let (_listener, _file) = bind(&path).unwrap();
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn the_file_of_another_process_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("http.sock");
        let (_listener, file) = bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(file);
        assert!(path.exists());
    }
}
