//! The public key of an application server.

use std::fmt;

use aws_lc_rs::digest;
use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::VapidError;

const KEY_BYTES: usize = 65;

/// First byte of an uncompressed point (SEC 1 §2.3.3).
const UNCOMPRESSED: u8 = 4;

/// 65 bytes are 87 characters and one of padding; some senders add more padding.
const TEXT_MAX_CHARS: usize = 96;

// Push services never enforced RFC 8292's base64url without padding: other spellings exist.
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const BASE64URL: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, LENIENT);
const BASE64: GeneralPurpose = GeneralPurpose::new(&STANDARD, LENIENT);

/// The public key of an application server: an uncompressed P-256 point, 65 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VapidKey([u8; KEY_BYTES]);

impl VapidKey {
    /// Parses a key from `k`, `p256ecdsa` or the `key` of a register message: base64url or base64,
    /// with or without padding. The first signature shows whether it is on the curve.
    pub fn parse(text: &str) -> Result<Self, VapidError> {
        let text = text.trim_end_matches('=');
        if text.len() > TEXT_MAX_CHARS {
            return Err(VapidError::Key);
        }
        let engine = if text.contains(['+', '/']) { &BASE64 } else { &BASE64URL };
        let mut buffer = [0; TEXT_MAX_CHARS / 4 * 3];
        let length = engine.decode_slice(text, &mut buffer).map_err(|_| VapidError::Key)?;
        match <[u8; KEY_BYTES]>::try_from(&buffer[..length]) {
            Ok(bytes) if bytes[0] == UNCOMPRESSED => Ok(Self(bytes)),
            _ => Err(VapidError::Key),
        }
    }

    pub fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// The hash that restricted endpoints are bound to.
    pub fn sha256(&self) -> [u8; 32] {
        sha256(&[&self.0])
    }
}

pub(super) fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    parts.iter().for_each(|part| context.update(part));
    context.finish().as_ref().try_into().expect("SHA-256 gives 32 bytes")
}

/// The key to which a user agent restricts a subscription.
impl From<&state_machine::wire::VapidKey> for VapidKey {
    fn from(key: &state_machine::wire::VapidKey) -> Self {
        Self(*key.as_bytes())
    }
}

impl fmt::Display for VapidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(self.0))
    }
}
