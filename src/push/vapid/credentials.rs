//! Parses token and key from the headers of a request.

use actix_web::http::header::{AUTHORIZATION, HeaderMap, HeaderValue};

use super::key::sha256;
use super::{VapidError, VapidKey};
use crate::push::params;

/// The credentials of a request, unverified until [`Vapid::verify`].
///
/// [`Vapid::verify`]: super::Vapid::verify
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credentials<'a> {
    /// A compact JWS: three parts of base64url with dots between.
    pub(super) token: &'a str,
    pub(super) key: VapidKey,
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
        let credentials = if scheme.eq_ignore_ascii_case("vapid") {
            read_parameters(rest)
        } else if scheme.eq_ignore_ascii_case("webpush") || scheme.eq_ignore_ascii_case("bearer") {
            read_legacy(rest, headers)
        } else {
            Err(VapidError::Scheme)
        };
        credentials.map(Some)
    }

    pub fn key(&self) -> &VapidKey {
        &self.key
    }

    /// SHA-256 of key and token. The key has a fixed length, so that no two credentials are the same text.
    pub(super) fn digest(&self) -> [u8; 32] {
        sha256(&[self.key.as_bytes(), self.token.as_bytes()])
    }
}

/// Parses `t` and `k` in any order; other parameters are ignored.
fn read_parameters(text: &str) -> Result<Credentials<'_>, VapidError> {
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
    let token = present(token).ok_or(VapidError::NoToken)?;
    let key = present(key).ok_or(VapidError::NoKey)?;
    Ok(Credentials { token, key: VapidKey::parse(key)? })
}

fn read_legacy<'a>(token: &'a str, headers: &'a HeaderMap) -> Result<Credentials<'a>, VapidError> {
    let token = present(Some(token.trim())).ok_or(VapidError::NoToken)?;
    let key = headers
        .get_all("crypto-key")
        .filter_map(|value: &HeaderValue| value.to_str().ok())
        .flat_map(|text| text.split([',', ';']))
        .filter_map(params::item)
        .find_map(|(name, value)| (name == "p256ecdsa").then_some(value));
    let key = present(key).ok_or(VapidError::NoLegacyKey)?;
    Ok(Credentials { token, key: VapidKey::parse(key)? })
}

fn present(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}
