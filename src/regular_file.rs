//! Opens files that hold secrets. A FIFO in place of a file is an error, and is not waited for.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a file for reading.
pub fn open(path: &Path) -> io::Result<File> {
    // Without the flag, opening a FIFO waits until a process writes to it.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(ErrorKind::InvalidInput, "it is not a file")),
    }
}
