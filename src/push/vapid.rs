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

use std::sync::Arc;

use actix_web::http::header::{AUTHORIZATION, HeaderMap};
use aws_lc_rs::digest;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ParsedPublicKey};
use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use quick_cache::sync::Cache;
use serde_json::{Map, Value};
use state_machine::wire::VapidKey;
use state_machine::{Span, Time};

use super::origins::{Name, Origins};
use super::params;
use crate::settings::AllowedVapidKeys;

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

/// 65 bytes are 87 characters and one of padding; some senders add more padding.
const KEY_MAX_CHARS: usize = 96;

/// An ES256 signature is two numbers of 32 bytes.
const SIGNATURE_BYTES: usize = 64;

/// Padding, which some signers add, is accepted: the signature covers the text.
const PADDED: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const TOKEN_TEXT: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, PADDED);

// Push services never enforced RFC 8292's base64url without padding: other spellings of a key exist.
const LENIENT: GeneralPurposeConfig = PADDED.with_decode_allow_trailing_bits(true);
const KEY_TEXT: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, LENIENT);
const KEY_TEXT_STANDARD: GeneralPurpose = GeneralPurpose::new(&STANDARD, LENIENT);

/// Parses a key from `k` or `p256ecdsa`: base64url or base64, with or without padding. The first signature shows whether
/// it is on the curve.
pub fn parse_key(text: &str) -> Result<VapidKey, VapidError> {
    let text = text.trim_end_matches('=');
    if text.len() > KEY_MAX_CHARS {
        return Err(VapidError::Key);
    }
    let engine = if text.contains(['+', '/']) { &KEY_TEXT_STANDARD } else { &KEY_TEXT };
    let mut buffer = [0; KEY_MAX_CHARS / 4 * 3];
    let length = engine.decode_slice(text, &mut buffer).map_err(|_| VapidError::Key)?;
    VapidKey::from_bytes(&buffer[..length]).ok_or(VapidError::Key)
}

/// The SHA-256 of a key, which restricted endpoints are bound to.
pub fn key_hash(key: &VapidKey) -> [u8; 32] {
    sha256(&[key.as_bytes()])
}

fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    parts.iter().for_each(|part| context.update(part));
    context.finish().as_ref().try_into().expect("SHA-256 gives 32 bytes")
}

/// Checks the key of a push, or of a channel that pushes are to reach.
pub fn check_allowed(allowed: &AllowedVapidKeys, key: Option<&VapidKey>) -> Result<(), VapidError> {
    match key {
        _ if allowed.is_all() => Ok(()),
        None => Err(VapidError::Unsigned),
        Some(key) if allowed.has(key) => Ok(()),
        Some(_) => Err(VapidError::NotListed),
    }
}

/// The credentials of a request, unverified until [`Vapid::verify`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials<'a> {
    /// A compact JWS: three parts of base64url with dots between.
    token: &'a str,
    key: VapidKey,
}

impl<'a> Credentials<'a> {
    /// Parses `Authorization: vapid t=<token>,k=<key>` (RFC 8292 §3), or the drafts' `WebPush
    /// <token>` and `Bearer <token>` with the key in `Crypto-Key: p256ecdsa=<key>`. None without
    /// `Authorization`.
    pub fn read(headers: &'a HeaderMap) -> Result<Option<Self>, VapidError> {
        let mut values = headers.get_all(AUTHORIZATION);
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(VapidError::HeaderRepeated);
        }
        let text = value.to_str().map_err(|_| VapidError::HeaderNotText)?.trim();
        let (scheme, rest) = text.split_once(' ').unwrap_or((text, ""));
        let is = |known: &str| scheme.eq_ignore_ascii_case(known);
        let (token, key, no_key) = if is("vapid") {
            let (token, key) = parameters(rest)?;
            (token, key, VapidError::NoKey)
        } else if is("webpush") || is("bearer") {
            let values = headers.get_all("crypto-key").filter_map(|value| value.to_str().ok());
            let mut items = values.flat_map(|text| text.split([',', ';'])).filter_map(params::item);
            let key = items.find_map(|(name, value)| (name == "p256ecdsa").then_some(value));
            (Some(rest.trim()), key, VapidError::NoLegacyKey)
        } else {
            return Err(VapidError::Scheme);
        };
        let is_present = |text: &&str| !text.is_empty();
        let token = token.filter(is_present).ok_or(VapidError::NoToken)?;
        let key = parse_key(key.filter(is_present).ok_or(no_key)?)?;
        Ok(Some(Self { token, key }))
    }

    pub fn key(&self) -> &VapidKey {
        &self.key
    }
}

/// The values of `t` and `k` in any order; other parameters are ignored.
fn parameters(text: &str) -> Result<(Option<&str>, Option<&str>), VapidError> {
    let (mut token, mut key) = (None, None);
    for (name, value) in text.split(',').filter_map(params::item) {
        let (slot, name) = match name {
            "t" | "T" => (&mut token, "t"),
            "k" | "K" => (&mut key, "k"),
            _ => continue,
        };
        if slot.replace(value).is_some() {
            return Err(VapidError::ParameterRepeated(name));
        }
    }
    Ok((token, key))
}

