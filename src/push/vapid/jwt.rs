//! The signed token: a JWT (RFC 7519) in compact form with ES256 (RFC 7518 §3.4).

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ParsedPublicKey};
use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};
use state_machine::{Span, Time};

use super::{
    CLOCK_LEEWAY, Credentials, EXPIRY_AHEAD_MAX, Origin, TOKEN_MAX_BYTES, VapidError, VapidKey,
};

/// Padding, which some signers add, is accepted: the signature covers the text.
const BASE64URL: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// An ES256 signature is two numbers of 32 bytes.
const SIGNATURE_BYTES: usize = 64;

/// Checks a token except for its expiry, and returns the expiry in seconds since the epoch.
pub(super) fn verify(credentials: &Credentials<'_>, origin: &Origin) -> Result<f64, VapidError> {
    let token = credentials.token;
    if token.len() > TOKEN_MAX_BYTES {
        return Err(VapidError::TokenTooLong);
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(VapidError::TokenShape)?;
    let (header, claims) = signed.split_once('.').ok_or(VapidError::TokenShape)?;
    if claims.contains('.') {
        return Err(VapidError::TokenShape);
    }
    check_header(header)?;
    check_signature(signed, signature, &credentials.key)?;
    let claims = read_object(claims).ok_or(VapidError::Claims)?;
    check_audience(claims.get("aud"), origin)?;
    match claims.get("exp") {
        None | Some(Value::Null) => Err(VapidError::NoExpiry),
        Some(value) => value.as_f64().ok_or(VapidError::ExpiryType),
    }
}

/// Checks that the expiry is neither past nor too far in the future.
pub(super) fn check_expiry(expiry: f64, now: Time) -> Result<(), VapidError> {
    let ahead = expiry - seconds(now.since(Time(0)));
    if ahead < -seconds(CLOCK_LEEWAY) {
        return Err(VapidError::Expired { ago_s: -ahead as u64 });
    }
    if ahead > seconds(EXPIRY_AHEAD_MAX) + seconds(CLOCK_LEEWAY) {
        return Err(VapidError::ExpiresTooLate { ahead_s: ahead as u64 });
    }
    Ok(())
}

fn seconds(span: Span) -> f64 {
    span.0 as f64 / 1000.0
}

fn check_header(part: &str) -> Result<(), VapidError> {
    let header = read_object(part).ok_or(VapidError::TokenHeader)?;
    if header.get("alg").ok_or(VapidError::TokenHeader)? != "ES256" {
        return Err(VapidError::Algorithm);
    }
    if header.contains_key("crit") {
        return Err(VapidError::Critical);
    }
    Ok(())
}

fn check_signature(signed: &str, signature: &str, key: &VapidKey) -> Result<(), VapidError> {
    let signature = BASE64URL.decode(signature).map_err(|_| VapidError::SignatureShape)?;
    if signature.len() != SIGNATURE_BYTES {
        return Err(VapidError::SignatureShape);
    }
    let key = ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.as_bytes())
        .map_err(|_| VapidError::Key)?;
    key.verify_sig(signed.as_bytes(), &signature).map_err(|_| VapidError::Signature)
}

fn check_audience(audience: Option<&Value>, origin: &Origin) -> Result<(), VapidError> {
    let is_ours = |value: &Value| value.as_str().is_some_and(|text| origin.is_meant_by(text));
    let ours = match audience {
        Some(one @ Value::String(_)) => is_ours(one),
        Some(Value::Array(several)) => several.iter().any(is_ours),
        _ => return Err(VapidError::NoAudience { expected: origin.as_str().into() }),
    };
    if ours { Ok(()) } else { Err(VapidError::Audience { expected: origin.as_str().into() }) }
}

fn read_object(part: &str) -> Option<Map<String, Value>> {
    serde_json::from_slice(&BASE64URL.decode(part).ok()?).ok()
}
