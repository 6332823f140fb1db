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

use state_machine::wire::VapidKey;
use state_machine::{Chid, Uaid};

use super::fernet::FernetKeys;
use super::sealed;
use crate::push::vapid::key_hash;
use crate::settings::keys::{Keys, Purpose, SealKeys};
use crate::system::clock::unix_now;

const ID_BYTES: usize = 16;
const IDS_BYTES: usize = 2 * ID_BYTES;
const HASH_BYTES: usize = 32;
const SHORT_CHARS: usize = sealed::chars(IDS_BYTES);

/// Of the hash of the VAPID key. No second key with the same 16 bytes can be found.
const KEY_ID_BYTES: usize = 16;
const RESTRICTED_CHARS: usize = sealed::chars(IDS_BYTES + KEY_ID_BYTES);

/// A v2 token has 183 characters, or 184 with its padding.
const FERNET_MAX_CHARS: usize = 192;

/// Bytes that the longest token has when it is decoded.
const BUFFER_BYTES: usize = FERNET_MAX_CHARS / 4 * 3;

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
    fernet: FernetKeys,
}

impl EndpointTokens {
    /// Derives the keys once, so that decryption does not have to.
    pub fn new(keys: &Keys) -> Self {
        Self {
            short: SealKeys::derive(keys, Purpose::Endpoint),
            restricted: SealKeys::derive(keys, Purpose::RestrictedEndpoint),
            fernet: FernetKeys::new(keys),
        }
    }

    /// The path of a channel's endpoint, to append to the public URL. The same channel with the
    /// same key always has the same path.
    pub fn encrypt(&self, uaid: Uaid, chid: Chid, key: Option<&VapidKey>) -> String {
        let seal = sealed::seal::<BUFFER_BYTES>;
        match key.map(key_hash) {
            None => seal(&self.short, "/wpush/", &[&uaid.0, &chid.0]),
            Some(hash) => {
                let parts = [&uaid.0, &chid.0, &hash[..KEY_ID_BYTES]];
                seal(&self.restricted, "/wpush/r/", &parts)
            }
        }
    }

    /// Decrypts the token of a path.
    ///
    /// `key` is the public key in the request, which is not verified here:
    /// [`Vapid`](crate::push::vapid::Vapid) checks its signature.
    pub fn decrypt(
        &self,
        version: TokenVersion,
        token: &str,
        key: Option<&VapidKey>,
    ) -> Result<EndpointToken, TokenError> {
        let mut buffer = [0; BUFFER_BYTES];
        let (opened, hash) = self.open(version, token, key, &mut buffer)?;
        if !hash.is_empty() {
            let named = key_hash(key.ok_or(TokenError::KeyNeeded)?);
            aws_lc_rs::constant_time::verify_slices_are_equal(hash, &named[..hash.len()])
                .map_err(|_| TokenError::OtherKey)?;
        }
        Ok(opened)
    }

    /// Decrypts a token without its VAPID key, for an operator. Also returns the beginning of the SHA-256 of the key
    /// that it is restricted to. A token that is bound to a key cannot be opened without it.
    pub fn inspect(
        &self,
        version: TokenVersion,
        token: &str,
    ) -> Result<(EndpointToken, Option<Vec<u8>>), TokenError> {
        let mut buffer = [0; BUFFER_BYTES];
        let (opened, hash) = self.open(version, token, None, &mut buffer)?;
        Ok((opened, (!hash.is_empty()).then(|| hash.to_vec())))
    }

    /// The contents, and the beginning of the hash of the VAPID key in them, if there is one.
    fn open<'a>(
        &self,
        version: TokenVersion,
        token: &str,
        key: Option<&VapidKey>,
        buffer: &'a mut [u8; BUFFER_BYTES],
    ) -> Result<(EndpointToken, &'a [u8]), TokenError> {
        let (plain, hash_bytes) = match (version, token.len()) {
            (TokenVersion::Short, SHORT_CHARS) => {
                (sealed::open(&self.short, &[], token, buffer), 0)
            }
            // A wrong key and a foreign token are indistinguishable.
            (TokenVersion::Restricted, SHORT_CHARS) => {
                let binding = key_hash(key.ok_or(TokenError::KeyNeeded)?);
                (sealed::open(&self.short, &binding, token, buffer), 0)
            }
            (TokenVersion::Restricted, RESTRICTED_CHARS) => {
                (sealed::open(&self.restricted, &[], token, buffer), KEY_ID_BYTES)
            }
            (TokenVersion::Short | TokenVersion::V1, ..=FERNET_MAX_CHARS) => {
                (self.fernet.decrypt(token, unix_now(), buffer), 0)
            }
            (TokenVersion::V2, ..=FERNET_MAX_CHARS) => {
                (self.fernet.decrypt(token, unix_now(), buffer), HASH_BYTES)
            }
            _ => (None, 0),
        };
        let plain = plain.filter(|plain| plain.len() == IDS_BYTES + hash_bytes);
        let (uaid, rest) = plain.and_then(<[u8]>::split_first_chunk).ok_or(TokenError::Unknown)?;
        let (chid, hash) = rest.split_first_chunk().ok_or(TokenError::Unknown)?;
        Ok((EndpointToken { uaid: Uaid(*uaid), chid: Chid(*chid) }, hash))
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

#[cfg(test)]
mod tests;
