//! Where `admin.sock` is.
//!
//! The address of a Unix socket has room for 107 bytes of path. A data directory with a longer one
//! is gone into by its open file descriptor, under `/proc/self/fd`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Its name in the data directory.
pub const FILE: &str = "admin.sock";

/// Bytes of path that the address of a Unix socket has room for, without its closing zero.
const PATH_BYTES_MAX: usize = 107;

/// A short path to a file in a directory. Holds as long as this lives.
#[derive(Debug)]
pub struct Address {
    path: PathBuf,
    _dir: Option<File>,
}

impl Address {
    /// The address of the file `name` in `dir`.
    pub fn new(dir: &Path, name: &str) -> io::Result<Self> {
        let path = dir.join(name);
        if path.as_os_str().len() <= PATH_BYTES_MAX {
            return Ok(Self { path, _dir: None });
        }
        let dir = File::open(dir)?;
        let path = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
        Ok(Self { path, _dir: Some(dir) })
    }

    /// The path to bind or connect to.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_path_of_any_length_can_be_bound_and_connected_to() {
        let home = tempfile::tempdir().unwrap();
        for depth in [1, 60, 200] {
            let dir = home.path().join("x".repeat(depth)).join("y".repeat(depth));
            std::fs::create_dir_all(&dir).unwrap();
            let address = Address::new(&dir, FILE).unwrap();
            assert!(address.path().as_os_str().len() <= PATH_BYTES_MAX);
            let _listener = UnixListener::bind(address.path()).unwrap();
            assert!(dir.join(FILE).exists());
            let other_end = Address::new(&dir, FILE).unwrap();
            assert!(UnixStream::connect(other_end.path()).is_ok());
        }
    }
}
