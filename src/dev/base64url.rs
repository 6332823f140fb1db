//! Base64url, in which everything in Web Push is written.

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

const BASE64URL: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Writes base64url without padding.
pub fn to_base64url(bytes: &[u8]) -> String {
    BASE64URL.encode(bytes)
}

/// Reads base64url with or without padding.
pub fn from_base64url(text: &str) -> Option<Vec<u8>> {
    BASE64URL.decode(text.trim()).ok()
}

/// Writes a key or a secret as JSON.
pub(super) fn to_json<'a, T, S: Serializer>(key: &'a T, to: S) -> Result<S::Ok, S::Error>
where
    Vec<u8>: From<&'a T>,
{
    to.serialize_str(&to_base64url(&Vec::from(key)))
}

/// Reads what [`to_json`] writes.
pub(super) fn from_json<'de, T: TryFrom<Vec<u8>>, D: Deserializer<'de>>(
    from: D,
) -> Result<T, D::Error> {
    let bytes = from_base64url(&String::deserialize(from)?);
    let key = bytes.and_then(|bytes| bytes.try_into().ok());
    key.ok_or_else(|| D::Error::custom("it is not a key or a secret in base64url"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64url_is_written_without_padding_and_read_with_or_without() {
        assert_eq!(to_base64url(&[255]), "_w");
        assert_eq!(from_base64url("_w"), Some(vec![255]));
        assert_eq!(from_base64url(" _w==\n"), Some(vec![255]));
        assert_eq!(from_base64url("/w"), None);
    }
}
