//! VAPID (RFC 8292): who an application server is, by a signed token that names its public key.
//!
//! [`Credentials::read`] takes token and key out of a request's headers and proves nothing;
//! [`Vapid::verify`] proves that the owner of the key made the token for this server, now.
//!
//! The JWT is read here and not by the `jsonwebtoken` crate, which was looked at: with its clock
//! and its audience check replaced (time is an argument here, and an audience is an origin, not a
//! text), what is left of it is three calls of base64, JSON and ECDSA, and its errors do not tell a
//! foreign algorithm from a broken header, a broken header from broken claims, or a key that is no
//! key from a signature that does not match. A sender is to be told which.

mod cache;
mod credentials;
mod jwt;
mod key;
mod origin;
#[cfg(test)]
mod tests;

use state_machine::{Span, Time};

use cache::Verified;
pub use credentials::Credentials;
pub use key::VapidKey;
pub use origin::{Origin, OriginError};

/// How far the clocks of a sender and of this server may be apart.
pub const CLOCK_LEEWAY: Span = Span::from_secs(60);

/// How far ahead a token may expire (RFC 8292 §2).
pub const EXPIRY_AHEAD_MAX: Span = Span::from_secs(24 * 60 * 60);

/// How long a token may be, in bytes. Real ones are 200 to 400.
pub const TOKEN_MAX_BYTES: usize = 4096;

/// Which check of a sender's credentials failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VapidError {
    /// Two `Authorization` headers.
    #[error("the Authorization header was sent more than once")]
    HeaderRepeated,
    /// Bytes that no token and no key have.
    #[error("the Authorization header has characters other than visible ASCII")]
    HeaderNotText,
    /// Not `vapid`, `WebPush` or `Bearer`.
    #[error(
        "the authorization scheme must be vapid, as in: Authorization: vapid t=<token>,k=<key>"
    )]
    Scheme,
    /// `t` or `k` twice.
    #[error("the Authorization header has {0} more than once")]
    ParameterRepeated(&'static str),
    /// No token.
    #[error("the Authorization header has no token (t)")]
    NoToken,
    /// No public key with `vapid`.
    #[error("the Authorization header has no public key (k)")]
    NoKey,
    /// No public key with `WebPush` or `Bearer`.
    #[error("the Crypto-Key header has no public key (p256ecdsa), which this scheme needs")]
    NoLegacyKey,
    /// The public key is not one.
    #[error("the VAPID public key is not an uncompressed P-256 point of 65 bytes in base64url")]
    Key,
    /// The token is longer than [`TOKEN_MAX_BYTES`].
    #[error("the VAPID token is longer than {TOKEN_MAX_BYTES} bytes")]
    TokenTooLong,
    /// The token is no compact JWS.
    #[error("the VAPID token is not three parts with dots between")]
    TokenShape,
    /// Its first part cannot be read.
    #[error("the VAPID token's header is not a JSON object in base64url that names an alg")]
    TokenHeader,
    /// Another algorithm.
    #[error("the VAPID token's alg is not ES256")]
    Algorithm,
    /// It demands an extension (RFC 7515 §4.1.11), and none is known here.
    #[error("the VAPID token's header has a crit, which is not understood here")]
    Critical,
    /// Its third part cannot be read.
    #[error("the VAPID token's signature is not 64 bytes in base64url")]
    SignatureShape,
    /// The signature was not made by the key over this token.
    #[error("the VAPID token's signature does not match its public key")]
    Signature,
    /// Its second part cannot be read.
    #[error("the VAPID token's claims are not a JSON object in base64url")]
    Claims,
    /// `aud` is missing, or neither a text nor a list.
    #[error("the VAPID token has no aud; it must be {expected}")]
    NoAudience {
        /// This server's origin.
        expected: Box<str>,
    },
    /// `aud` is for another server.
    #[error("the VAPID token's aud is for another server; it must be {expected}")]
    Audience {
        /// This server's origin.
        expected: Box<str>,
    },
    /// `exp` is missing.
    #[error("the VAPID token has no exp")]
    NoExpiry,
    /// `exp` is a text, say.
    #[error("the VAPID token's exp is not a number of seconds")]
    ExpiryType,
    /// `exp` is past.
    #[error("the VAPID token expired {ago_s} s ago by its exp")]
    Expired {
        /// By how much, in seconds.
        ago_s: u64,
    },
    /// `exp` is more than [`EXPIRY_AHEAD_MAX`] away.
    #[error("the VAPID token's exp is {ahead_s} s ahead, more than 24 hours")]
    ExpiresTooLate {
        /// How far away, in seconds.
        ahead_s: u64,
    },
}

/// Verifies the credentials of application servers for one origin, and remembers those it verified:
/// the same token comes with every push for hours, and its signature is what costs.
pub struct Vapid {
    origin: Origin,
    verified: Verified,
}

impl Vapid {
    /// For senders to `origin`, remembering at most `cache_max_bytes` of tokens.
    pub fn new(origin: Origin, cache_max_bytes: u64) -> Self {
        Self { origin, verified: Verified::new(cache_max_bytes) }
    }

    /// Checks that the owner of the credentials' key signed their token for this origin, and that
    /// it is valid `now`.
    ///
    /// A token that was verified before is only compared and its expiry checked. A verifier has one
    /// origin for its whole life, so nothing that it remembers was meant for another.
    pub fn verify(&self, credentials: &Credentials<'_>, now: Time) -> Result<(), VapidError> {
        if let Some(expiry) = self.verified.expiry_of(credentials) {
            return jwt::check_expiry(expiry, now)
                .inspect_err(|_| self.verified.forget(credentials));
        }
        let expiry = jwt::verify(credentials, &self.origin)?;
        jwt::check_expiry(expiry, now)?;
        self.verified.remember(credentials, expiry);
        Ok(())
    }

    /// How many tokens are remembered.
    pub fn remembered(&self) -> usize {
        self.verified.len()
    }
}
