//! The token in an endpoint URL: a user agent and its channel, encrypted.
//!
//! | path | token | inside |
//! |---|---|---|
//! | `/wpush/{token}` | 64 characters, [`SealKeys`] | uaid, channel id |
//! | `/wpush/r/{token}` | 86 characters, [`SealKeys`] | uaid, channel id, half of the SHA-256 of the VAPID key |
//! | `/wpush/r/{token}` | 64 characters, bound to a VAPID key | uaid, channel id |
//! | `/wpush/v1/{token}` | Fernet, of autopush and autopush-rs | uaid, channel id |
//! | `/wpush/v2/{token}` | the same | uaid, channel id, SHA-256 of the VAPID key |
//!
//! New endpoints have one of the first two. The third was sealed by earlier versions of this server. The Fernet tokens
//! are accepted for installations that move over from autopush with their keys.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fernet::{Fernet, MultiFernet};
use state_machine::{Chid, Uaid};

use super::vapid::VapidKey;
use crate::settings::keys::{Keys, SealKeys, TAG_BYTES};

const ID_BYTES: usize = 16;
const IDS_BYTES: usize = 2 * ID_BYTES;
const HASH_BYTES: usize = 32;
const SHORT_BYTES: usize = IDS_BYTES + TAG_BYTES;
const SHORT_CHARS: usize = SHORT_BYTES / 3 * 4;

/// Of the hash of the VAPID key. No second key with the same 16 bytes can be found.
const KEY_ID_BYTES: usize = 16;
const RESTRICTED_BYTES: usize = IDS_BYTES + KEY_ID_BYTES + TAG_BYTES;

/// A v2 token has 183 characters, or 184 with its padding.
const FERNET_MAX_CHARS: usize = 192;

/// The kind of token: one for each row of the table above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenVersion {
    /// `/wpush/{token}`. Also accepts a Fernet token of v1, as autopush-rs does.
    Short,
    /// `/wpush/r/{token}` in both of its lengths.
    Restricted,
    V1,
    V2,
}

/// The contents of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointToken {
    pub uaid: Uaid,
    pub chid: Chid,
}

/// Why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("no such endpoint: the token in the URL is not one of this server's")]
    Unknown,
    #[error(
        "this subscription is restricted to a VAPID key: send an Authorization header with a token \
         signed by it"
    )]
    KeyNeeded,
    #[error("this subscription is restricted to another VAPID key")]
    OtherKey,
}

pub struct EndpointTokens {
    short: SealKeys,
    restricted: SealKeys,
    fernet: MultiFernet,
}

impl EndpointTokens {
    /// Derives the keys once, so that decryption does not have to.
    pub fn new(keys: &Keys) -> Self {
        let fernet = keys.crypto_keys().iter().map(|key| {
            Fernet::new(&key.to_text()).expect("32 bytes in URL-safe base64 are a Fernet key")
        });
        Self {
            short: SealKeys::derive(keys, "endpoint token"),
            restricted: SealKeys::derive(keys, "restricted endpoint token"),
            fernet: MultiFernet::new(fernet.collect()),
        }
    }

    /// The path of a channel's endpoint, to append to the public URL. The same channel with the
    /// same key always has the same path.
    pub fn encrypt(&self, uaid: Uaid, chid: Chid, key: Option<&VapidKey>) -> String {
        let ids = [uaid.0, chid.0].concat();
        match key {
            None => sealed_path("/wpush/", &self.short, &[&ids, &[0; TAG_BYTES]]),
            Some(key) => {
                let key_id = &key.sha256()[..KEY_ID_BYTES];
                sealed_path("/wpush/r/", &self.restricted, &[&ids, key_id, &[0; TAG_BYTES]])
            }
        }
    }

    /// Decrypts the token of a path.
    ///
    /// `key` is the public key in the request, which is not verified here:
    /// [`Vapid`](super::vapid::Vapid) checks its signature.
    pub fn decrypt(
        &self,
        version: TokenVersion,
        token: &str,
        key: Option<&VapidKey>,
    ) -> Result<EndpointToken, TokenError> {
        match version {
            TokenVersion::Short if token.len() == SHORT_CHARS => self.decrypt_short(token, &[]),
            TokenVersion::Restricted if token.len() == SHORT_CHARS => {
                // A wrong key and a foreign token are indistinguishable.
                self.decrypt_short(token, &key.ok_or(TokenError::KeyNeeded)?.sha256())
            }
            TokenVersion::Restricted => self.decrypt_restricted(token, key),
            TokenVersion::Short | TokenVersion::V1 => {
                let plain = self.fernet_decrypt(token)?;
                let ids = plain.as_slice().try_into().map_err(|_| TokenError::Unknown)?;
                Ok(EndpointToken::from_bytes(ids))
            }
            TokenVersion::V2 => self.decrypt_v2(token, key),
        }
    }

