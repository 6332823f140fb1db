//! Frames of a user agent, parsed leniently: a field of the wrong type counts as missing.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize as DeriveDeserialize;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::VapidKey;
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
    /// The `version` of its notification.
    pub id: MessageId,
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
        /// The rule that the field breaks, for the answer.
        reason: &'static str,
    },
}

/// The maximum number of characters that an answer repeats of the agent's text.
const ECHO_CHARS_MAX: usize = 64;

impl ClientMessage {
    /// Parses one text frame.
    pub fn parse(text: &str) -> Result<Self, InvalidFrame> {
        let frame: Frame<'_> = serde_json::from_str(text).map_err(|_| InvalidFrame::NotJson)?;
        match frame.message_type.as_deref() {
            Some("ack") => Ok(frame.ack()),
            Some("hello") => Ok(frame.hello()),
            Some("register") => frame.register(),
            Some("unregister") => Ok(Self::Unregister { chid: frame.chid("unregister")? }),
            Some("nack") => Ok(Self::Nack),
            Some("broadcast_subscribe") => {
                Ok(Self::BroadcastSubscribe { broadcasts: frame.broadcasts.0 })
            }
            Some("ping") => Ok(Self::Ping),
            Some("urgency") => frame.urgency(),
            None if frame.is_empty => Ok(Self::Ping),
            other => Err(InvalidFrame::UnknownType { message_type: echo(other.unwrap_or("")) }),
        }
    }
}

impl Frame<'_> {
    fn hello(self) -> ClientMessage {
        let uaid = self.uaid.as_deref().and_then(|text| Uaid::parse(text).ok());
        ClientMessage::Hello { uaid, broadcasts: self.broadcasts.0 }
    }

    fn register(&self) -> Result<ClientMessage, InvalidFrame> {
        let chid = self.chid("register")?;
        let key = match self.key.as_deref() {
            None => None,
            Some(text) => Some(VapidKey::parse(text).ok_or_else(|| {
                self.bad("register", "key must be an uncompressed P-256 point in URL-safe base64")
            })?),
        };
        Ok(ClientMessage::Register { chid, key })
    }

    fn urgency(&self) -> Result<ClientMessage, InvalidFrame> {
        let min = self.min.as_deref().and_then(Urgency::parse);
        let min =
            min.ok_or_else(|| self.bad("urgency", "min must be very-low, low, normal or high"))?;
        Ok(ClientMessage::Urgency { min })
    }

    fn ack(self) -> ClientMessage {
        let ours = |update: RawUpdate<'_>| {
            let chid = Chid::parse(update.channel_id.0.as_deref()?).ok()?;
            let id = MessageId::parse(update.version.0.as_deref()?).ok()?;
            Some(AckUpdate { chid, id })
        };
        ClientMessage::Ack { updates: self.updates.0.into_iter().filter_map(ours).collect() }
    }

    fn chid(&self, message_type: &'static str) -> Result<Chid, InvalidFrame> {
        self.channel_id
            .as_deref()
            .and_then(|text| Chid::parse(text).ok())
            .ok_or_else(|| self.bad(message_type, "channelID must be a lower-case dashed UUID"))
    }

    fn bad(&self, message_type: &'static str, reason: &'static str) -> InvalidFrame {
        let channel_id = self.channel_id.as_deref().map(echo);
        InvalidFrame::BadField { message_type, channel_id, reason }
    }
}

fn echo(text: &str) -> Box<str> {
    text.chars().take(ECHO_CHARS_MAX).collect::<String>().into()
}

/// The fields of all messages. One pass parses the frame, without a buffer.
#[derive(Default)]
struct Frame<'a> {
    message_type: Option<Cow<'a, str>>,
    uaid: Option<Cow<'a, str>>,
    channel_id: Option<Cow<'a, str>>,
    key: Option<Cow<'a, str>>,
    min: Option<Cow<'a, str>>,
    updates: Updates<'a>,
    broadcasts: Broadcasts,
    is_empty: bool,
}

impl<'de: 'a, 'a> Deserialize<'de> for Frame<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FrameVisitor)
    }
}

struct FrameVisitor;