/// Memory of a cached token, about.
const CACHED_BYTES: usize = 256;

/// What a verified token says.
#[derive(Debug, Clone, Copy)]
struct Verified {
    /// Of this server's names, that of its audience.
    name: Name,
    /// Its expiry in seconds since the epoch.
    expiry: f64,
}

/// Verifies the credentials of application servers for the origins of this server. Verified tokens are cached: a
/// sender repeats a token for hours, and the signature check is the expensive part.
pub struct Vapid {
    origins: Arc<Origins>,
    /// The keys whose pushes are taken; all, if it is empty.
    allowed: AllowedVapidKeys,
    /// By the SHA-256 of key and token.
    verified: Cache<[u8; 32], Verified>,
}

impl Vapid {
    /// A verifier with a cache of at most `cache_max_bytes`.
    pub fn new(origins: Arc<Origins>, allowed: AllowedVapidKeys, cache_max_bytes: usize) -> Self {
        Self { origins, allowed, verified: Cache::new(cache_max_bytes / CACHED_BYTES) }
    }

    /// Checks that the operator lists the key of a push, or lists none. Nothing is proved yet.
    pub fn check_allowed(&self, key: Option<&VapidKey>) -> Result<(), VapidError> {
        check_allowed(&self.allowed, key)
    }

    /// Checks that the key signed the token for this server, and that the token is valid `now`. Returns the name that the
    /// token is for.
    ///
    /// For a cached token only the expiry is checked. The origins of a verifier never change, so a
    /// cached token is for one of them.
    pub fn verify(&self, credentials: &Credentials<'_>, now: Time) -> Result<Name, VapidError> {
        // The key has a fixed length, so that no two credentials are the same text.
        let digest = sha256(&[credentials.key.as_bytes(), credentials.token.as_bytes()]);
        if let Some(Verified { name, expiry }) = self.verified.get(&digest) {
            check_expiry(expiry, now).inspect_err(|_| _ = self.verified.remove(&digest))?;
            return Ok(name);
        }
        let verified = self.check_token(credentials)?;
        check_expiry(verified.expiry, now)?;
        self.verified.insert(digest, verified);
        Ok(verified.name)
    }

    /// Checks a JWT (RFC 7519) with ES256 (RFC 7518 §3.4) except for its expiry.
    fn check_token(&self, credentials: &Credentials<'_>) -> Result<Verified, VapidError> {
        let token = credentials.token;
        if token.len() > TOKEN_MAX_BYTES {
            return Err(VapidError::TokenTooLong);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(VapidError::TokenShape)?;
        let (header, claims) = signed.split_once('.').ok_or(VapidError::TokenShape)?;
        if claims.contains('.') {
            return Err(VapidError::TokenShape);
        }
        let header = read_object(header).ok_or(VapidError::TokenHeader)?;
        if header.get("alg").ok_or(VapidError::TokenHeader)? != "ES256" {
            return Err(VapidError::Algorithm);
        }
        if header.contains_key("crit") {
            return Err(VapidError::Critical);
        }
        let signature = TOKEN_TEXT.decode(signature).ok();
        let signature = signature.filter(|signature| signature.len() == SIGNATURE_BYTES);
        let signature = signature.ok_or(VapidError::SignatureShape)?;
        let key = ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, credentials.key.as_bytes())
            .map_err(|_| VapidError::Key)?;
        key.verify_sig(signed.as_bytes(), &signature).map_err(|_| VapidError::Signature)?;
        let claims = read_object(claims).ok_or(VapidError::Claims)?;
        let name = self.name_in(claims.get("aud"))?;
        match claims.get("exp") {
            None | Some(Value::Null) => Err(VapidError::NoExpiry),
            Some(value) => {
                let expiry = value.as_f64().ok_or(VapidError::ExpiryType)?;
                Ok(Verified { name, expiry })
            }
        }
    }

    fn name_in(&self, audience: Option<&Value>) -> Result<Name, VapidError> {
        let expected = || self.origins.own().into();
        let audiences = match audience {
            Some(one @ Value::String(_)) => std::slice::from_ref(one),
            Some(Value::Array(several)) => several,
            _ => return Err(VapidError::NoAudience { expected: expected() }),
        };
        let mut texts = audiences.iter().filter_map(Value::as_str);
        let name = texts.find_map(|text| self.origins.meant_by(text));
        name.ok_or_else(|| VapidError::Audience { expected: expected() })
    }
}

fn read_object(part: &str) -> Option<Map<String, Value>> {
    serde_json::from_slice(&TOKEN_TEXT.decode(part).ok()?).ok()
}

/// Checks that the expiry is neither past nor too far in the future.
fn check_expiry(expiry: f64, now: Time) -> Result<(), VapidError> {
    let seconds = |span: Span| span.0 as f64 / 1000.0;
    let ahead = expiry - seconds(now.since(Time(0)));
    if ahead < -seconds(CLOCK_LEEWAY) {
        return Err(VapidError::Expired { ago_s: -ahead as u64 });
    }
    if ahead > seconds(EXPIRY_AHEAD_MAX) + seconds(CLOCK_LEEWAY) {
        return Err(VapidError::ExpiresTooLate { ahead_s: ahead as u64 });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