    /// Decrypts a token without its VAPID key, for an operator. Also returns the beginning of the SHA-256 of the key that
    /// it is restricted to. A token that is bound to a key cannot be opened without it.
    pub fn inspect(
        &self,
        version: TokenVersion,
        token: &str,
    ) -> Result<(EndpointToken, Option<Vec<u8>>), TokenError> {
        match version {
            TokenVersion::Restricted if token.len() != SHORT_CHARS => {
                let (ids, key_id) = self.open_restricted(token)?;
                Ok((EndpointToken::from_bytes(&ids), Some(key_id.to_vec())))
            }
            TokenVersion::V2 => {
                let plain = self.fernet_decrypt(token)?;
                let (ids, hash) = split_v2(&plain)?;
                Ok((EndpointToken::from_bytes(ids), Some(hash.to_vec())))
            }
            TokenVersion::Short | TokenVersion::Restricted | TokenVersion::V1 => {
                Ok((self.decrypt(version, token, None)?, None))
            }
        }
    }

    fn decrypt_short(&self, token: &str, binding: &[u8]) -> Result<EndpointToken, TokenError> {
        let (sealed, mut ids) = (decode::<SHORT_BYTES>(token)?, [0; IDS_BYTES]);
        self.short.open(binding, &sealed, &mut ids).map_err(|_| TokenError::Unknown)?;
        Ok(EndpointToken::from_bytes(&ids))
    }

    fn decrypt_restricted(
        &self,
        token: &str,
        key: Option<&VapidKey>,
    ) -> Result<EndpointToken, TokenError> {
        let (ids, key_id) = self.open_restricted(token)?;
        check_key(&key_id, key)?;
        Ok(EndpointToken::from_bytes(&ids))
    }

    fn open_restricted(
        &self,
        token: &str,
    ) -> Result<([u8; IDS_BYTES], [u8; KEY_ID_BYTES]), TokenError> {
        let sealed = decode::<RESTRICTED_BYTES>(token)?;
        let mut plain = [0; IDS_BYTES + KEY_ID_BYTES];
        self.restricted.open(&[], &sealed, &mut plain).map_err(|_| TokenError::Unknown)?;
        let (mut ids, mut key_id) = ([0; IDS_BYTES], [0; KEY_ID_BYTES]);
        ids.copy_from_slice(&plain[..IDS_BYTES]);
        key_id.copy_from_slice(&plain[IDS_BYTES..]);
        Ok((ids, key_id))
    }

    fn decrypt_v2(&self, token: &str, key: Option<&VapidKey>) -> Result<EndpointToken, TokenError> {
        let plain = self.fernet_decrypt(token)?;
        let (ids, hash) = split_v2(&plain)?;
        check_key(hash, key)?;
        Ok(EndpointToken::from_bytes(ids))
    }

    fn fernet_decrypt(&self, token: &str) -> Result<Vec<u8>, TokenError> {
        if token.len() > FERNET_MAX_CHARS {
            return Err(TokenError::Unknown);
        }
        self.fernet.decrypt(token).map_err(|_| TokenError::Unknown)
    }
}

impl TokenVersion {
    /// Its name for an operator.
    pub fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Restricted => "restricted",
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }

    /// The kind and the text of the token in an endpoint's path.
    pub fn in_path(path: &str) -> Option<(Self, &str)> {
        let behind = path.strip_prefix("/wpush/")?;
        match behind.split_once('/') {
            None => Some((Self::Short, behind)),
            Some(("r", token)) => Some((Self::Restricted, token)),
            Some(("v1", token)) => Some((Self::V1, token)),
            Some(("v2", token)) => Some((Self::V2, token)),
            Some(_) => None,
        }
    }
}

impl EndpointToken {
    fn from_bytes(ids: &[u8; IDS_BYTES]) -> Self {
        let (mut uaid, mut chid) = ([0; ID_BYTES], [0; ID_BYTES]);
        uaid.copy_from_slice(&ids[..ID_BYTES]);
        chid.copy_from_slice(&ids[ID_BYTES..]);
        Self { uaid: Uaid(uaid), chid: Chid(chid) }
    }
}

/// The path with the token of `parts`, of which the last is the room for the tag.
fn sealed_path(start: &str, keys: &SealKeys, parts: &[&[u8]]) -> String {
    let mut sealed = parts.concat();
    keys.seal(&[], &mut sealed);
    format!("{start}{}", URL_SAFE_NO_PAD.encode(sealed))
}

/// The ids and the hash in a v2 token.
fn split_v2(plain: &[u8]) -> Result<(&[u8; IDS_BYTES], &[u8]), TokenError> {
    let parts = plain.split_first_chunk::<IDS_BYTES>();
    parts.filter(|(_, hash)| hash.len() == HASH_BYTES).ok_or(TokenError::Unknown)
}

/// Decodes a token of exactly `N` bytes.
fn decode<const N: usize>(token: &str) -> Result<[u8; N], TokenError> {
    if token.len() != (4 * N).div_ceil(3) {
        return Err(TokenError::Unknown);
    }
    let mut sealed = [0; N];
    URL_SAFE_NO_PAD.decode_slice(token, &mut sealed).map_err(|_| TokenError::Unknown)?;
    Ok(sealed)
}

/// Whether the request names the key whose hash begins with `hash`.
fn check_key(hash: &[u8], key: Option<&VapidKey>) -> Result<(), TokenError> {
    let named = key.ok_or(TokenError::KeyNeeded)?.sha256();
    aws_lc_rs::constant_time::verify_slices_are_equal(hash, &named[..hash.len()])
        .map_err(|_| TokenError::OtherKey)
}

#[cfg(test)]
mod tests;
