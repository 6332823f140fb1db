//! The key of an application server, and the base64 of the protocol.

use std::fmt;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ParsedPublicKey};
use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Reads URL-safe base64 with or without padding, writes it without.
pub const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The first byte of an uncompressed point (SEC 1 §2.3.3).
const UNCOMPRESSED: u8 = 4;

/// An application server's public key (RFC 8292 §3.2): an uncompressed point.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VapidKey(Box<[u8; 65]>);

impl VapidKey {
    /// Takes the 65 bytes of an uncompressed point. A signature check finds out whether it is on the curve.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let point: [u8; 65] = bytes.try_into().ok()?;
        (point[0] == UNCOMPRESSED).then(|| Self(Box::new(point)))
    }

    /// Whether it is a point of P-256.
    pub fn is_on_curve(&self) -> bool {
        ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.as_bytes()).is_ok()
    }

    /// Reads URL-safe base64, padded or not.
    pub fn parse(text: &str) -> Option<Self> {
        const TEXT_MAX: usize = 88;
        if text.len() > TEXT_MAX {
            return None;
        }
        Self::from_bytes(&BASE64.decode(text).ok()?)
    }

    /// The uncompressed point, 65 bytes.
    pub fn as_bytes(&self) -> &[u8; 65] {
        &self.0
    }
}

impl fmt::Debug for VapidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64.encode(self.as_bytes()))
    }
}
