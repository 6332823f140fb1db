//! What both ends of `admin.sock` know.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The socket's name in the data directory.
pub const FILE: &str = "admin.sock";

/// The path that commands are posted to.
pub const PATH: &str = "/commands";

/// The header with the client's version.
pub const VERSION_HEADER: &str = "kalends-version";

/// The version of client and server, which must be the same: requests and outputs have no version of their own.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The first line of a request: the name of a command, and its arguments.
pub type Request<T> = (String, T);

/// A short path to the file `name` in `dir`, valid while the returned directory is open. The address of a Unix socket
/// has room for 107 bytes, and the path of a data directory may be longer.
pub fn short_path(dir: &Path, name: &str) -> io::Result<(File, PathBuf)> {
    let dir = File::open(dir)?;
    let path = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
    Ok((dir, path))
}
