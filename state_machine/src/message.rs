//! A message on its way from an application server to a user agent.

use std::fmt;

use bytes::Bytes;

use crate::ids::{Chid, MessageId};
use crate::time::{Span, Time};

/// One push message, as it is handed to a connection or waits in a message table.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Message {
    /// Its id: the notification's `version`, and a stored row's `updateid`.
    pub id: MessageId,
    /// The channel it is for.
    pub chid: Chid,
    /// Replaces a waiting message of the same channel and topic (RFC 8030 §5.4).
    pub topic: Option<Topic>,
    /// How soon the user agent wants it (RFC 8030 §5.3). Never sent to the agent.
    pub urgency: Urgency,
    /// When the application server handed it over.
    pub accepted_at: Time,
    /// How long it is worth keeping from then on (RFC 8030 §5.2).
    pub ttl: Span,
    /// The encrypted body; none for a message that only wakes the agent.
    pub payload: Option<Payload>,
}

/// An encrypted body and what is needed to decrypt it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Payload {
    /// The body's bytes, as they were posted.
    pub data: Bytes,
    /// How it is encrypted.
    pub encoding: Encoding,
}

/// A content encoding of Web Push.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// RFC 8188: the salt and key are inside the body.
    Aes128Gcm,
    /// The draft before it: salt and key come in headers, handed on to the agent as they are.
    AesGcm {
        /// The `Encryption` header.
        encryption: Box<str>,
        /// The `Crypto-Key` header.
        crypto_key: Box<str>,
    },
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
    /// `very-low`
    VeryLow,
    /// `low`
    Low,
    /// `normal`
    #[default]
    Normal,
    /// `high`
    High,
}

/// What names a stored message, so that deleting it can never hit its replacement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageKey {
    /// The message.
    pub id: MessageId,
    /// Its channel.
    pub chid: Chid,
    /// Its topic where it is known. [`MessageId::has_topic`] tells whether it has one.
    pub topic: Option<Topic>,
}

impl Message {
    /// When it is no longer worth delivering.
    pub fn expires_at(&self) -> Time {
        self.accepted_at + self.ttl
    }

    /// A message with a TTL of zero is delivered at once or not at all.
    pub fn ttl_is_zero(&self) -> bool {
        self.ttl == Span::ZERO
    }

    /// What names this message.
    pub fn key(&self) -> MessageKey {
        MessageKey { id: self.id, chid: self.chid, topic: self.topic.clone() }
    }
}

impl Topic {
    /// Checks a `Topic` header; trailing `=` of padded base64 is dropped.
    pub fn parse(text: &str) -> Result<Self, TopicError> {
        let text = text.trim_end_matches('=');
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if (1..=32).contains(&text.len()) && text.bytes().all(allowed) {
            Ok(Self(text.into()))
        } else {
            Err(TopicError)
        }
    }

    /// The topic's text.
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

    /// Its name in the `Urgency` header.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::VeryLow => "very-low",
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }

    /// Reads an `Urgency` header.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|urgency| urgency.as_str() == text)
    }
}
