//! How a command fails: the sentence on standard error, and the exit code.

use std::fmt::Display;
use std::io::{Write, stderr};
use std::process::ExitCode;

/// Why a command did not do its work.
#[derive(Debug)]
pub struct Failure {
    why: String,
    /// A wrong argument or setting: the exit code is 2.
    is_usage: bool,
}

impl Failure {
    /// A wrong argument or setting.
    pub fn usage(why: impl Display) -> Self {
        Self { why: why.to_string(), is_usage: true }
    }

    /// Prints the reason. If standard error is closed, the exit code alone reports the failure.
    pub fn report(self) -> ExitCode {
        let _ = writeln!(stderr(), "kalends: {}", self.why);
        if self.is_usage { ExitCode::from(2) } else { ExitCode::FAILURE }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { why: error.to_string(), is_usage: false }
    }
}
