//! The headers of a push: TTL, Topic, Urgency (RFC 8030 §5) and the encryption of its body.

use actix_web::http::header::{CONTENT_ENCODING, HeaderMap};
use bytes::Bytes;
use state_machine::{Encoding, Payload, Span, Topic, Urgency};

use super::params;
pub use rules::PushRules;

mod rules;

/// Maximum length of `Encryption` and of `Crypto-Key`, which are stored with the message.
pub const CRYPTO_HEADER_MAX_BYTES: usize = 2048;

/// As errors name them.
const SALT: &str = "salt of the Encryption header";
const DH: &str = "dh of the Crypto-Key header";

/// The delivery options of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushHeaders {
    /// Time to keep the message, lowered to the maximum: the `TTL` of the response.
    pub ttl: Span,
    /// The message replaces a stored one of the same topic.
    pub topic: Option<Topic>,
    pub urgency: Urgency,
}

/// Why the headers of a push are refused. A header that must not be repeated is invalid if it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("the TTL header is missing: say for how many seconds the message is worth keeping")]
    TtlMissing,
    #[error("the TTL header must be one whole number of seconds")]
    TtlInvalid,
    #[error("the TTL header must not be negative")]
    TtlNegative,
    #[error("the Topic header must be at most 32 characters of A-Z a-z 0-9 - _")]
    Topic,
    /// Several values are an error (RFC 8030 §5.3), and so is an unknown one.
    #[error("the Urgency header must be one of very-low, low, normal, high")]
    Urgency,
    #[error("the Content-Encoding header is missing: a body must be encrypted with aes128gcm")]
    EncodingMissing,
    #[error("the Content-Encoding header must be aes128gcm or aesgcm")]
    EncodingUnknown,
    #[error("the Crypto-Key header has no dh, which aesgcm needs")]
    DhMissing,
    #[error("the Encryption header has no salt, which aesgcm needs")]
    SaltMissing,
    #[error("the {0} is not base64url")]
    NotBase64(&'static str),
    #[error(
        "the {0} header is not a list of name=value of at most {CRYPTO_HEADER_MAX_BYTES} bytes"
    )]
    Malformed(&'static str),
    /// One of each is allowed (draft-ietf-webpush-encryption-04 §4): user agents differ in which one they use.
    #[error("the {0} was sent more than once")]
    Repeated(&'static str),
    /// A signing key must not encrypt too (RFC 8292 §3.2).
    #[error("the {0} is the VAPID public key: encrypt each message with a key pair of its own")]
    VapidKeyReused(&'static str),
    /// With `aes128gcm`, salt and key are in the body (RFC 8188 §2.1), and others contradict them.
    #[error("the {header} header must not have a {item} with aes128gcm: it is in the body")]
    InBodyAlready { header: &'static str, item: &'static str },
    /// Only if the server compares bodies with RFC 8188.
    #[error("the body does not begin with the header of aes128gcm (RFC 8188 §2.1, RFC 8291 §4)")]
    NoHeaderInBody,
    /// The header of a draft older than `aesgcm`.
    #[error("the Encryption-Key header is not valid with aesgcm: use Crypto-Key")]
    EncryptionKey,
}

impl PushHeaders {
    /// Parses TTL, Topic and Urgency; a TTL above `ttl_max` is lowered to it.
    pub fn read(headers: &HeaderMap, ttl_max: Span) -> Result<Self, HeaderError> {
        Ok(Self {
            ttl: read_ttl(headers)?.min(ttl_max),
            topic: read_topic(headers)?,
            urgency: read_urgency(headers)?,
        })
    }
}

/// The payload of a push. An empty body is no payload, whatever its encryption headers are.
pub fn payload(headers: &HeaderMap, body: Bytes) -> Result<Option<Payload>, HeaderError> {
    if body.is_empty() {
        return Ok(None);
    }
    Ok(Some(Payload { encoding: read_encoding(headers)?, data: body }))
}

/// The value of a header, or `error` if the header is repeated or not ASCII.
fn one<'a>(
    headers: &'a HeaderMap,
    name: &str,
    error: HeaderError,
) -> Result<Option<&'a str>, HeaderError> {
    let mut values = headers.get_all(name);
    let Some(value) = values.next() else { return Ok(None) };
    match (value.to_str(), values.next()) {
        (Ok(text), None) => Ok(Some(text.trim())),
        _ => Err(error),
    }
}