impl<'de> Visitor<'de> for FrameVisitor {
    type Value = Frame<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Frame<'de>, A::Error> {
        let mut frame = Frame { is_empty: true, ..Frame::default() };
        while let Some(field) = map.next_key::<Field>()? {
            frame.is_empty = false;
            match field {
                Field::MessageType => frame.message_type = map.next_value::<Text<'de>>()?.0,
                Field::Uaid => frame.uaid = map.next_value::<Text<'de>>()?.0,
                Field::ChannelId => frame.channel_id = map.next_value::<Text<'de>>()?.0,
                Field::Key => frame.key = map.next_value::<Text<'de>>()?.0,
                Field::Min => frame.min = map.next_value::<Text<'de>>()?.0,
                Field::Updates => frame.updates = map.next_value()?,
                Field::Broadcasts => frame.broadcasts = map.next_value()?,
                Field::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(frame)
    }
}

#[derive(DeriveDeserialize)]
enum Field {
    #[serde(rename = "messageType")]
    MessageType,
    #[serde(rename = "uaid")]
    Uaid,
    #[serde(rename = "channelID")]
    ChannelId,
    #[serde(rename = "key")]
    Key,
    #[serde(rename = "min")]
    Min,
    #[serde(rename = "updates")]
    Updates,
    #[serde(rename = "broadcasts")]
    Broadcasts,
    #[serde(other)]
    Other,
}

/// One update of an ack. Anything but an object has no fields.
#[derive(Default)]
struct RawUpdate<'a> {
    channel_id: Text<'a>,
    version: Text<'a>,
}

#[derive(DeriveDeserialize)]
enum UpdateField {
    #[serde(rename = "channelID")]
    ChannelId,
    #[serde(rename = "version")]
    Version,
    #[serde(other)]
    Other,
}

/// The updates of an ack. Anything but a list is an empty list.
#[derive(Default)]
struct Updates<'a>(Vec<RawUpdate<'a>>);

/// Broadcasts and their versions. Anything but an object is empty.
#[derive(Default)]
struct Broadcasts(Versions);

/// Visitor methods for values of an unexpected type: the result is the default.
macro_rules! none_of {
    ($value:ty; $($visit:ident: $type:ty),*) => {
        $(fn $visit<E>(self, _: $type) -> Result<$value, E> {
            Ok(<$value>::default())
        })*

        fn visit_unit<E>(self) -> Result<$value, E> {
            Ok(<$value>::default())
        }
    };
}

fn skip_list<'de, A: SeqAccess<'de>>(mut list: A) -> Result<(), A::Error> {
    while list.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}

fn skip_map<'de, A: MapAccess<'de>>(mut map: A) -> Result<(), A::Error> {
    while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
    Ok(())
}

impl<'de: 'a, 'a> Deserialize<'de> for Updates<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UpdatesVisitor)
    }
}

struct UpdatesVisitor;

impl<'de> Visitor<'de> for UpdatesVisitor {
    type Value = Updates<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of updates")
    }

    none_of!(Updates<'de>; visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Updates<'de>, A::Error> {
        let mut updates = Vec::new();
        while let Some(update) = list.next_element()? {
            updates.push(update);
        }
        Ok(Updates(updates))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Updates<'de>, A::Error> {
        skip_map(map).map(|()| Updates::default())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RawUpdate<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UpdateVisitor)
    }
}

struct UpdateVisitor;

impl<'de> Visitor<'de> for UpdateVisitor {
    type Value = RawUpdate<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an update")
    }

    none_of!(RawUpdate<'de>; visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<RawUpdate<'de>, A::Error> {
        skip_list(list).map(|()| RawUpdate::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawUpdate<'de>, A::Error> {
        let mut update = RawUpdate::default();
        while let Some(field) = map.next_key::<UpdateField>()? {
            match field {
                UpdateField::ChannelId => update.channel_id = map.next_value()?,
                UpdateField::Version => update.version = map.next_value()?,
                UpdateField::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(update)
    }
}

impl<'de> Deserialize<'de> for Broadcasts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BroadcastsVisitor)
    }
}

struct BroadcastsVisitor;

impl<'de> Visitor<'de> for BroadcastsVisitor {
    type Value = Broadcasts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("broadcasts")
    }

    none_of!(Broadcasts; visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Broadcasts, A::Error> {
        skip_list(list).map(|()| Broadcasts::default())
    }

    /// A version that is not a text counts as the empty version.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Broadcasts, A::Error> {
        let mut broadcasts = Versions::new();
        while let Some((id, version)) = map.next_entry::<Text<'de>, Text<'de>>()? {
            let id = FeedKey::parse(id.0.as_deref().unwrap_or_default());
            let version = FeedValue::parse(version.0.as_deref().unwrap_or_default());
            if let (Ok(id), Ok(version)) = (id, version) {
                broadcasts.insert(id, version);
            }
        }
        Ok(Broadcasts(broadcasts))
    }
}

/// A text. Any other value counts as missing.
#[derive(Default)]
struct Text<'a>(Option<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Some(Cow::Borrowed(text))))
    }

    fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Some(Cow::Owned(text.to_owned()))))
    }

    none_of!(Text<'de>; visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64);

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Text<'de>, A::Error> {
        skip_list(list).map(|()| Text(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Text<'de>, A::Error> {
        skip_map(map).map(|()| Text(None))
    }
}

#[cfg(test)]
mod tests;
