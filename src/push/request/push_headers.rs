//! The headers of a push: TTL, Topic, Urgency (RFC 8030 §5) and the encryption of its body.

use actix_web::http::header::{CONTENT_ENCODING, HeaderMap};
use bytes::Bytes;
use state_machine::wire::VapidKey;
use state_machine::{Encoding, Payload, Span, Topic, Urgency};

use crate::push::params;
use crate::push::vapid::parse_key;

/// Maximum length of `Encryption` and of `Crypto-Key`, which are stored with the message.
pub const CRYPTO_HEADER_MAX_BYTES: usize = 2048;

/// As errors name them.
const SALT: &str = "salt of the Encryption header";
const DH: &str = "dh of the Crypto-Key header";
const KEY_ID: &str = "key in the header of the body";

/// The length of salt, record size and key id length (RFC 8188 §2.1).
const FIXED_BYTES: usize = 16 + 4 + 1;

/// The length of a public key on P-256, which is the key id (RFC 8291 §4).
const KEY_BYTES: usize = 65;

/// The first byte of a public key that is not compressed.
const UNCOMPRESSED: u8 = 4;

/// The shortest record: a delimiter and a tag of AES-GCM. A record size is above that (RFC 8188 §2).
const RECORD_BYTES_MIN: usize = 17;

/// What settings change of the rules of RFC 8030 and RFC 8291. Both are off in a server without settings.
#[derive(Debug, Clone, Copy, Default)]
pub struct PushRules {
    /// Whether a push needs neither a TTL nor a Content-Encoding (`lenient_senders`).
    pub lenient: bool,
    /// Whether a body in aes128gcm must begin as RFC 8291 requires (`payload_header_required`).
    pub payload_header_required: bool,
}

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
    #[error(
        "the TTL header is missing: say for how many seconds the message is worth keeping. With the setting \
         lenient_senders a server accepts old apps of UnifiedPush"
    )]
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
    #[error(
        "the Content-Encoding header is missing: a body must be encrypted with aes128gcm. With the setting lenient_senders \
         a server accepts old apps of UnifiedPush"
    )]
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

impl PushRules {
    /// Parses TTL, Topic and Urgency; a TTL above `ttl_max` is lowered to it. Without a TTL, a lenient server keeps the
    /// message as long as any.
    pub fn headers(self, headers: &HeaderMap, ttl_max: Span) -> Result<PushHeaders, HeaderError> {
        let ttl = match read_ttl(headers) {
            Err(HeaderError::TtlMissing) if self.lenient => ttl_max,
            ttl => ttl?.min(ttl_max),
        };
        let topic = one(headers, "topic", HeaderError::Topic)?.map(Topic::parse).transpose();
        let topic = topic.map_err(|_| HeaderError::Topic)?;
        let urgency = match one(headers, "urgency", HeaderError::Urgency)? {
            None => Urgency::default(),
            Some(text) => Urgency::parse(&text.to_ascii_lowercase()).ok_or(HeaderError::Urgency)?,
        };
        Ok(PushHeaders { ttl, topic, urgency })
    }