fn read_ttl(headers: &HeaderMap) -> Result<Span, HeaderError> {
    let text = one(headers, "ttl", HeaderError::TtlInvalid)?.ok_or(HeaderError::TtlMissing)?;
    let (digits, is_negative) = text.strip_prefix('-').map_or((text, false), |rest| (rest, true));
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(HeaderError::TtlInvalid);
    }
    if is_negative {
        return Err(HeaderError::TtlNegative);
    }
    // A number that is too large to parse means the maximum (RFC 8030 §5.2).
    Ok(Span::from_secs(digits.parse().unwrap_or(u64::MAX)))
}

fn read_topic(headers: &HeaderMap) -> Result<Option<Topic>, HeaderError> {
    let text = one(headers, "topic", HeaderError::Topic)?;
    text.map(|text| Topic::parse(text).map_err(|_| HeaderError::Topic)).transpose()
}

fn read_urgency(headers: &HeaderMap) -> Result<Urgency, HeaderError> {
    match one(headers, "urgency", HeaderError::Urgency)? {
        None => Ok(Urgency::default()),
        Some(text) => Urgency::parse(&text.to_ascii_lowercase()).ok_or(HeaderError::Urgency),
    }
}

fn read_encoding(headers: &HeaderMap) -> Result<Encoding, HeaderError> {
    let text = one(headers, CONTENT_ENCODING.as_str(), HeaderError::EncodingUnknown)?;
    let text = text.ok_or(HeaderError::EncodingMissing)?;
    match text.to_ascii_lowercase().as_str() {
        "aes128gcm" => read_aes128gcm(headers),
        "aesgcm" => read_aesgcm(headers),
        _ => Err(HeaderError::EncodingUnknown),
    }
}

fn read_aes128gcm(headers: &HeaderMap) -> Result<Encoding, HeaderError> {
    for (header, item) in [("Encryption", "salt"), ("Crypto-Key", "dh")] {
        let list = CryptoList::read(headers, header)?;
        if list.is_some_and(|list| values(&list.0, item).next().is_some()) {
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
    let salt = encryption.only("salt", SALT)?.ok_or(HeaderError::SaltMissing)?;
    let dh = crypto_key.only("dh", DH)?.ok_or(HeaderError::DhMissing)?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    for (value, name) in [(salt, SALT), (dh, DH)] {
        if value.is_empty() || !value.bytes().all(allowed) {
            return Err(HeaderError::NotBase64(name));
        }
    }
    Ok(Encoding::AesGcm { encryption: encryption.0, crypto_key: crypto_key.0 })
}

/// `name=value;name=value,name=value` without spaces, quotes and base64 padding: the form in which it is sent to user
/// agents, which accept neither quotes nor padding. The VAPID key is left out: agents must not get it (RFC 8292 §4.2).
struct CryptoList(Box<str>);

impl CryptoList {
    /// Parses a list header; its repetitions form one list (RFC 9110 §5.3).
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

    /// The item of this name, which must not be repeated. Errors name it as `what`.
    fn only(&self, name: &'static str, what: &'static str) -> Result<Option<&str>, HeaderError> {
        let mut values = values(&self.0, name);
        let first = values.next();
        if values.next().is_some() { Err(HeaderError::Repeated(what)) } else { Ok(first) }
    }
}

/// The items of this name in a list of that form.
fn values<'a>(list: &'a str, name: &'static str) -> impl Iterator<Item = &'a str> {
    let items = list.split([',', ';']).filter_map(params::item);
    items.filter_map(move |(key, value)| (key == name).then_some(value))
}

fn push_group(list: &mut String, group: &str) -> Option<()> {
    let mut separator = ",";
    for item in group.split(';').filter(|item| !item.trim().is_empty()) {
        let (name, value) = params::item(item)?;
        if name == "p256ecdsa" {
            continue;
        }
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
