//! The keys of an installation: made once, kept for ever, in `keys.toml` in the data directory.
//!
//! Every endpoint URL that a user agent was ever given is sealed with one of them: who loses the
//! file loses all subscriptions. So a file that cannot be read, is empty or malformed is an error,
//! and new keys are made only where there is no file at all.
//!
//! `crypto_keys` are Fernet keys as autopush-rs has them, the first seals, all open. The keys for
//! everything else are derived from them, see [`SealKeys`] and [`MacKeys`]. Where there are several
//! nodes, these sign what they say to each other with `cluster_keys`, and all have the same file:
//! [`fingerprint`] is how they find out that one has not.

pub mod cluster;
mod file;
pub mod fingerprint;
mod mac;
mod seal;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;

use aws_lc_rs::rand;
use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::{Zeroize, Zeroizing};

pub use file::KeysError;
pub use mac::{MAC_BYTES, MacKeys};
pub use seal::{NotOurs, SealKeys, TAG_BYTES};

/// The file's name in the data directory.
pub const KEYS_FILE: &str = "keys.toml";

/// How many keys a list may have: each of them is tried on what none of them sealed or signed.
pub const KEYS_MAX: usize = 16;

const CRYPTO_KEYS: &str = "crypto_keys";
const CLUSTER_KEYS: &str = "cluster_keys";

/// How long a key is, in bytes.
const KEY_BYTES: usize = 32;

/// Keys are read as Python's and Rust's Fernet between them read them: padded or not, and with
/// bits set that belong to no byte, as the well-known example `AAAA…AAB=` has.
const KEY_TEXT: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The keys of an installation: at least one crypto key, and no cluster key where there is one node.
#[derive(Debug)]
pub struct Keys {
    crypto_keys: Vec<CryptoKey>,
    cluster_keys: Vec<CryptoKey>,
}

/// One key, of either list: 32 bytes that are never printed, and wiped when dropped.
pub struct CryptoKey(Zeroizing<[u8; KEY_BYTES]>);

/// Why a list of texts is not a list of keys. Names the list, and never quotes what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyListError {
    /// There is none in this list.
    #[error("{0} is empty")]
    Empty(&'static str),
    /// There are more than [`KEYS_MAX`].
    #[error("{list} has {count} keys, at most {KEYS_MAX} are allowed")]
    TooMany {
        /// The list.
        list: &'static str,
        /// How many there are.
        count: usize,
    },
    /// One is not 32 bytes in URL-safe base64.
    #[error("key {place} of {list} is not 32 bytes in URL-safe base64")]
    NotAKey {
        /// The list.
        list: &'static str,
        /// Its place there, from 1.
        place: usize,
    },
}

impl Keys {
    /// Reads the keys of the data directory `dir`; where it has no `keys.toml`, makes one first.
    ///
    /// The directory must exist.
    pub fn load_or_generate(dir: &Path) -> Result<Self, KeysError> {
        let path = dir.join(KEYS_FILE);
        match file::load(&path) {
            Err(KeysError::Missing { .. }) => {
                file::create(dir, &path, &generate())?;
                file::load(&path)
            }
            loaded => loaded,
        }
    }

    /// Reads the keys of the data directory `dir`, which must have them.
    pub fn load(dir: &Path) -> Result<Self, KeysError> {
        file::load(&dir.join(KEYS_FILE))
    }

    /// Takes crypto keys from texts as [`generate`] makes them. There are no cluster keys.
    pub fn from_texts<T: AsRef<str>>(texts: &[T]) -> Result<Self, KeyListError> {
        Ok(Self { crypto_keys: parse_list(CRYPTO_KEYS, texts)?, cluster_keys: Vec::new() })
    }

    /// The same keys with these cluster keys, of which there must be one.
    pub fn with_cluster_texts<T: AsRef<str>>(self, texts: &[T]) -> Result<Self, KeyListError> {
        Ok(Self { cluster_keys: parse_list(CLUSTER_KEYS, texts)?, ..self })
    }

    /// The crypto keys: the first seals, all open.
    pub fn crypto_keys(&self) -> &[CryptoKey] {
        &self.crypto_keys
    }

    /// The keys of requests between nodes: the first signs, all verify. There are none where nobody
    /// made any (`kalends keys cluster`).
    pub fn cluster_keys(&self) -> &[CryptoKey] {
        &self.cluster_keys
    }
}

fn parse_list<T: AsRef<str>>(
    list: &'static str,
    texts: &[T],
) -> Result<Vec<CryptoKey>, KeyListError> {
    match texts.len() {
        0 => Err(KeyListError::Empty(list)),
        count if count > KEYS_MAX => Err(KeyListError::TooMany { list, count }),
        _ => {
            let keys = texts.iter().enumerate().map(|(at, text)| {
                let key = CryptoKey::parse(text.as_ref());
                key.ok_or(KeyListError::NotAKey { list, place: at + 1 })
            });
            keys.collect()
        }
    }
}

impl CryptoKey {
    fn parse(text: &str) -> Option<Self> {
        let bytes = Zeroizing::new(KEY_TEXT.decode(text).ok()?);
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        (bytes.len() == KEY_BYTES).then(|| key.copy_from_slice(&bytes))?;
        Some(Self(key))
    }

    /// The key as text: URL-safe base64, as Fernet writes it.
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(KEY_TEXT.encode(*self.0))
    }

    /// The key's bytes.
    pub(crate) fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl fmt::Debug for CryptoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CryptoKey(redacted)")
    }
}

/// A fresh random key as text, as `kalends keys generate` prints it.
pub fn generate() -> Zeroizing<String> {
    let mut key = [0; KEY_BYTES];
    rand::fill(&mut key).expect("the operating system gives random bytes");
    let text = Zeroizing::new(KEY_TEXT.encode(key));
    key.zeroize();
    text
}
