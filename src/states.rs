//! `kalends states`: the states of a connection, printed.

use std::io;

use crate::cli::StatesFormat;

/// Prints the states.
pub fn run(_format: StatesFormat) -> Result<(), io::Error> {
    Err(io::ErrorKind::Unsupported.into())
}
