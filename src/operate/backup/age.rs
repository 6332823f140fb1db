//! Encryption of archives by the program `age`, which must be installed: its format, and none of our own.

use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::{self, JoinHandle};

use super::BackupError;
use crate::system::printable::brief;

/// How encrypted files begin, binary and as text.
const BEGINNINGS: [&[u8]; 2] = [b"age-encryption.org/", b"-----BEGIN AGE ENCRY"];

/// Bytes that tell whether a file is encrypted.
const BEGINNING_BYTES: u64 = 20;

/// Bytes of its errors that are read for the reason of a failure.
const ERRORS_MAX_BYTES: u64 = 16 * 1024;

/// A process of `age`.
pub(super) struct Age {
    process: Child,
    /// What it writes to standard error, if that is read.
    errors: Option<JoinHandle<Vec<u8>>>,
}

/// Where `age` writes its prompts and its errors.
#[derive(Debug, Clone, Copy)]
pub(super) enum Errors {
    /// To the terminal of a command.
    Shown,
    /// A server has no terminal: the reason is a part of the error.
    Read,
}

impl Age {
    /// Whether the program is there and accepts the recipients.
    pub(super) fn check(recipients: &[String], errors: Errors) -> Result<(), BackupError> {
        let mut command = Command::new("age");
        match recipients.is_empty() {
            true => command.arg("--version"),
            false => command.args(to(recipients)),
        };
        Self::start(command.stdin(Stdio::null()).stdout(Stdio::null()), errors)?.finish()
    }

    /// Encrypts to these recipients, or with a passphrase if there are none.
    pub(super) fn encrypt(
        recipients: &[String],
        output: Stdio,
        errors: Errors,
    ) -> Result<Self, BackupError> {
        let mut command = Command::new("age");
        match recipients.is_empty() {
            true => command.arg("--passphrase"),
            false => command.args(to(recipients)),
        };
        Self::start(command.stdin(Stdio::piped()).stdout(output), errors)
    }

    /// Decrypts what begins with `beginning`, with an identity, or with a passphrase if there is none.
    pub(super) fn decrypt(
        identity: Option<&Path>,
        beginning: Vec<u8>,
        mut rest: impl Read + Send + 'static,
    ) -> Result<Self, BackupError> {
        let mut command = Command::new("age");
        command.arg("--decrypt");
        if let Some(identity) = identity {
            command.arg("--identity").arg(identity);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut age = Self::start(&mut command, Errors::Shown)?;
        let mut input = age.input();
        thread::spawn(move || {
            // If `age` ends before it has read everything, its status has the reason.
            let _ = io::copy(&mut (&beginning[..]).chain(&mut rest), &mut input);
        });
        Ok(age)
    }

    fn start(command: &mut Command, errors: Errors) -> Result<Self, BackupError> {
        if let Errors::Read = errors {
            command.stderr(Stdio::piped());
        }
        let mut process = command.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound => BackupError::NoAge,
            _ => BackupError::Age(error.to_string()),
        })?;
        let errors = process.stderr.take().map(|errors| thread::spawn(move || read(errors)));
        Ok(Self { process, errors })
    }

    /// What it encrypts or decrypts. Its end is the end of the archive.
    pub(super) fn input(&mut self) -> ChildStdin {
        self.process.stdin.take().expect("its input is a pipe, and taken once")
    }

    pub(super) fn output(&mut self) -> ChildStdout {
        self.process.stdout.take().expect("its output is a pipe, and taken once")
    }

    /// Waits for its end.
    pub(super) fn finish(mut self) -> Result<(), BackupError> {
        let status = self.process.wait().map_err(|error| BackupError::Age(error.to_string()))?;
        if status.success() {
            return Ok(());
        }
        let reason = match self.errors.take() {
            None => "its reason is above".to_owned(),
            Some(errors) => reason(&errors.join().unwrap_or_default()),
        };
        Err(BackupError::Age(format!("{status}: {reason}")))
    }
}

impl Drop for Age {
    fn drop(&mut self) {
        // It has ended, unless the command failed meanwhile.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The rest is read too: `age` would wait or end with a full pipe.
fn read(mut errors: impl Read) -> Vec<u8> {
    let mut begin = Vec::new();
    // What came before a failed read is what is known.
    let _ = (&mut errors).take(ERRORS_MAX_BYTES).read_to_end(&mut begin);
    let _ = io::copy(&mut errors, &mut io::sink());
    begin
}

/// The last line that is an error. Hints, and where to report it, follow.
fn reason(errors: &[u8]) -> String {
    let text = String::from_utf8_lossy(errors);
    let lines = || text.lines().rev().filter(|line| !line.trim().is_empty());
    let error = lines().find_map(|line| line.strip_prefix("age: error: "));
    error.or_else(|| lines().next()).map_or("it gives no reason".to_owned(), brief)
}

fn to(recipients: &[String]) -> impl Iterator<Item = &str> {
    recipients.iter().flat_map(|recipient| ["--recipient", recipient])
}

/// Reads the first bytes. Returns them, and whether they begin an encrypted archive.
pub(super) fn beginning(from: &mut impl Read) -> io::Result<(Vec<u8>, bool)> {
    let mut beginning = Vec::new();
    from.take(BEGINNING_BYTES).read_to_end(&mut beginning)?;
    let is_encrypted = BEGINNINGS.iter().any(|known| beginning.starts_with(known));
    Ok((beginning, is_encrypted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_last_error_and_a_terminal_is_safe_of_it() {
        let hints = "age: hint: x\nage: report unexpected or unhelpful errors at https://x\n";
        let errors = format!("age: warning: y\nage: error: malformed recipient\n{hints}");
        assert_eq!(reason(errors.as_bytes()), "malformed recipient");
        assert_eq!(reason(b"one\n\x1b[31mno space\n\n"), "\\u{1b}[31mno space");
        assert_eq!(reason(b"\n"), "it gives no reason");
        assert!(reason(&b"x".repeat(100_000)).len() < 1000);
    }

    #[test]
    fn what_is_over_the_bound_is_read_and_not_kept() {
        let mut errors = io::repeat(b'x').take(ERRORS_MAX_BYTES * 2);
        assert_eq!(read(&mut errors).len() as u64, ERRORS_MAX_BYTES);
        assert_eq!(errors.limit(), 0);
    }
}
