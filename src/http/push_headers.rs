//! The headers of a push: TTL, Topic, Urgency (RFC 8030 §5) and how its body is encrypted.

use actix_web::http::header::{CONTENT_ENCODING, HeaderMap};
use bytes::Bytes;
use state_machine::{Encoding, Payload, Span, Topic, Urgency};

use super::params;

/// How long a message may wait; a longer TTL is lowered to it, and the answer says so.
pub const TTL_MAX: Span = Span::from_secs(30 * 24 * 60 * 60);

/// How long `Encryption` and `Crypto-Key` may be, each, in bytes: they are stored with the message.
pub const CRYPTO_HEADER_MAX_BYTES: usize = 2048;

/// What a push asks for beside delivering its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushHeaders {
    /// How long the message is worth keeping, not above the cap: what the answer's `TTL` says.
    pub ttl: Span,
    /// Which waiting message it replaces.
    pub topic: Option<Topic>,
    /// How urgent it is.
    pub urgency: Urgency,
}

/// What is wrong with a push's headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// No `TTL`.
    #[error("the TTL header is missing: say for how many seconds the message is worth keeping")]
    TtlMissing,
    /// A `TTL` that is not digits, or two of them.
    #[error("the TTL header must be one whole number of seconds")]
    TtlInvalid,
    /// A `TTL` below zero.
    #[error("the TTL header must not be negative")]
    TtlNegative,
    /// A `Topic` with other characters, too long, or two of them.
    #[error("the Topic header must be at most 32 characters of A-Z a-z 0-9 - _")]
    Topic,
    /// An `Urgency` that there is not, or two of them (RFC 8030 §5.3).
    #[error("the Urgency header must be one of very-low, low, normal, high")]
    Urgency,
    /// A body without `Content-Encoding`.
    #[error("the Content-Encoding header is missing: a body must be encrypted with aes128gcm")]
    EncodingMissing,
    /// Neither `aes128gcm` nor `aesgcm`, or two of them.
    #[error("the Content-Encoding header must be aes128gcm or aesgcm")]
    EncodingUnknown,
    /// `aesgcm` without the sender's public key.
    #[error("the Crypto-Key header has no dh, which aesgcm needs")]
    DhMissing,
    /// `aesgcm` without a salt.
    #[error("the Encryption header has no salt, which aesgcm needs")]
    SaltMissing,
    /// The value of `dh` or `salt` is not base64url.
    #[error("the {0} is not base64url")]
    NotBase64(&'static str),
    /// Not a list of `name=value`, or not ASCII, or too long.
    #[error(
        "the {0} header is not a list of name=value of at most {CRYPTO_HEADER_MAX_BYTES} bytes"
    )]
    Malformed(&'static str),
    /// `aes128gcm` has salt and key in the body (RFC 8188 §2.1); others would be the wrong ones.
    #[error("the {header} header must not have a {item} with aes128gcm: it is in the body")]
    InBodyAlready {
        /// The header.
        header: &'static str,
        /// What it has.
        item: &'static str,
    },
    /// A draft older than `aesgcm`.
    #[error("the Encryption-Key header is not valid with aesgcm: use Crypto-Key")]
    EncryptionKey,
}

impl PushHeaders {
    /// Reads TTL, Topic and Urgency; a TTL above `ttl_max` is lowered to it.
    pub fn read(headers: &HeaderMap, ttl_max: Span) -> Result<Self, HeaderError> {
        Ok(Self {
            ttl: read_ttl(headers)?.min(ttl_max),
            topic: read_topic(headers)?,
            urgency: read_urgency(headers)?,
        })
    }
}

/// The payload of a push with this body, encrypted as its headers say. An empty body is a message
/// without payload, and how it is encrypted is not looked at.
pub fn payload(headers: &HeaderMap, body: Bytes) -> Result<Option<Payload>, HeaderError> {
    if body.is_empty() {
        return Ok(None);
    }
    Ok(Some(Payload { encoding: read_encoding(headers)?, data: body }))
}

/// A header that may come once came twice, or is not ASCII.
struct NotOne;

fn one<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, NotOne> {
    let mut values = headers.get_all(name);
    let Some(value) = values.next() else { return Ok(None) };
    match values.next() {
        Some(_) => Err(NotOne),
        None => value.to_str().map(|text| Some(text.trim())).map_err(|_| NotOne),
    }
}

