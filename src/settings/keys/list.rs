//! The lists of keys, as texts and in memory.

use std::fmt;

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Okm, Salt};
use aws_lc_rs::rand;
use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::{Zeroize, Zeroizing};

use super::purpose::Purpose;

/// Maximum number of keys in a list. Each of them is tried on a token or signature that is foreign.
pub const KEYS_MAX: usize = 16;

const KEY_BYTES: usize = 32;

/// Minimum length of an auth key: 96 bits if the text is base64.
const AUTH_CHARS_MIN: usize = 16;
const AUTH_CHARS_MAX: usize = 256;

/// Accepts what either Python's or Rust's Fernet accepts: with and without padding, and with bits
/// set that belong to no byte, as in the well-known example `AAAA…AAB=`.
const KEY_TEXT: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The keys of an installation: at least one crypto key, cluster keys for several nodes, and auth keys for bridges.
#[derive(Debug)]
pub struct Keys {
    crypto_keys: Vec<Key>,
    cluster_keys: Vec<Key>,
    auth_keys: Vec<Key>,
}

/// A list of `keys.toml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyList {
    Crypto,
    Cluster,
    Auth,
}

/// Bytes that are never printed, and are wiped when dropped: 32 of a crypto or cluster key, the text of an auth key.
pub struct Key(Zeroizing<Vec<u8>>);

/// Why a list of texts is not a list of keys. Names the list, and never quotes its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyListError {
    #[error("{} is empty", .0.name())]
    Empty(KeyList),
    #[error("{} has {count} keys, at most {KEYS_MAX} are allowed", .list.name())]
    TooMany { list: KeyList, count: usize },
    /// Places count from 1.
    #[error("key {place} of {} is not {}", .list.name(), .list.form())]
    NotAKey { list: KeyList, place: usize },
}

impl Keys {
    /// Parses crypto keys in the form of [`generate`]. The other lists are empty.
    pub fn from_texts<T: AsRef<str>>(texts: &[T]) -> Result<Self, KeyListError> {
        let crypto_keys = KeyList::Crypto.parse(texts)?;
        Ok(Self { crypto_keys, cluster_keys: Vec::new(), auth_keys: Vec::new() })
    }

    /// Adds cluster keys, of which there must be at least one.
    pub fn with_cluster_texts<T: AsRef<str>>(self, texts: &[T]) -> Result<Self, KeyListError> {
        Ok(Self { cluster_keys: KeyList::Cluster.parse(texts)?, ..self })
    }

    /// Adds auth keys, of which there must be at least one.
    pub fn with_auth_texts<T: AsRef<str>>(self, texts: &[T]) -> Result<Self, KeyListError> {
        Ok(Self { auth_keys: KeyList::Auth.parse(texts)?, ..self })
    }

    /// The crypto keys: the first seals, all open.
    pub fn crypto_keys(&self) -> &[Key] {
        &self.crypto_keys
    }

    /// The keys of requests between nodes, from `kalends keys cluster`: the first signs, all
    /// verify.
    pub fn cluster_keys(&self) -> &[Key] {
        &self.cluster_keys
    }

    /// The keys of registration secrets, from `kalends keys auth`: the first makes, all verify.
    pub fn auth_keys(&self) -> &[Key] {
        &self.auth_keys
    }
}

impl KeyList {
    pub const ALL: [Self; 3] = [Self::Crypto, Self::Cluster, Self::Auth];

    /// Its name in `keys.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crypto => "crypto_keys",
            Self::Cluster => "cluster_keys",
            Self::Auth => "auth_keys",
        }
    }

    fn form(self) -> String {
        match self {
            Self::Crypto | Self::Cluster => format!("{KEY_BYTES} bytes in URL-safe base64"),
            Self::Auth => {
                format!("{AUTH_CHARS_MIN} to {AUTH_CHARS_MAX} ASCII characters without spaces")
            }
        }
    }

    fn parse<T: AsRef<str>>(self, texts: &[T]) -> Result<Vec<Key>, KeyListError> {
        match texts.len() {
            0 => return Err(KeyListError::Empty(self)),
            count if count > KEYS_MAX => return Err(KeyListError::TooMany { list: self, count }),
            _ => {}
        }
        let wrong = |place| KeyListError::NotAKey { list: self, place };
        let keys = texts.iter().map(|text| self.parse_key(text.as_ref()));
        keys.zip(1..).map(|(key, place)| key.ok_or(wrong(place))).collect()
    }

    fn parse_key(self, text: &str) -> Option<Key> {
        let bytes = match self {
            Self::Crypto | Self::Cluster => KEY_TEXT.decode(text).ok()?,
            Self::Auth => text.as_bytes().to_vec(),
        };
        let key = Key(Zeroizing::new(bytes));
        let is_key = match self {
            Self::Crypto | Self::Cluster => key.0.len() == KEY_BYTES,
            Self::Auth => {
                (AUTH_CHARS_MIN..=AUTH_CHARS_MAX).contains(&key.0.len())
                    && key.0.iter().all(u8::is_ascii_graphic)
            }
        };
        is_key.then_some(key)
    }
}

impl Key {
    /// A crypto or cluster key as text: URL-safe base64, as Fernet writes it.
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(KEY_TEXT.encode(self.as_bytes()))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Derives the key of one purpose, by HKDF-SHA256 (RFC 5869) with purpose and context as info.
    pub(super) fn derive<L: KeyType, K: for<'a> From<Okm<'a, L>>>(
        &self,
        purpose: Purpose,
        context: &[u8],
        kind: L,
    ) -> K {
        let extracted = Salt::new(HKDF_SHA256, b"kalends").extract(self.as_bytes());
        let info = [purpose.label().as_bytes(), context];
        let derived = extracted.expand(&info, kind);
        K::from(derived.expect("a key is shorter than the maximum output of HKDF"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(redacted)")
    }
}

/// A new random key as text, for any of the lists.
pub fn generate() -> Zeroizing<String> {
    let mut key = [0; KEY_BYTES];
    rand::fill(&mut key).expect("the operating system gives random bytes");
    let text = Zeroizing::new(KEY_TEXT.encode(key));
    key.zeroize();
    text
}
