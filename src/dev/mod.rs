//! What the command line does beside serving: `kalends subscribe` is a user agent, `kalends push` an
//! application server. They are written from the protocol's description, so that each checks the server. They share
//! with it the HTTPS client and the base types of [`state_machine`].
//!
//! - [`agent`]: the messages of a user agent, without IO.
//! - [`identity`]: what a user agent remembers between runs.
//! - [`subscribe`], [`output`]: the user agent on a socket, and what it prints.
//! - [`push`]: sending a message.
//! - [`subscription`]: what an application server knows of a user agent.
//! - [`replay`], [`view`], [`states`]: the state machines, run by scripts and drawn; [`man`]: manual pages.
//! - [`keypair`], [`encrypt`], [`vapid_sign`], [`vapid_key`]: keys, encryption (RFC 8291),
//!   signatures (RFC 8292).

pub mod agent;
pub mod encrypt;
pub mod identity;
pub mod keypair;
pub mod man;
pub mod output;
pub mod push;
pub mod replay;
pub mod states;
pub mod subscribe;
pub mod subscription;
#[cfg(test)]
mod test_server;
pub mod vapid_key;
pub mod vapid_sign;
pub mod view;

use crate::command::Group;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};
use storage::durable;

use crate::system::https_client::ClientError;
use agent::AgentError;
use encrypt::EncryptionError;

pub const GROUP: Group = Group {
    name: "dev",
    about: "Inspect the state machines (for developers of Kalends)",
    help: "",
};

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// A file could not be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    /// A file could not be written.
    #[error("cannot write {}: {error}", path.display())]
    Unwritable { path: PathBuf, error: io::Error },
    /// A file holds something else.
    #[error("{} is not {what}: {why}", path.display())]
    Malformed {
        path: PathBuf,
        /// What it should be.
        what: &'static str,
        why: String,
    },
    /// Something given on the command line cannot be used.
    #[error("{0}")]
    Unusable(String),
    #[error("cannot encrypt the message: {0}")]
    Encryption(#[from] EncryptionError),
    /// A server did not answer, or refused.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A server violates the protocol, or refused the agent.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// Standard input could not be read or standard output not be written.
    #[error("{0}")]
    Io(#[from] io::Error),
}

const BASE64URL: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Writes base64url without padding, as everything in Web Push is written.
pub fn to_base64url(bytes: &[u8]) -> String {
    BASE64URL.encode(bytes)
}

/// Reads base64url with or without padding.
pub fn from_base64url(text: &str) -> Option<Vec<u8>> {
    BASE64URL.decode(text.trim()).ok()
}

/// Writes a key or a secret as JSON.
fn to_json<'a, T, S: Serializer>(key: &'a T, to: S) -> Result<S::Ok, S::Error>
where
    Vec<u8>: From<&'a T>,
{
    to.serialize_str(&to_base64url(&Vec::from(key)))
}

/// Reads what [`to_json`] writes.
fn from_json<'de, T: TryFrom<Vec<u8>>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    let bytes = from_base64url(&String::deserialize(from)?);
    let key = bytes.and_then(|bytes| bytes.try_into().ok());
    key.ok_or_else(|| D::Error::custom("it is not a key or a secret in base64url"))
}

/// Maximum size of a file of keys, of an agent or of a subscription, in bytes: a device would have no end.
const FILE_BYTES_MAX: u64 = 1 << 20;

fn read(path: &Path) -> Result<String, ToolError> {
    let unreadable = |error| ToolError::Unreadable { path: path.to_owned(), error };
    let mut text = String::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    match text.len() as u64 > FILE_BYTES_MAX {
        true => Err(unreadable(io::Error::new(ErrorKind::InvalidData, "it is larger than 1 MiB"))),
        false => Ok(text),
    }
}

/// Writes a file that only its owner may read. It appears whole or not at all.
fn write_private(path: &Path, text: &str) -> Result<(), ToolError> {
    durable::replace(path, text)
        .map_err(|error| ToolError::Unwritable { path: path.to_owned(), error })
}

/// Prints lines until the reader of the output, such as `head`, is gone.
fn print(lines: &[String]) -> io::Result<()> {
    print_to(&mut io::stdout().lock(), lines)
}

fn print_to(out: &mut impl Write, lines: &[String]) -> io::Result<()> {
    match lines.iter().try_for_each(|line| writeln!(out, "{line}")) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn base64url_is_written_without_padding_and_read_with_or_without() {
        assert_eq!(to_base64url(&[255]), "_w");
        assert_eq!(from_base64url("_w"), Some(vec![255]));
        assert_eq!(from_base64url(" _w==\n"), Some(vec![255]));
        assert_eq!(from_base64url("/w"), None);
    }

    #[test]
    fn a_private_file_is_the_owners_and_replaces_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        write_private(&path, "one").unwrap();
        write_private(&path, "two").unwrap();
        assert_eq!(read(&path).unwrap(), "two");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn printing_ends_with_its_reader() {
        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        print_to(&mut writer, &["a line".to_owned()]).unwrap();
        let full = print_to(&mut &mut [0; 3][..], &["a line".to_owned()]);
        assert_eq!(full.unwrap_err().kind(), ErrorKind::WriteZero);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let error = write_private(Path::new("/nowhere/at/all"), "").unwrap_err().to_string();
        assert!(error.starts_with("cannot write /nowhere/at/all: "), "{error}");
    }
}