fn read_ttl(headers: &HeaderMap) -> Result<Span, HeaderError> {
    let text = one(headers, "ttl").map_err(|NotOne| HeaderError::TtlInvalid)?;
    let text = text.ok_or(HeaderError::TtlMissing)?;
    let (digits, is_negative) = text.strip_prefix('-').map_or((text, false), |rest| (rest, true));
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(HeaderError::TtlInvalid);
    }
    if is_negative {
        return Err(HeaderError::TtlNegative);
    }
    // Digits fail to parse only where they are too many, and then mean the most there is
    // (RFC 8030 §5.2).
    Ok(Span::from_secs(digits.parse().unwrap_or(u64::MAX)))
}

fn read_topic(headers: &HeaderMap) -> Result<Option<Topic>, HeaderError> {
    let text = one(headers, "topic").map_err(|NotOne| HeaderError::Topic)?;
    text.map(|text| Topic::parse(text).map_err(|_| HeaderError::Topic)).transpose()
}

fn read_urgency(headers: &HeaderMap) -> Result<Urgency, HeaderError> {
    match one(headers, "urgency").map_err(|NotOne| HeaderError::Urgency)? {
        None => Ok(Urgency::default()),
        Some(text) => Urgency::parse(&text.to_ascii_lowercase()).ok_or(HeaderError::Urgency),
    }
}

fn read_encoding(headers: &HeaderMap) -> Result<Encoding, HeaderError> {
    let text = one(headers, CONTENT_ENCODING.as_str());
    let text = text.map_err(|NotOne| HeaderError::EncodingUnknown)?;
    let text = text.ok_or(HeaderError::EncodingMissing)?;
    if text.eq_ignore_ascii_case("aes128gcm") {
        read_aes128gcm(headers)
    } else if text.eq_ignore_ascii_case("aesgcm") {
        read_aesgcm(headers)
    } else {
        Err(HeaderError::EncodingUnknown)
    }
}

fn read_aes128gcm(headers: &HeaderMap) -> Result<Encoding, HeaderError> {
    for (header, item) in [("Encryption", "salt"), ("Crypto-Key", "dh")] {
        let list = CryptoList::read(headers, header)?;
        if list.is_some_and(|list| list.value(item).is_some()) {
            return Err(HeaderError::InBodyAlready { header, item });
        }
    }
    Ok(Encoding::Aes128Gcm)
}

fn read_aesgcm(headers: &HeaderMap) -> Result<Encoding, HeaderError> {
    if headers.contains_key("encryption-key") {
        return Err(HeaderError::EncryptionKey);
    }
    let encryption = CryptoList::read(headers, "Encryption")?.ok_or(HeaderError::SaltMissing)?;
    let crypto_key = CryptoList::read(headers, "Crypto-Key")?.ok_or(HeaderError::DhMissing)?;
    let salt = encryption.value("salt").ok_or(HeaderError::SaltMissing)?;
    let dh = crypto_key.value("dh").ok_or(HeaderError::DhMissing)?;
    for (value, name) in
        [(salt, "salt of the Encryption header"), (dh, "dh of the Crypto-Key header")]
    {
        if !is_base64url(value) {
            return Err(HeaderError::NotBase64(name));
        }
    }
    Ok(Encoding::AesGcm { encryption: encryption.0, crypto_key: crypto_key.0 })
}

fn is_base64url(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !text.is_empty() && text.bytes().all(allowed)
}

/// `name=value;name=value,name=value` without spaces, quotes and the padding of base64: as it is
/// handed to user agents, which take neither quotes nor padding.
struct CryptoList(Box<str>);

impl CryptoList {
    /// Reads a list header; one that comes several times is one list (RFC 9110 §5.3).
    fn read(headers: &HeaderMap, name: &'static str) -> Result<Option<Self>, HeaderError> {
        let mut list = String::new();
        for value in headers.get_all(name) {
            let text = value.to_str().map_err(|_| HeaderError::Malformed(name))?;
            for group in text.split(',') {
                push_group(&mut list, group).ok_or(HeaderError::Malformed(name))?;
            }
        }
        match list.len() {
            0 => Ok(None),
            length if length > CRYPTO_HEADER_MAX_BYTES => Err(HeaderError::Malformed(name)),
            _ => Ok(Some(Self(list.into()))),
        }
    }

    /// The first value of this name.
    fn value(&self, name: &str) -> Option<&str> {
        let items = self.0.split([',', ';']);
        items.filter_map(params::item).find_map(|(key, value)| (key == name).then_some(value))
    }
}

fn push_group(list: &mut String, group: &str) -> Option<()> {
    let mut separator = ",";
    for item in group.split(';').filter(|item| !item.trim().is_empty()) {
        let (name, value) = params::item(item)?;
        if !list.is_empty() {
            list.push_str(separator);
        }
        list.extend([name, "=", value.trim_end_matches('=')]);
        separator = ";";
    }
    Some(())
}

#[cfg(test)]
mod tests;
