//! The values of autopush-rs, and what Kalends makes of them.

use std::collections::{BTreeSet, HashMap};

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use state_machine::{Chid, Encoding, Message, MessageId, Payload, Span, Time, Topic, Urgency};
use uuid::{Builder, Uuid};

/// The longest TTL that autopush-rs accepts: 30 days.
const TTL_MAX_S: u64 = 30 * 24 * 60 * 60;

/// The latest time of a message id: 48 bits of milliseconds.
const TIME_MAX_MS: u64 = (1 << 48) - 1;

/// The record of a user; JSON in Redis.
#[derive(Debug, Deserialize)]
pub struct User {
    /// `webpush`, or the name of a bridge.
    pub router_type: String,
    /// When the agent last connected, or its registration was last changed, in milliseconds.
    #[serde(default)]
    pub connected_at: u64,
    /// How a bridge reaches the agent.
    pub router_data: Option<Value>,
}

/// A message; JSON in Redis.
#[derive(Deserialize)]
pub struct StoredMessage {
    #[serde(rename = "channelID")]
    pub channel_id: String,
    pub version: String,
    /// When it was accepted, in seconds.
    pub timestamp: u64,
    #[serde(default)]
    pub ttl: u64,
    pub topic: Option<String>,
    pub data: Option<String>,
    /// When it was accepted, in milliseconds. Messages of topics have none.
    pub sortkey_timestamp: Option<u64>,
    pub headers: Option<HashMap<String, String>>,
}

/// A message, and its version, which autopush-rs has encrypted with its crypto key.
#[derive(Debug, PartialEq, Eq)]
pub struct SealedMessage {
    pub message: Message,
    pub version: String,
}

impl User {
    /// None if the text is no record.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

impl SealedMessage {
    /// None if the text is no message, or none that an agent could decrypt.
    pub fn parse(text: &str) -> Option<Self> {
        Self::of(serde_json::from_str(text).ok()?)
    }

