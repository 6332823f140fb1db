//! VAPID (RFC 8292): identifies an application server by a token signed with its key.
//!
//! [`Credentials::read`] parses token and key from a request's headers and proves nothing.
//! [`Vapid::verify`] proves that the owner of the key made the token for this server, and that the
//! token is valid now.
//!
//! The JWT is parsed here and not by the `jsonwebtoken` crate. Time is an argument here, and an
//! audience is an origin and not a text; without its own clock and audience check, three calls of
//! base64, JSON and ECDSA remain of the crate. A sender also needs to know which check failed. The
//! errors of the crate do not distinguish a foreign algorithm from a broken header, a broken header
//! from broken claims, or an invalid key from a signature that does not match.

mod credentials;
mod jwt;
mod key;
mod origin;
#[cfg(test)]
mod tests;

use quick_cache::sync::Cache;
use state_machine::{Span, Time};

use crate::settings::AllowedVapidKeys;

pub use credentials::Credentials;
pub use key::VapidKey;
pub use origin::{Origin, OriginError};

/// Maximum difference between the clocks of a sender and of this server.
pub const CLOCK_LEEWAY: Span = Span::from_secs(60);

/// Maximum time from now to a token's expiry (RFC 8292 §2).
pub const EXPIRY_AHEAD_MAX: Span = Span::from_secs(24 * 60 * 60);

/// Maximum length of a token. Real ones have 200 to 400 bytes.
pub const TOKEN_MAX_BYTES: usize = 4096;

/// The check of a sender's credentials that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VapidError {
    #[error("the Authorization header was sent more than once")]
    HeaderRepeated,
    #[error("the Authorization header has characters other than visible ASCII")]
    HeaderNotText,
    #[error(
        "the authorization scheme must be vapid, as in: Authorization: vapid t=<token>,k=<key>"
    )]
    Scheme,
    #[error("the Authorization header has {0} more than once")]
    ParameterRepeated(&'static str),
    #[error("the Authorization header has no token (t)")]
    NoToken,
    #[error("the Authorization header has no public key (k)")]
    NoKey,
    /// The schemes `WebPush` and `Bearer` carry the key in `Crypto-Key`.
    #[error("the Crypto-Key header has no public key (p256ecdsa), which this scheme needs")]
    NoLegacyKey,
    #[error("this server takes only pushes that are signed with a VAPID key which it lists")]
    Unsigned,
    #[error("this server does not list the VAPID public key of this push")]
    NotListed,
    #[error("the VAPID public key is not an uncompressed P-256 point of 65 bytes in base64url")]
    Key,
    #[error("the VAPID token is longer than {TOKEN_MAX_BYTES} bytes")]
    TokenTooLong,
    #[error("the VAPID token is not three parts with dots between")]
    TokenShape,
    #[error("the VAPID token's header is not a JSON object in base64url that names an alg")]
    TokenHeader,
    #[error("the VAPID token's alg is not ES256")]
    Algorithm,
    /// The header has `crit`, which demands an extension (RFC 7515 §4.1.11).
    #[error("the VAPID token's header has a crit, which is not understood here")]
    Critical,
    #[error("the VAPID token's signature is not 64 bytes in base64url")]
    SignatureShape,
    #[error("the VAPID token's signature does not match its public key")]
    Signature,
    #[error("the VAPID token's claims are not a JSON object in base64url")]
    Claims,
    #[error("the VAPID token has no aud; it must be {expected}")]
    NoAudience { expected: Box<str> },
    #[error("the VAPID token's aud is for another server; it must be {expected}")]
    Audience { expected: Box<str> },
    #[error("the VAPID token has no exp")]
    NoExpiry,
    #[error("the VAPID token's exp is not a number of seconds")]
    ExpiryType,
    #[error("the VAPID token expired {ago_s} s ago by its exp")]
    Expired { ago_s: u64 },
    #[error("the VAPID token's exp is {ahead_s} s ahead, more than 24 hours")]
    ExpiresTooLate { ahead_s: u64 },
}

/// Memory of a cached token, about.
const CACHED_BYTES: usize = 256;

/// Verifies the credentials of application servers for one origin. Verified tokens are cached: a
/// sender repeats a token for hours, and the signature check is the expensive part.
pub struct Vapid {
    origin: Origin,
    /// The keys whose pushes are taken; all, if it is empty.
    allowed: AllowedVapidKeys,
    /// Expiry of verified tokens in seconds, by the SHA-256 of key and token.
    verified: Cache<[u8; 32], f64>,
}

impl Vapid {
    /// A verifier for `origin` with a cache of at most `cache_max_bytes`, which takes all keys.
    pub fn new(origin: Origin, cache_max_bytes: usize) -> Self {
        let verified = Cache::new(cache_max_bytes / CACHED_BYTES);
        Self { origin, allowed: AllowedVapidKeys::default(), verified }
    }

    /// The same verifier, which takes only these keys, unless there are none.
    pub fn allowing(self, allowed: AllowedVapidKeys) -> Self {
        Self { allowed, ..self }
    }

    /// Checks that the operator lists the key of a push, or lists none. Nothing is proved yet.
    pub fn check_allowed(&self, key: Option<&VapidKey>) -> Result<(), VapidError> {
        match key {
            _ if self.allowed.is_all() => Ok(()),
            None => Err(VapidError::Unsigned),
            Some(key) if self.allowed.has(key.as_bytes()) => Ok(()),
            Some(_) => Err(VapidError::NotListed),
        }
    }

    /// Checks that the key signed the token for this origin, and that the token is valid `now`.
    ///
    /// For a cached token only the expiry is checked. The origin of a verifier never changes, so a
    /// cached token is for the right one.
    pub fn verify(&self, credentials: &Credentials<'_>, now: Time) -> Result<(), VapidError> {
        let digest = credentials.digest();
        if let Some(expiry) = self.verified.get(&digest) {
            return jwt::check_expiry(expiry, now)
                .inspect_err(|_| _ = self.verified.remove(&digest));
        }
        let expiry = jwt::verify(credentials, &self.origin)?;
        jwt::check_expiry(expiry, now)?;
        self.verified.insert(digest, expiry);
        Ok(())
    }
}
