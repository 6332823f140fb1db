//! A message on its way from an application server to a user agent.

use std::fmt;

use bytes::Bytes;

use crate::ids::{Chid, MessageId};
use crate::receipt::ReceiptRequest;
use crate::time::{Span, Time};

/// One push message, as a connection delivers it or a message table stores it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Message {
    /// Its id: the notification's `version`, and a stored row's `updateid`.
    pub id: MessageId,
    pub chid: Chid,
    /// Replaces a stored message of the same channel and topic (RFC 8030 §5.4).
    pub topic: Option<Topic>,
    /// The `Urgency` header (RFC 8030 §5.3). Never sent to the agent.
    pub urgency: Urgency,
    /// When the endpoint accepted it.
    pub accepted_at: Time,
    /// Its lifetime from then on (RFC 8030 §5.2).
    pub ttl: Span,
    /// How many connections have offered it without an ack, as far as its row says.
    pub offers: u8,
    /// Where its sender wants to learn what became of it (RFC 8030 §5.1). Such a message is always stored.
    pub receipt: Option<Box<ReceiptRequest>>,
    /// The encrypted body; none for a push without a body.
    pub payload: Option<Payload>,
}

/// An encrypted body and its content encoding.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Payload {
    pub data: Bytes,
    pub encoding: Encoding,
}

/// A content encoding of Web Push.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// `aes128gcm` (RFC 8188): the body contains the salt and the key.
    Aes128Gcm,
    /// `aesgcm`, an earlier draft: the agent gets both headers unchanged.
    AesGcm {
        /// The `Encryption` header, which has the salt.
        encryption: Box<str>,
        /// The `Crypto-Key` header, which has the sender's public key.
        crypto_key: Box<str>,
    },
    /// The text of a SimplePush version, which is not encrypted.
    Plain,
}

/// A topic: 1 to 32 characters of the URL-safe base64 alphabet (RFC 8030 §5.4).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Topic(Box<str>);

/// Why a text is not a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a topic is 1 to 32 characters of A-Z a-z 0-9 - _")]
pub struct TopicError;

/// Urgency of a message, least urgent first (RFC 8030 §5.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Urgency {
    VeryLow,
    Low,
    #[default]
    Normal,
    High,
}

/// Identifies one stored message, so that a delete never removes the message that replaced it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageKey {
    pub id: MessageId,
    pub chid: Chid,
    /// Its topic, if known. [`MessageId::has_topic`] is true for every message with a topic.
    pub topic: Option<Topic>,
}

/// Connections that have offered a message without an ack, after which it is sent behind all others.
const OFFERS_MAX: u8 = 2;

/// Time after the TTL in which an ack still counts, before the sender learns that the message has expired.
const ACK_GRACE: Span = Span::from_secs(60);

impl Message {
    /// A message of normal urgency without a topic, a receipt and a body.
    pub fn new(id: MessageId, chid: Chid, accepted_at: Time, ttl: Span) -> Self {
        Self {
            id,
            chid,
            topic: None,
            urgency: Urgency::Normal,
            accepted_at,
            ttl,
            offers: 0,
            receipt: None,
            payload: None,
        }
    }

    /// A version of a SimplePush channel, which never expires, and the text that was sent with it.
    pub fn of_version(chid: Chid, version: u64, data: Option<Bytes>, accepted_at: Time) -> Self {
        let id = MessageId::of_version(chid, version);
        let payload = data.map(|data| Payload { data, encoding: Encoding::Plain });
        Self { payload, ..Self::new(id, chid, accepted_at, Span(u64::MAX)) }
    }

    /// The version, if it is a message of SimplePush.
    pub fn version(&self) -> Option<u64> {
        self.id.version_of(self.chid)
    }

    /// Whether it is sent behind all others.
    pub fn is_offered_often(&self) -> bool {
        self.offers >= OFFERS_MAX
    }

    /// The time after which it is not delivered.
    pub fn expires_at(&self) -> Time {
        self.accepted_at + self.ttl
    }

    /// Until when its row is kept. That of a message with a receipt is kept for an ack under way when its TTL ends.
    pub fn kept_until(&self) -> Time {
        self.expires_at() + if self.receipt.is_some() { ACK_GRACE } else { Span::ZERO }
    }

    /// Whether its TTL is zero: it is delivered at once or dropped.
    pub fn ttl_is_zero(&self) -> bool {
        self.ttl == Span::ZERO
    }

    /// The key that identifies this message in storage.
    pub fn key(&self) -> MessageKey {
        MessageKey { id: self.id, chid: self.chid, topic: self.topic.clone() }
    }
}

impl Topic {
    /// Parses a `Topic` header. The trailing `=` of padded base64 is dropped.
    pub fn parse(text: &str) -> Result<Self, TopicError> {
        let text = text.trim_end_matches('=');
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if (1..=32).contains(&text.len()) && text.bytes().all(allowed) {
            Ok(Self(text.into()))
        } else {
            Err(TopicError)
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Urgency {
    /// Every urgency, least urgent first.
    pub const ALL: [Self; 4] = [Self::VeryLow, Self::Low, Self::Normal, Self::High];

    /// The value of the `Urgency` header.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::VeryLow => "very-low",
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }

    /// Parses an `Urgency` header.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|urgency| urgency.as_str() == text)
    }
}
