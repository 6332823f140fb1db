//! Frames of a user agent, parsed leniently: a field of the wrong type counts as missing.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::key::VapidKey;
use super::status;
use crate::broadcast::Versions;
use crate::feed::{FeedKey, FeedValue};
use crate::ids::{Chid, MessageId, Uaid};
use crate::message::Urgency;

/// A message of a user agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ClientMessage {
    /// The first message of a session. A uaid that is missing or malformed is none.
    Hello {
        /// The uaid that the agent had, if any.
        uaid: Option<Uaid>,
        /// The broadcasts it subscribes to, with the versions it has.
        broadcasts: Versions,
        /// Whether it has `use_webpush: true`. Some agents of Web Push leave it out.
        use_webpush: bool,
    },
    /// Registers a channel of the agent.
    Register {
        chid: Chid,
        /// The only VAPID key that may push to the channel; none if any sender may.
        key: Option<VapidKey>,
    },
    /// Unregisters a channel of the agent.
    Unregister {
        /// The channel; it need not be registered.
        chid: Chid,
    },
    /// Acknowledges messages. The server deletes them for every ack code.
    Ack {
        /// The messages. An update without a valid channel id or version is left out.
        updates: Vec<AckUpdate>,
    },
    /// The agent could not handle a message. The message stays unacked.
    Nack,
    /// Subscribes to broadcasts in an open session.
    BroadcastSubscribe {
        /// The broadcasts and the versions that the agent has. Ids that no broadcast can have are
        /// left out.
        broadcasts: Versions,
    },
    /// `{}` or `ping`. Any message of the server counts as the answer.
    Ping,
    /// From now on only messages of at least this urgency are delivered.
    Urgency {
        /// The lowest urgency that is delivered.
        min: Urgency,
    },
}

/// One acknowledged message of an `ack`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AckUpdate {
    pub chid: Chid,
    /// The `version` of its notification: a text, or the number of SimplePush.
    pub id: MessageId,
    /// What became of the message, for the counters and for the receipt of its sender; no rule depends on it.
    pub code: Option<u16>,
}

/// A frame that is not a valid message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum InvalidFrame {
    /// The text is not a JSON object.
    NotJson,
    /// Messages are text frames only.
    Binary,
    /// Larger than `frame_bytes_max`, or a broken WebSocket frame.
    Unreadable,
    /// The `messageType` is unknown or missing.
    UnknownType {
        /// The type, cut to 64 characters.
        message_type: Box<str>,
    },
    /// A known message with an invalid field.
    BadField {
        message_type: &'static str,
        /// The `channelID` of the message, cut to 64 characters.
        channel_id: Option<Box<str>>,
        /// The status of the answer, a constant of [`status`].
        status: u16,
        /// The rule that the field breaks, for the answer.
        reason: &'static str,
    },
}

/// The maximum number of characters that an answer repeats of the agent's text.
const ECHO_CHARS_MAX: usize = 64;

impl ClientMessage {
    /// Parses one text frame.
    pub fn parse(text: &str) -> Result<Self, InvalidFrame> {
        let frame: Fields<'_> = serde_json::from_str(text).map_err(|_| InvalidFrame::NotJson)?;
        match frame.text("messageType").as_deref() {
            Some("ack") => Ok(Self::Ack { updates: frame.ack_updates() }),
            Some("hello") => {
                let uaid = frame.text("uaid").and_then(|text| Uaid::parse(&text).ok());
                let use_webpush = frame.get("use_webpush").unwrap_or_default();
                Ok(Self::Hello { uaid, broadcasts: frame.broadcasts(), use_webpush })
            }
            Some("register") => {
                Ok(Self::Register { chid: frame.chid("register")?, key: frame.key()? })
            }
            Some("unregister") => Ok(Self::Unregister { chid: frame.chid("unregister")? }),
            Some("nack") => Ok(Self::Nack),
            Some("broadcast_subscribe") => {
                Ok(Self::BroadcastSubscribe { broadcasts: frame.broadcasts() })
            }
            Some("ping") => Ok(Self::Ping),
            Some("urgency") => {
                let min = frame.text("min").as_deref().and_then(Urgency::parse);
                let wrong = || frame.bad("urgency", "min must be very-low, low, normal or high");
                Ok(Self::Urgency { min: min.ok_or_else(wrong)? })
            }
            None if frame.0.is_empty() => Ok(Self::Ping),
            other => Err(InvalidFrame::UnknownType { message_type: echo(other.unwrap_or("")) }),
        }
    }
}

