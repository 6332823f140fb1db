//! The token in an endpoint URL: a user agent and its channel, encrypted.
//!
//! | path | token | inside |
//! |---|---|---|
//! | `/wpush/{token}` | 64 characters, [`SealKeys`] | uaid, channel id |
//! | `/wpush/r/{token}` | the same, bound to a VAPID key | uaid, channel id |
//! | `/wpush/v1/{token}` | Fernet, of autopush and autopush-rs | uaid, channel id |
//! | `/wpush/v2/{token}` | the same | uaid, channel id, SHA-256 of the VAPID key |
//!
//! New endpoints have one of the first two. The others are accepted for installations that move
//! over from autopush with their keys.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fernet::{Fernet, MultiFernet};
use state_machine::{Chid, Uaid};

use super::vapid::VapidKey;
use crate::keys::{Keys, SealKeys, TAG_BYTES};

const ID_BYTES: usize = 16;
const IDS_BYTES: usize = 2 * ID_BYTES;
const HASH_BYTES: usize = 32;
const SEALED_BYTES: usize = IDS_BYTES + TAG_BYTES;

const SHORT_CHARS: usize = SEALED_BYTES / 3 * 4;

/// A v2 token has 183 characters, or 184 with its padding.
const FERNET_MAX_CHARS: usize = 192;

/// The kind of token: one for each row of the table above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenVersion {
    /// `/wpush/{token}`. Also accepts a Fernet token of v1, as autopush-rs does.
    Short,
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
            fernet: MultiFernet::new(fernet.collect()),
        }
    }

    /// The path of a channel's endpoint, to append to the public URL. The same channel with the
    /// same key always has the same path.
    pub fn encrypt(&self, uaid: Uaid, chid: Chid, key: Option<&VapidKey>) -> String {
        let mut sealed = [0; SEALED_BYTES];
        sealed[..ID_BYTES].copy_from_slice(&uaid.0);
        sealed[ID_BYTES..IDS_BYTES].copy_from_slice(&chid.0);
        let start = match key {
            None => {
                self.short.seal(&[], &mut sealed);
                "/wpush/"
            }
            Some(key) => {
                self.short.seal(&key.sha256(), &mut sealed);
                "/wpush/r/"
            }
        };
        let mut path = String::with_capacity(start.len() + SHORT_CHARS);
        path.push_str(start);
        URL_SAFE_NO_PAD.encode_string(sealed, &mut path);
        path
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
            TokenVersion::Short if token.len() == SHORT_CHARS => {
                self.unseal(&[], &decode_short(token)?).ok_or(TokenError::Unknown)
            }
            TokenVersion::Restricted => {
                let sealed = decode_short(token)?;
                let key = key.ok_or(TokenError::KeyNeeded)?;
                // A wrong key and a wrong token are indistinguishable. On this path the key is likely.
                self.unseal(&key.sha256(), &sealed).ok_or(TokenError::OtherKey)
            }
            TokenVersion::Short | TokenVersion::V1 => {
                let plain = self.fernet_decrypt(token)?;
                let ids = plain.as_slice().try_into().map_err(|_| TokenError::Unknown)?;
                Ok(EndpointToken::from_bytes(ids))
            }
            TokenVersion::V2 => self.decrypt_v2(token, key),
        }
    }

    fn unseal(&self, binding: &[u8], sealed: &[u8; SEALED_BYTES]) -> Option<EndpointToken> {
        let mut ids = [0; IDS_BYTES];
        self.short.open(binding, sealed, &mut ids).ok()?;
        Some(EndpointToken::from_bytes(&ids))
    }

    fn decrypt_v2(&self, token: &str, key: Option<&VapidKey>) -> Result<EndpointToken, TokenError> {
        let plain = self.fernet_decrypt(token)?;
        let (ids, hash) = plain.split_first_chunk::<IDS_BYTES>().ok_or(TokenError::Unknown)?;
        if hash.len() != HASH_BYTES {
            return Err(TokenError::Unknown);
        }
        let named = key.ok_or(TokenError::KeyNeeded)?.sha256();
        aws_lc_rs::constant_time::verify_slices_are_equal(hash, &named)
            .map_err(|_| TokenError::OtherKey)?;
        Ok(EndpointToken::from_bytes(ids))
    }

    fn fernet_decrypt(&self, token: &str) -> Result<Vec<u8>, TokenError> {
        if token.len() > FERNET_MAX_CHARS {
            return Err(TokenError::Unknown);
        }
        self.fernet.decrypt(token).map_err(|_| TokenError::Unknown)
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

fn decode_short(token: &str) -> Result<[u8; SEALED_BYTES], TokenError> {
    let mut sealed = [0; SEALED_BYTES];
    if token.len() != SHORT_CHARS {
        return Err(TokenError::Unknown);
    }
    URL_SAFE_NO_PAD.decode_slice(token, &mut sealed).map_err(|_| TokenError::Unknown)?;
    Ok(sealed)
}

#[cfg(test)]
mod tests;
