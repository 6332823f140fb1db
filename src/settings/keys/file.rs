//! Reading and writing `keys.toml`.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use storage::durable;
use storage::owner::OtherOwner;
use zeroize::Zeroizing;

use super::list::{KeyList, KeyListError, Keys, generate};
use crate::system::as_user::as_user;
use crate::system::regular_file;

pub const KEYS_FILE: &str = "keys.toml";

const KEYS_FILE_MAX_BYTES: u64 = 65_536;

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
    #[error("{path} does not exist: restore it from a backup")]
    Missing { path: PathBuf },
    #[error("cannot read {path}: {error}")]
    Unreadable { path: PathBuf, error: io::Error },
    #[error(
        "{path} belongs to uid {}, and this runs as uid {}: run it as that user (as root: `{} kalends ...`), or run \
         `chown {} {path}` if the keys are yours", .other.owner, .other.own, as_user(.other.owner), .other.own
    )]
    OtherOwner { path: PathBuf, other: OtherOwner },
    #[error(
        "{path} has mode {mode:04o}, so other users can read or change the keys: run `chmod 600 {path}`, and \
         replace the keys if another user may have read them (`kalends keys generate --help`)"
    )]
    Exposed { path: PathBuf, mode: u32 },
    #[error("{path} is larger than {KEYS_FILE_MAX_BYTES} bytes: it is not a file of keys")]
    TooLarge { path: PathBuf },
    #[error("{path} is empty: restore it from a backup, every subscription depends on it")]
    Empty { path: PathBuf },
    /// The file is not TOML with the lists of keys and nothing else. Lines count from 1.
    #[error(
        "{path}, line {line}: expected only crypto_keys = [\"...\"] and, for several nodes, \
         cluster_keys = [\"...\"], and for bridges auth_keys = [\"...\"]; mend it or restore it from a backup"
    )]
    Malformed { path: PathBuf, line: usize },
    #[error("{path}, line {line}: {} is there twice: make it one list", .list.name())]
    Twice { path: PathBuf, line: usize, list: KeyList },
    #[error("{path}: {error}; mend it or restore it from a backup")]
    Keys { path: PathBuf, error: KeyListError },
    #[error("{}", durable::cannot_write(.path, .error))]
    Unwritable { path: PathBuf, error: io::Error },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    crypto_keys: Vec<Zeroizing<String>>,
    cluster_keys: Option<Vec<Zeroizing<String>>>,
    auth_keys: Option<Vec<Zeroizing<String>>>,
}

impl Contents {
    fn keys(&self) -> Result<Keys, KeyListError> {
        let mut keys = Keys::from_texts(&self.crypto_keys)?;
        if let Some(texts) = &self.cluster_keys {
            keys = keys.with_cluster_texts(texts)?;
        }
        match &self.auth_keys {
            Some(texts) => keys.with_auth_texts(texts),
            None => Ok(keys),
        }
    }
}

impl Keys {
    /// Reads the keys of the existing directory `dir`; creates `keys.toml` if it is missing.
    pub fn load_or_generate(dir: &Path) -> Result<Self, KeysError> {
        let path = dir.join(KEYS_FILE);
        match load(&path) {
            Err(KeysError::Missing { .. }) => {
                create(&path, &generate())?;
                load(&path)
            }
            loaded => loaded,
        }
    }

    /// Refuses the keys of the data directory `dir` if another user owns or may read them. A missing file is accepted.
    pub fn check_access(dir: &Path) -> Result<(), KeysError> {
        match read(&dir.join(KEYS_FILE)) {
            Err(error @ (KeysError::OtherOwner { .. } | KeysError::Exposed { .. })) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Reads the keys of the data directory `dir`; a missing file is an error.
    pub fn load(dir: &Path) -> Result<Self, KeysError> {
        load(&dir.join(KEYS_FILE))
    }
}

fn load(path: &Path) -> Result<Keys, KeysError> {
    parse(path, &read(path)?)
}

/// Parses `text`; `path` is only named in errors.
pub(super) fn parse(path: &Path, text: &str) -> Result<Keys, KeysError> {
    if text.len() as u64 > KEYS_FILE_MAX_BYTES {
        return Err(KeysError::TooLarge { path: path.into() });
    }
    if text.trim().is_empty() {
        return Err(KeysError::Empty { path: path.into() });
    }
    // The parser's own message quotes the line, and with it a key.
    let contents: Contents = toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        let line = text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1;
        let named = error.span().and_then(|span| text.get(span));
        let list = KeyList::ALL.into_iter().find(|list| named == Some(list.name()));
        match list {
            Some(list) if error.message().starts_with("duplicate key") => {
                KeysError::Twice { path: path.into(), line, list }
            }
            _ => KeysError::Malformed { path: path.into(), line },
        }
    })?;
    contents.keys().map_err(|error| KeysError::Keys { path: path.into(), error })
}

/// The text of the file `path`, which must belong to this user and be readable by no other.
pub(super) fn read(path: &Path) -> Result<Zeroizing<String>, KeysError> {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => KeysError::Missing { path: path.into() },
        _ => KeysError::Unreadable { path: path.into(), error },
    };
    let file = regular_file::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if let Some(other) = OtherOwner::of(&metadata) {
        return Err(KeysError::OtherOwner { path: path.into(), other });
    }
    if let Some(mode) = regular_file::exposed_mode(&metadata) {
        return Err(KeysError::Exposed { path: path.into(), mode });
    }
    if metadata.len() > KEYS_FILE_MAX_BYTES {
        return Err(KeysError::TooLarge { path: path.into() });
    }
    let mut text = Zeroizing::new(String::new());
    file.take(KEYS_FILE_MAX_BYTES).read_to_string(&mut text).map_err(unreadable)?;
    Ok(text)
}

/// Creates the file `path` with one crypto key, unless it exists; never in part.
pub(super) fn create(path: &Path, key: &str) -> Result<(), KeysError> {
    let text = Zeroizing::new(format!("{HEAD}crypto_keys = [\n    \"{key}\",\n]\n"));
    match durable::create(path, &**text) {
        // Another process created it first: its keys are used.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => created.map_err(|error| KeysError::Unwritable { path: path.into(), error }),
    }
}

/// Locks the file `path` against other processes that change it. None if another process holds the
/// lock, or has just replaced the file.
pub(super) fn lock(path: &Path) -> io::Result<Option<File>> {
    locked(durable::lock_existing_file(path)?, path)
}

/// Locks a file that was opened at this path.
pub(super) fn locked(file: File, path: &Path) -> io::Result<Option<File>> {
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let (locked, current) = (file.metadata()?, fs::metadata(path)?);
    let is_current = (locked.dev(), locked.ino()) == (current.dev(), current.ino());
    Ok(is_current.then_some(file))
}
