//! Encryption of archives by the program `age`, which must be installed: its format, and none of our own.

use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

use super::BackupError;

/// How encrypted files begin, binary and as text.
const BEGINNINGS: [&[u8]; 2] = [b"age-encryption.org/", b"-----BEGIN AGE ENCRY"];

/// Bytes that tell whether a file is encrypted.
const BEGINNING_BYTES: u64 = 20;

/// A process of `age`, which has the terminal for its prompts and its errors.
pub(super) struct Age(Child);

impl Age {
    /// Whether the program is there and accepts the recipients.
    pub(super) fn check(recipients: &[String]) -> Result<(), BackupError> {
        let mut command = Command::new("age");
        match recipients.is_empty() {
            true => command.arg("--version"),
            false => command.args(to(recipients)),
        };
        Self::start(command.stdin(Stdio::null()).stdout(Stdio::null()))?.finish()
    }

    /// Encrypts to these recipients, or with a passphrase if there are none.
    pub(super) fn encrypt(recipients: &[String], output: Stdio) -> Result<Self, BackupError> {
        let mut command = Command::new("age");
        match recipients.is_empty() {
            true => command.arg("--passphrase"),
            false => command.args(to(recipients)),
        };
        Self::start(command.stdin(Stdio::piped()).stdout(output))
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
        let mut age = Self::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let mut input = age.input();
        thread::spawn(move || {
            // If `age` ends before it has read everything, its status has the reason.
            let _ = io::copy(&mut (&beginning[..]).chain(&mut rest), &mut input);
        });
        Ok(age)
    }

    fn start(command: &mut Command) -> Result<Self, BackupError> {
        command.spawn().map(Self).map_err(|error| match error.kind() {
            ErrorKind::NotFound => BackupError::NoAge,
            _ => BackupError::Age(error.to_string()),
        })
    }

    /// What it encrypts or decrypts. Its end is the end of the archive.
    pub(super) fn input(&mut self) -> ChildStdin {
        self.0.stdin.take().expect("its input is a pipe, and taken once")
    }

    pub(super) fn output(&mut self) -> ChildStdout {
        self.0.stdout.take().expect("its output is a pipe, and taken once")
    }

    /// Waits for its end. Its own message on standard error has the reason of a failure.
    pub(super) fn finish(mut self) -> Result<(), BackupError> {
        let status = self.0.wait().map_err(|error| BackupError::Age(error.to_string()))?;
        match status.success() {
            true => Ok(()),
            false => Err(BackupError::Age(status.to_string())),
        }
    }
}

impl Drop for Age {
    fn drop(&mut self) {
        // It has ended, unless the command failed meanwhile.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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
