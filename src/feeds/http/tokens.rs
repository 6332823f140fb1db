//! Bearer tokens of feeds (RFC 6750). A token names one feed and what its holder may do with it. Tokens are not stored.
//!
//! ```text
//! kf1.rw.broadcasts.1796000000.J0G…   43 characters
//!  │  │      │          │        └─ HMAC-SHA256 of the text before, in base64url
//!  │  │      │          └─ when it expires, in seconds since 1970; 0 is never
//!  │  │      └─ the feed
//!  │  └─ r reads, w writes, rw both
//!  └─ the form of the token
//! ```
//!
//! The key is derived from the crypto keys and the setting `feed_tokens_epoch`; raising that revokes all tokens.

use std::fmt;

use state_machine::Time;
use state_machine::feed::FeedName;

use crate::settings::keys::{Keys, MacKeys, Purpose};

/// The first part of every token.
const FORM: &str = "kf1";

/// Maximum size of a token, in bytes. The longest that is made has 136.
const TOKEN_MAX_BYTES: usize = 160;

pub struct FeedTokens(MacKeys);

/// What a token's holder may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub feed: FeedName,
    pub scopes: Scopes,
    /// When it ends; none is never.
    pub expires: Option<Time>,
}

/// What may be done with a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scopes {
    Read,
    /// Writing, deleting and republishing.
    Write,
    Both,
}

/// Why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FeedTokenError {
    #[error(
        "this token is not one of this server's, or was revoked: `kalends feed token` makes one"
    )]
    Unknown,
    /// It was valid. Only a holder of the token learns that.
    #[error("this token has expired: `kalends feed token` makes another")]
    Expired,
}

impl FeedTokens {
    /// Derives the keys, once for all checks.
    pub fn derive(keys: &Keys, epoch: u32) -> Self {
        Self(MacKeys::derive(keys.crypto_keys(), Purpose::FeedToken, &epoch.to_be_bytes()))
    }

    /// Makes a token. Its end is rounded down to whole seconds.
    pub fn mint(&self, grant: &Grant) -> String {
        let Grant { feed, scopes, expires } = grant;
        let expires = expires.map_or(0, Time::as_secs);
        let signed = format!("{FORM}.{scopes}.{feed}.{expires}");
        format!("{signed}.{}", self.0.sign(&signed))
    }

    /// What a token's holder may do `now`. The signature is checked first: forged text is never parsed.
    pub fn check(&self, token: &str, now: Time) -> Result<Grant, FeedTokenError> {
        let grant = self.open(token).ok_or(FeedTokenError::Unknown)?;
        if grant.is_over(now) { Err(FeedTokenError::Expired) } else { Ok(grant) }
    }

    fn open(&self, token: &str) -> Option<Grant> {
        if token.len() > TOKEN_MAX_BYTES {
            return None;
        }
        let (signed, mac) = token.rsplit_once('.')?;
        if self.0.verify(signed, mac) { Grant::read(signed) } else { None }
    }
}

impl Grant {
    pub fn is_over(&self, now: Time) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    fn read(signed: &str) -> Option<Self> {
        let mut parts = signed.split('.');
        let (form, scopes, feed) = (parts.next()?, parts.next()?, parts.next()?);
        let expires: u64 = parts.next()?.parse().ok()?;
        if form != FORM || parts.next().is_some() {
            return None;
        }
        let expires = (expires > 0).then(|| Time(expires.saturating_mul(1000)));
        Some(Self { feed: FeedName::parse(feed).ok()?, scopes: Scopes::parse(scopes)?, expires })
    }
}

impl Scopes {
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Read, Self::Write, Self::Both].into_iter().find(|scopes| scopes.as_str() == text)
    }

    /// `r`, `w` or `rw`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "r",
            Self::Write => "w",
            Self::Both => "rw",
        }
    }

    /// Whether these include all of `wanted`.
    pub fn allow(self, wanted: Self) -> bool {
        self == Self::Both || self == wanted
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests;