    /// The payload of a push. An empty body is no payload, whatever its encryption headers are.
    ///
    /// Without an encoding, a lenient server takes the body for aes128gcm, as apps of UnifiedPush do. The key of the
    /// message must not be the VAPID key of the push (RFC 8292 §3.2).
    pub fn payload(
        self,
        headers: &HeaderMap,
        body: Bytes,
        vapid_key: Option<&VapidKey>,
    ) -> Result<Option<Payload>, HeaderError> {
        if body.is_empty() {
            return Ok(None);
        }
        let encoding = match read_encoding(headers) {
            Err(HeaderError::EncodingMissing) if self.lenient => Encoding::Aes128Gcm,
            encoding => encoding?,
        };
        let (is_reused, name) = match (&encoding, vapid_key) {
            (Encoding::AesGcm { crypto_key, .. }, Some(key)) => {
                let is_reused = |dh| parse_key(dh).is_ok_and(|dh| dh == *key);
                (values(crypto_key, "dh").any(is_reused), DH)
            }
            (Encoding::Aes128Gcm, key) if self.payload_header_required => {
                let key_id = key_id(&body).ok_or(HeaderError::NoHeaderInBody)?;
                (key.is_some_and(|key| key.as_bytes() == key_id), KEY_ID)
            }
            _ => (false, ""),
        };
        match is_reused {
            true => Err(HeaderError::VapidKeyReused(name)),
            false => Ok(Some(Payload { encoding, data: body })),
        }
    }
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

fn read_encoding(headers: &HeaderMap) -> Result<Encoding, HeaderError> {
    let text = one(headers, CONTENT_ENCODING.as_str(), HeaderError::EncodingUnknown)?;
    let text = text.ok_or(HeaderError::EncodingMissing)?;
    match text.to_ascii_lowercase().as_str() {
        "aes128gcm" => {
            for (header, item) in [("Encryption", "salt"), ("Crypto-Key", "dh")] {
                let list = crypto_list(headers, header)?;
                if list.is_some_and(|list| values(&list, item).next().is_some()) {
                    return Err(HeaderError::InBodyAlready { header, item });
                }
            }
            Ok(Encoding::Aes128Gcm)
        }
        "aesgcm" => read_aesgcm(headers),
        _ => Err(HeaderError::EncodingUnknown),
    }
}

fn read_aesgcm(headers: &HeaderMap) -> Result<Encoding, HeaderError> {
    if headers.contains_key("encryption-key") {
        return Err(HeaderError::EncryptionKey);
    }
    let encryption = crypto_list(headers, "Encryption")?.ok_or(HeaderError::SaltMissing)?;
    let crypto_key = crypto_list(headers, "Crypto-Key")?.ok_or(HeaderError::DhMissing)?;
    let salt = only(&encryption, "salt", SALT)?.ok_or(HeaderError::SaltMissing)?;
    let dh = only(&crypto_key, "dh", DH)?.ok_or(HeaderError::DhMissing)?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    for (value, name) in [(salt, SALT), (dh, DH)] {
        if value.is_empty() || !value.bytes().all(allowed) {
            return Err(HeaderError::NotBase64(name));
        }
    }
    Ok(Encoding::AesGcm { encryption, crypto_key })
}

/// Parses a list header; its repetitions form one list (RFC 9110 §5.3). The result is
/// `name=value;name=value,name=value` without spaces, quotes and base64 padding: the form in which it is sent to user
/// agents, which accept neither quotes nor padding. The VAPID key is left out: agents must not get it (RFC 8292 §4.2).
fn crypto_list(headers: &HeaderMap, name: &'static str) -> Result<Option<Box<str>>, HeaderError> {
    let malformed = HeaderError::Malformed(name);
    let mut list = String::new();
    for value in headers.get_all(name) {
        for group in value.to_str().map_err(|_| malformed)?.split(',') {
            let mut separator = ",";
            for item in group.split(';').filter(|item| !item.trim().is_empty()) {
                let (key, value) = params::item(item).ok_or(malformed)?;
                if key == "p256ecdsa" {
                    continue;
                }
                if !list.is_empty() {
                    list.push_str(separator);
                }
                list.extend([key, "=", value.trim_end_matches('=')]);
                separator = ";";
            }
        }
    }
    match list.len() {
        0 => Ok(None),
        1..=CRYPTO_HEADER_MAX_BYTES => Ok(Some(list.into())),
        _ => Err(malformed),
    }
}

/// The items of this name in a list of that form.
fn values<'a>(list: &'a str, name: &'static str) -> impl Iterator<Item = &'a str> {
    let items = list.split([',', ';']).filter_map(params::item);
    items.filter_map(move |(key, value)| (key == name).then_some(value))
}

/// The item of this name, which must not be repeated. Errors name it as `what`.
fn only<'a>(
    list: &'a str,
    name: &'static str,
    what: &'static str,
) -> Result<Option<&'a str>, HeaderError> {
    let mut values = values(list, name);
    let first = values.next();
    if values.next().is_some() { Err(HeaderError::Repeated(what)) } else { Ok(first) }
}

/// The public key in the header of a body; none without a header as RFC 8291 describes it.
fn key_id(body: &[u8]) -> Option<&[u8]> {
    let (fixed, rest) = body.split_at_checked(FIXED_BYTES)?;
    let (key, record) = rest.split_at_checked(KEY_BYTES)?;
    let record_bytes = u32::from_be_bytes([fixed[16], fixed[17], fixed[18], fixed[19]]);
    let is_header = record_bytes as usize > RECORD_BYTES_MIN
        && usize::from(fixed[20]) == KEY_BYTES
        && key[0] == UNCOMPRESSED
        && record.len() >= RECORD_BYTES_MIN;
    is_header.then_some(key)
}

#[cfg(test)]
mod tests;
