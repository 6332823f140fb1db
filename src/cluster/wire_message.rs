//! A message in a request to another node: JSON with the field names of a notification.
//!
//! An unknown field is ignored, so that pushes stay direct while nodes of two versions run (docs/stability.md). A message
//! is parsed only after the signature of its request was verified.

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

use crate::push::push_headers::CRYPTO_HEADER_MAX_BYTES;

/// Maximum size without the data. A byte of `Encryption` or `Crypto-Key` takes up to six if it is
/// escaped (`\u0000`), and the names, ids, numbers and the topic take less than 512 bytes together.
const FRAME_BYTES_MAX: usize = 2 * 6 * CRYPTO_HEADER_MAX_BYTES + 512;

/// Why a body is not a message.
#[derive(Debug, thiserror::Error)]
pub enum WireMessageError {
    #[error("the message is malformed: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("the message has an invalid {0}")]
    Field(&'static str),
}

/// Maximum size of a message with a payload of `payload_bytes_max` bytes.
pub const fn bytes_max(payload_bytes_max: usize) -> usize {
    FRAME_BYTES_MAX + payload_bytes_max.div_ceil(3) * 4
}

/// Serialises a message in one allocation: it is done for each push to another node.
pub fn to_bytes(message: &Message) -> Vec<u8> {
    const AROUND_DATA: usize = 256;
    let data_len = message.payload.as_ref().map_or(0, |payload| payload.data.len());
    let mut json = String::with_capacity(AROUND_DATA + data_len.div_ceil(3) * 4);
    let Message { id, chid, topic, urgency, accepted_at, ttl, offers: _, receipt: _, payload } =
        message;
    // Writing to a string does not fail.
    let _ = write!(json, r#"{{"channelID":"{chid}","version":"{id}""#);
    if let Some(topic) = topic {
        let _ = write!(json, r#","topic":"{}""#, topic.as_str());
    }
    let (urgency, accepted_at, ttl) = (urgency.as_str(), accepted_at.0, ttl.0);
    let _ = write!(json, r#","urgency":"{urgency}","accepted_at":{accepted_at},"ttl_ms":{ttl}"#);
    if let Some(payload) = payload {
        write_payload(&mut json, payload);
    }
    json.push('}');
    json.into_bytes()
}

/// Parses the output of [`to_bytes`].
pub fn from_bytes(bytes: &[u8]) -> Result<Message, WireMessageError> {
    let fields: RelayedPush<'_> = serde_json::from_slice(bytes)?;
    Ok(Message {
        id: MessageId::parse(fields.version).map_err(|_| WireMessageError::Field("version"))?,
        chid: Chid::parse(fields.channel_id).map_err(|_| WireMessageError::Field("channelID"))?,
        topic: fields.topic.map(read_topic).transpose()?,
        urgency: Urgency::parse(fields.urgency).ok_or(WireMessageError::Field("urgency"))?,
        accepted_at: Time(fields.accepted_at),
        ttl: Span(fields.ttl_ms),
        offers: 0,
        receipt: None,
        payload: read_payload(fields.data, fields.headers)?,
    })
}

#[derive(Deserialize)]
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

/// The encryption of the data, as in a notification.
#[derive(Deserialize)]
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
            ("plain", None, None) => Ok(Encoding::Plain),
            ("aesgcm", Some(encryption), Some(crypto_key)) => Ok(Encoding::AesGcm {
                encryption: bounded(encryption, "encryption")?,
                crypto_key: bounded(crypto_key, "crypto_key")?,
            }),
            _ => Err(WireMessageError::Field("headers")),
        }
    }
}

fn bounded(text: Cow<'_, str>, field: &'static str) -> Result<Box<str>, WireMessageError> {
    match text.len() <= CRYPTO_HEADER_MAX_BYTES {
        true => Ok(text.into()),
        false => Err(WireMessageError::Field(field)),
    }
}

/// The topic must be in its canonical form: [`Topic::parse`] accepts others.
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
