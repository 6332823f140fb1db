//! A message on its way to another node: JSON, with the names that notifications and stored rows have.
//!
//! It holds all that a message is, exactly, and nothing else: what is not known is refused, so that nodes of
//! different versions disagree loudly. It is read only after its signature was verified.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde::Deserialize;
use state_machine::wire::write_payload;
use state_machine::{Chid, Encoding, Message, MessageId, Payload, Span, Time, Topic, Urgency};

use crate::http::push_headers::CRYPTO_HEADER_MAX_BYTES;

/// Bytes of everything but the data at most. A byte of `Encryption` or `Crypto-Key` takes six where it is escaped
/// (`\u0000`), and the names, ids, numbers and the topic take less than 512 together.
const FRAME_BYTES_MAX: usize = 2 * 6 * CRYPTO_HEADER_MAX_BYTES + 512;

/// A letter that is none.
#[derive(Debug, thiserror::Error)]
pub enum WireMessageError {
    /// It is not JSON with these fields and no other.
    #[error("the letter is malformed: {0}")]
    Malformed(#[from] serde_json::Error),
    /// A field has a value that it cannot have.
    #[error("{0} of the letter has a value that it cannot have")]
    Field(&'static str),
}

/// How many bytes a letter with `payload_bytes_max` bytes of payload has at most.
pub const fn bytes_max(payload_bytes_max: usize) -> usize {
    FRAME_BYTES_MAX + payload_bytes_max.div_ceil(3) * 4
}

/// Writes a message, straight into a text of the right size: each push between nodes comes by here.
pub fn to_bytes(message: &Message) -> Vec<u8> {
    const AROUND_DATA: usize = 256;
    let data_len = message.payload.as_ref().map_or(0, |payload| payload.data.len());
    let mut json = String::with_capacity(AROUND_DATA + data_len.div_ceil(3) * 4);
    push_head(&mut json, message);
    if let Some(payload) = &message.payload {
        write_payload(&mut json, payload);
    }
    json.push('}');
    json.into_bytes()
}

fn push_head(json: &mut String, message: &Message) {
    let Message { id, chid, topic, urgency, accepted_at, ttl, payload: _ } = message;
    // Writing to a text does not fail.
    let _ = write!(json, r#"{{"channelID":"{chid}","version":"{id}""#);
    if let Some(topic) = topic {
        let _ = write!(json, r#","topic":"{}""#, topic.as_str());
    }
    let (urgency, accepted_at, ttl) = (urgency.as_str(), accepted_at.0, ttl.0);
    let _ = write!(json, r#","urgency":"{urgency}","accepted_at":{accepted_at},"ttl_ms":{ttl}"#);
}

/// Reads what [`to_bytes`] wrote.
pub fn from_bytes(bytes: &[u8]) -> Result<Message, WireMessageError> {
    let letter: RelayedPush<'_> = serde_json::from_slice(bytes)?;
    Ok(Message {
        id: MessageId::parse(letter.version).map_err(|_| WireMessageError::Field("version"))?,
        chid: Chid::parse(letter.channel_id).map_err(|_| WireMessageError::Field("channelID"))?,
        topic: letter.topic.map(read_topic).transpose()?,
        urgency: Urgency::parse(letter.urgency).ok_or(WireMessageError::Field("urgency"))?,
        accepted_at: Time(letter.accepted_at),
        ttl: Span(letter.ttl_ms),
        payload: read_payload(letter.data, letter.headers)?,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RelayedPush<'a> {
    #[serde(rename = "channelID")]
    channel_id: &'a str,
    version: &'a str,
    topic: Option<&'a str>,
    urgency: &'a str,
    accepted_at: u64,
    ttl_ms: u64,
    #[serde(borrow)]
    headers: Option<Headers<'a>>,
    data: Option<&'a str>,
}

/// How the data is encrypted, as in a notification.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Headers<'a> {
    encoding: &'a str,
    #[serde(borrow)]
    encryption: Option<Cow<'a, str>>,
    #[serde(borrow)]
    crypto_key: Option<Cow<'a, str>>,
}

impl Headers<'_> {
    fn read(self) -> Result<Encoding, WireMessageError> {
        match (self.encoding, self.encryption, self.crypto_key) {
            ("aes128gcm", None, None) => Ok(Encoding::Aes128Gcm),
            ("aesgcm", Some(encryption), Some(crypto_key)) => Ok(Encoding::AesGcm {
                encryption: read_header(encryption, "encryption")?,
                crypto_key: read_header(crypto_key, "crypto_key")?,
            }),
            _ => Err(WireMessageError::Field("headers")),
        }
    }
}

fn read_header(text: Cow<'_, str>, name: &'static str) -> Result<Box<str>, WireMessageError> {
    if text.len() > CRYPTO_HEADER_MAX_BYTES {
        return Err(WireMessageError::Field(name));
    }
    Ok(text.into())
}

/// A topic as it is: what [`Topic::parse`] would mend is another one.
fn read_topic(text: &str) -> Result<Topic, WireMessageError> {
    let topic = Topic::parse(text).ok().filter(|topic| topic.as_str() == text);
    topic.ok_or(WireMessageError::Field("topic"))
}

fn read_payload(
    data: Option<&str>,
    headers: Option<Headers<'_>>,
) -> Result<Option<Payload>, WireMessageError> {
    match (data, headers) {
        (None, None) => Ok(None),
        (Some(data), Some(headers)) => {
            let data = URL_SAFE_NO_PAD.decode(data).map_err(|_| WireMessageError::Field("data"))?;
            Ok(Some(Payload { data: Bytes::from(data), encoding: headers.read()? }))
        }
        (Some(_), None) => Err(WireMessageError::Field("headers")),
        (None, Some(_)) => Err(WireMessageError::Field("data")),
    }
}
