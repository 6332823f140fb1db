//! `keys.toml`: how it is made, and what it must be to be read.

use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use zeroize::Zeroizing;

use super::{KeyListError, Keys};

/// How large `keys.toml` may be, in bytes.
const KEYS_FILE_MAX_BYTES: u64 = 65_536;

/// Only the owner may read or write it.
const OWNER_ONLY: u32 = 0o600;

const HEAD: &str = "\
# The keys of this Kalends installation, made at its first start.
#
# Every endpoint URL handed out is sealed with them: KEEP THIS FILE, and back it up.
# Without it, every user agent has to subscribe again. Whoever can read it can forge endpoints.
#
# The first key seals, all of them open. To change keys, put the output of `kalends keys generate`
# in front and keep the old ones. Where there are several nodes, first put it behind the old ones on
# every node, and then in front on every node: what one seals, all must open. To take over the
# subscriptions of an autopush-rs installation, append its crypto keys.
";

/// Why there are no keys. The texts name the file and what to do, and never quote its contents.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// There is no such file.
    #[error("{path} does not exist: restore it from a backup")]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// It could not be read.
    #[error("cannot read {path}: {error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// It is a directory or a device.
    #[error("{path} is not a file")]
    NotAFile {
        /// What is there.
        path: PathBuf,
    },
    /// Others than its owner may use it.
    #[error(
        "{path} has mode {mode:04o}, so others can get at the keys: run `chmod 600 {path}`, and \
         change the key if somebody may have read it (`kalends keys generate --help`)"
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is larger than any list of keys.
    #[error("{path} is larger than {KEYS_FILE_MAX_BYTES} bytes: it is not a file of keys")]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// It has no contents.
    #[error("{path} is empty: restore it from a backup, every subscription depends on it")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// It is not TOML with a `crypto_keys` list of texts, perhaps one of `cluster_keys`, and nothing
    /// else.
    #[error(
        "{path}, line {line}: expected only crypto_keys = [\"...\"] and, for several nodes, \
         cluster_keys = [\"...\"]; mend it or restore it from a backup"
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where the trouble is, from 1.
        line: usize,
    },
    /// Its list is not one of keys.
    #[error("{path}: {error}; mend it or restore it from a backup")]
    Keys {
        /// The file.
        path: PathBuf,
        /// What is wrong with the list.
        error: KeyListError,
    },
    /// It could not be made.
    #[error("cannot make {path}: {error}")]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    crypto_keys: Vec<Zeroizing<String>>,
    cluster_keys: Option<Vec<Zeroizing<String>>>,
}

/// Reads the keys in the file `path`.
pub(super) fn load(path: &Path) -> Result<Keys, KeysError> {
    parse(path, &read(path)?)
}

/// Takes the keys from `text`, as if `path` held it.
pub(super) fn parse(path: &Path, text: &str) -> Result<Keys, KeysError> {
    if text.len() as u64 > KEYS_FILE_MAX_BYTES {
        return Err(KeysError::TooLarge { path: path.into() });
    }
    if text.trim().is_empty() {
        return Err(KeysError::Empty { path: path.into() });
    }
    // The parser's own message would quote the line, and with it a key.
    let contents: Contents = toml::from_str(text).map_err(|error| KeysError::Malformed {
        path: path.into(),
        line: line_of(text, error.span().map_or(0, |span| span.start)),
    })?;
    keys_of(&contents).map_err(|error| KeysError::Keys { path: path.into(), error })
}

fn keys_of(contents: &Contents) -> Result<Keys, KeyListError> {
    let keys = Keys::from_texts(&contents.crypto_keys)?;
    match &contents.cluster_keys {
        Some(texts) => keys.with_cluster_texts(texts),
        None => Ok(keys),
    }
}

/// The text of the file `path`, if nobody else can get at it.
pub(super) fn read(path: &Path) -> Result<Zeroizing<String>, KeysError> {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => KeysError::Missing { path: path.into() },
        _ => KeysError::Unreadable { path: path.into(), error },
    };
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(KeysError::NotAFile { path: path.into() });
    }
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(KeysError::Exposed { path: path.into(), mode });
    }
    if metadata.len() > KEYS_FILE_MAX_BYTES {
        return Err(KeysError::TooLarge { path: path.into() });
    }
    let mut text = Zeroizing::new(String::new());
    file.take(KEYS_FILE_MAX_BYTES).read_to_string(&mut text).map_err(unreadable)?;
    Ok(text)
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

/// Makes the file `path` in `dir` with `key` in it, durably, unless it exists by now.
///
/// It appears at once and whole under its name: a crash leaves either no file or a good one.
pub(super) fn create(dir: &Path, path: &Path, key: &str) -> Result<(), KeysError> {
    let text = Zeroizing::new(format!("{HEAD}crypto_keys = [\n    \"{key}\",\n]\n"));
    write_new(dir, path, &text).map_err(|error| KeysError::Unwritable { path: path.into(), error })
}

fn write_new(dir: &Path, path: &Path, text: &str) -> io::Result<()> {
    let mut file = tempfile::Builder::new()
        .prefix(".keys-")
        .suffix(".tmp")
        .permissions(Permissions::from_mode(OWNER_ONLY))
        .tempfile_in(dir)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Ok(_) => File::open(dir)?.sync_all(),
        // Another start was quicker: its keys are the keys.
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error.error),
    }
}