impl Fields<'_> {
    fn key(&self) -> Result<Option<VapidKey>, InvalidFrame> {
        // A key of another type is not a missing one: its channel would not be restricted.
        let Some(key) = self.get::<&RawValue>("key").filter(|key| key.get() != "null") else {
            return Ok(None);
        };
        let key = parse(key).and_then(|Text(text)| VapidKey::parse(&text));
        let key = key.filter(VapidKey::is_on_curve);
        key.map(Some).ok_or_else(|| InvalidFrame::BadField {
            message_type: "register",
            channel_id: self.channel_id(),
            status: status::INVALID_KEY,
            reason: "key must be an uncompressed P-256 point in URL-safe base64",
        })
    }

    fn ack_updates(&self) -> Vec<AckUpdate> {
        let updates: Vec<&RawValue> = self.get("updates").unwrap_or_default();
        let update = |update: &RawValue| {
            let update: Fields<'_> = parse(update)?;
            let chid = Chid::parse(&update.text("channelID")?).ok()?;
            let id = match update.text("version") {
                Some(id) => MessageId::parse(&id).ok()?,
                None => MessageId::of_version(chid, update.get("version")?),
            };
            Some(AckUpdate { chid, id, code: update.get("code") })
        };
        updates.into_iter().filter_map(update).collect()
    }

    fn chid(&self, message_type: &'static str) -> Result<Chid, InvalidFrame> {
        let chid = self.text("channelID").and_then(|text| Chid::parse(&text).ok());
        let reason = "channelID must be a lower-case dashed UUID";
        chid.ok_or_else(|| self.bad(message_type, reason))
    }

    fn bad(&self, message_type: &'static str, reason: &'static str) -> InvalidFrame {
        let (channel_id, status) = (self.channel_id(), status::INVALID);
        InvalidFrame::BadField { message_type, channel_id, status, reason }
    }

    /// The channel as the agent sent it, for an answer.
    fn channel_id(&self) -> Option<Box<str>> {
        self.text("channelID").as_deref().map(echo)
    }
}

fn echo(text: &str) -> Box<str> {
    text.chars().take(ECHO_CHARS_MAX).collect::<String>().into()
}

/// A JSON object: its fields in their order, each with the text of its value.
#[derive(Default)]
struct Fields<'a>(Vec<(Text<'a>, &'a RawValue)>);

/// A text, borrowed from the frame unless it has escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Fields(fields))
    }
}

impl<'a> Fields<'a> {
    /// The value of a field, if it is there and has this type. Of a field that is there twice, the last counts.
    fn get<T: Deserialize<'a>>(&self, field: &str) -> Option<T> {
        let (_, value) = self.0.iter().rfind(|(name, _)| name.0 == field)?;
        parse(value)
    }

    fn text(&self, field: &str) -> Option<Cow<'a, str>> {
        self.get(field).map(|Text(text)| text)
    }

    /// The broadcasts and their versions. A version that is not a text counts as the empty version.
    fn broadcasts(&self) -> Versions {
        let fields: Fields<'a> = self.get("broadcasts").unwrap_or_default();
        let versions = fields.0.into_iter().filter_map(|(id, version)| {
            let version = parse(version).map_or(Cow::default(), |Text(version)| version);
            Some((FeedKey::parse(&id.0).ok()?, FeedValue::parse(&version).ok()?))
        });
        versions.collect()
    }
}

fn parse<'a, T: Deserialize<'a>>(value: &'a RawValue) -> Option<T> {
    serde_json::from_str(value.get()).ok()
}

#[cfg(test)]
mod tests;
