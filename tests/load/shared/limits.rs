//! The limits of this process, which the servers that it starts inherit.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Each connection is a file of two processes, and the default is often 1,024.
pub(crate) fn raise_open_file_limit() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    Ok(setrlimit(Resource::Nofile, raised)?)
}