    /// None if an agent could not decrypt it, or a value has another form.
    pub fn of(stored: StoredMessage) -> Option<Self> {
        let topic = stored.topic.as_deref().filter(|topic| !topic.is_empty());
        let topic = topic.map(Topic::parse).transpose().ok()?;
        let accepted_ms = match stored.sortkey_timestamp {
            Some(ms) if ms > 0 => ms,
            _ => stored.timestamp.checked_mul(1000)?,
        };
        let accepted_at = Time((accepted_ms <= TIME_MAX_MS).then_some(accepted_ms)?);
        let chid = parse_chid(&stored.channel_id)?;
        let message = Message {
            id: message_id(accepted_at, chid, &stored.version, topic.is_some()),
            chid,
            topic,
            urgency: Urgency::default(),
            accepted_at,
            ttl: Span::from_secs(stored.ttl.min(TTL_MAX_S)),
            offers: 0,
            receipt: None,
            payload: match stored.data {
                None => None,
                Some(data) => Some(payload(&data, &stored.headers?)?),
            },
        };
        Some(Self { message, version: stored.version })
    }
}

/// The channels with these ids, and how many ids are none.
pub fn parse_chids(texts: &[String]) -> (BTreeSet<Chid>, usize) {
    let parsed: Vec<_> = texts.iter().filter_map(|text| parse_chid(text)).collect();
    let unreadable = texts.len() - parsed.len();
    (parsed.into_iter().collect(), unreadable)
}

/// Accepts any form of a UUID: Redis has dashes, and PostgreSQL has none.
fn parse_chid(text: &str) -> Option<Chid> {
    Uuid::try_parse(text).ok().map(|uuid| Chid(uuid.into_bytes()))
}

/// The same message always has the same id, so that it is stored once however often it is imported.
fn message_id(accepted_at: Time, chid: Chid, version: &str, has_topic: bool) -> MessageId {
    let hash = digest(&SHA256, &[&chid.0, version.as_bytes()].concat());
    let (random, _) = hash.as_ref().split_first_chunk().expect("a SHA-256 has 32 bytes");
    let uuid = Builder::from_unix_timestamp_millis(accepted_at.0, random).into_uuid();
    MessageId::from_uuid_v7(uuid.as_u128(), has_topic)
}

fn payload(data: &str, headers: &HashMap<String, String>) -> Option<Payload> {
    let text = |name| headers.get(name).map(|text| text.as_str().into());
    let encoding = match headers.get("encoding")?.as_str() {
        "aes128gcm" => Encoding::Aes128Gcm,
        "aesgcm" => {
            Encoding::AesGcm { encryption: text("encryption")?, crypto_key: text("crypto_key")? }
        }
        _ => return None,
    };
    let data = URL_SAFE_NO_PAD.decode(data.trim_end_matches('=')).ok()?;
    Some(Payload { data: Bytes::from(data), encoding })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHID: &str = "01234567-0123-abcd-0123-0123456789ab";

    fn parse(fields: &str) -> Option<Message> {
        let text = format!(
            r#"{{"channelID":"{CHID}","version":"gAAA","timestamp":1795000000,"ttl":60,{fields}}}"#
        );
        SealedMessage::parse(&text).map(|sealed| sealed.message)
    }

    #[test]
    fn a_message_keeps_its_body_its_encoding_and_the_time_of_its_acceptance() {
        let message = parse(
            r#""data":"_-8","sortkey_timestamp":1795000000123,
               "headers":{"encoding":"aesgcm","encryption":"salt=x","crypto_key":"dh=y"}"#,
        )
        .unwrap();
        let encoding = Encoding::AesGcm { encryption: "salt=x".into(), crypto_key: "dh=y".into() };
        assert_eq!(
            message.payload,
            Some(Payload { data: Bytes::from_static(&[0xff, 0xef]), encoding })
        );
        assert_eq!((message.accepted_at, message.ttl), (Time(1_795_000_000_123), Span(60_000)));
        assert_eq!((message.topic.as_ref(), message.id.has_topic()), (None, false));
    }

    #[test]
    fn a_message_of_a_topic_has_the_second_of_its_acceptance_and_an_id_of_a_topic() {
        let message = parse(r#""topic":"news""#).unwrap();
        assert_eq!(message.topic, Topic::parse("news").ok());
        assert_eq!(message.accepted_at, Time(1_795_000_000_000));
        assert!(message.id.has_topic() && message.payload.is_none());
    }

    #[test]
    fn a_message_always_has_the_same_id_and_ids_are_in_the_order_of_time() {
        let at = |ms: u64| parse(&format!(r#""sortkey_timestamp":{ms}"#)).unwrap().id;
        assert_eq!(at(1_795_000_000_123), at(1_795_000_000_123));
        assert!(at(1_795_000_000_123) < at(1_795_000_000_124));
    }

    #[test]
    fn a_value_that_is_no_message_or_cannot_be_decrypted_is_none() {
        for wrong in [
            r#""data":"%","headers":{"encoding":"aes128gcm"}"#,
            r#""data":"_-8""#,
            r#""data":"_-8","headers":{"encoding":"aesgcm","encryption":"salt=x"}"#,
            r#""data":"_-8","headers":{"encoding":"aesgcm128"}"#,
            r#""topic":"no topic""#,
            r#""sortkey_timestamp":281474976710656"#,
            r#""sortkey_timestamp":-1"#,
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        for wrong in ["", "{}", "null", "[]", r#"{"channelID":"x","version":"","timestamp":1}"#] {
            assert_eq!(SealedMessage::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_record_has_a_router_type_and_the_time_of_the_last_connection() {
        let text = format!(
            r#"{{"uaid":"{}","connected_at":1795000000123,"router_type":"webpush","router_data":null,
                "node_id":"http://node:8081","record_version":1,"priv_channels":[]}}"#,
            CHID.replace('-', "")
        );
        let user = User::parse(&text).unwrap();
        assert_eq!((user.router_type.as_str(), user.connected_at), ("webpush", 1_795_000_000_123));
        assert!(User::parse("{}").is_none() && User::parse("").is_none());
    }
}
