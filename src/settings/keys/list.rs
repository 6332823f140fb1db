//! The lists of keys, as texts and in memory.

use std::fmt;

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Okm, Salt};
use aws_lc_rs::rand;
use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::{Zeroize, Zeroizing};

/// Maximum number of keys in a list. Each of them is tried on a token or signature that is foreign.
pub const KEYS_MAX: usize = 16;

pub(super) const CRYPTO_KEYS: &str = "crypto_keys";
pub(super) const CLUSTER_KEYS: &str = "cluster_keys";
pub(super) const AUTH_KEYS: &str = "auth_keys";

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
    crypto_keys: Vec<CryptoKey>,
    cluster_keys: Vec<CryptoKey>,
    auth_keys: Vec<AuthKey>,
}

/// One key of either list: 32 bytes that are never printed, and are wiped when dropped.
pub struct CryptoKey(Zeroizing<[u8; KEY_BYTES]>);

/// Why a list of texts is not a list of keys. Names the list, and never quotes its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyListError {
    #[error("{0} is empty")]
    Empty(&'static str),
    #[error("{list} has {count} keys, at most {KEYS_MAX} are allowed")]
    TooMany { list: &'static str, count: usize },
    /// Places count from 1.
    #[error("key {place} of {list} is not 32 bytes in URL-safe base64")]
    NotAKey { list: &'static str, place: usize },
    #[error(
        "key {place} of {AUTH_KEYS} is not {} to {} ASCII characters without spaces",
        AUTH_CHARS_MIN,
        AUTH_CHARS_MAX
    )]
    NotAnAuthKey { place: usize },
}

impl Keys {
    /// Parses crypto keys in the form of [`generate`]. The other lists are empty.
    pub fn from_texts<T: AsRef<str>>(texts: &[T]) -> Result<Self, KeyListError> {
        let crypto_keys = parse_list(CRYPTO_KEYS, texts, CryptoKey::parse)?;
        Ok(Self { crypto_keys, cluster_keys: Vec::new(), auth_keys: Vec::new() })
    }

    /// Adds cluster keys, of which there must be at least one.
    pub fn with_cluster_texts<T: AsRef<str>>(self, texts: &[T]) -> Result<Self, KeyListError> {
        Ok(Self { cluster_keys: parse_list(CLUSTER_KEYS, texts, CryptoKey::parse)?, ..self })
    }

    /// Adds auth keys, of which there must be at least one.
    pub fn with_auth_texts<T: AsRef<str>>(self, texts: &[T]) -> Result<Self, KeyListError> {
        Ok(Self { auth_keys: parse_list(AUTH_KEYS, texts, AuthKey::parse)?, ..self })
    }

    /// The crypto keys: the first seals, all open.
    pub fn crypto_keys(&self) -> &[CryptoKey] {
        &self.crypto_keys
    }

    /// The keys of requests between nodes, from `kalends keys cluster`: the first signs, all
    /// verify.
    pub fn cluster_keys(&self) -> &[CryptoKey] {
        &self.cluster_keys
    }

    /// The keys of registration secrets, from `kalends keys auth`: the first makes, all verify.
    pub fn auth_keys(&self) -> &[AuthKey] {
        &self.auth_keys
    }
}

fn parse_list<T: AsRef<str>, K>(
    list: &'static str,
    texts: &[T],
    parse: fn(&str) -> Option<K>,
) -> Result<Vec<K>, KeyListError> {
    match texts.len() {
        0 => return Err(KeyListError::Empty(list)),
        count if count > KEYS_MAX => return Err(KeyListError::TooMany { list, count }),
        _ => {}
    }
    let wrong = |place| match list {
        AUTH_KEYS => KeyListError::NotAnAuthKey { place },
        _ => KeyListError::NotAKey { list, place },
    };
    texts.iter().zip(1..).map(|(text, at)| parse(text.as_ref()).ok_or(wrong(at))).collect()
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

    /// Derives the key of one purpose.
    pub(super) fn derive<L: KeyType, K: for<'a> From<Okm<'a, L>>>(
        &self,
        purpose: &str,
        context: &[u8],
        kind: L,
    ) -> K {
        derive(self.as_bytes(), purpose, context, kind)
    }

    pub(crate) fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl fmt::Debug for CryptoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CryptoKey(redacted)")
    }
}

/// A key of registration secrets: its text, which is never printed, and is wiped when dropped.
pub struct AuthKey(Zeroizing<String>);

impl AuthKey {
    fn parse(text: &str) -> Option<Self> {
        let is_key = (AUTH_CHARS_MIN..=AUTH_CHARS_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_key.then(|| Self(Zeroizing::new(text.to_owned())))
    }

    /// The text, which is the key of the HMAC.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for AuthKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthKey(redacted)")
    }
}

/// Derives the key of one purpose from the secret, by HKDF-SHA256 (RFC 5869) with purpose and context as info.
pub(super) fn derive<L: KeyType, K: for<'a> From<Okm<'a, L>>>(
    secret: &[u8],
    purpose: &str,
    context: &[u8],
    kind: L,
) -> K {
    let extracted = Salt::new(HKDF_SHA256, b"kalends").extract(secret);
    let info = [purpose.as_bytes(), context];
    let derived = extracted.expand(&info, kind);
    K::from(derived.expect("a key is shorter than the maximum output of HKDF"))
}

/// A new random key as text, for any of the lists.
pub fn generate() -> Zeroizing<String> {
    let mut key = [0; KEY_BYTES];
    rand::fill(&mut key).expect("the operating system gives random bytes");
    let text = Zeroizing::new(KEY_TEXT.encode(key));
    key.zeroize();
    text
}
