//! Ids of user agents, channels, messages, nodes, connections, pushes and store operations.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::time::Time;

/// Why a text is not an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text is neither 32 hex digits nor a dashed UUID.
    #[error("expected 32 hex digits or a dashed UUID")]
    NotUuid,
    /// A channel id must be a lower-case dashed UUID.
    #[error("expected a lower-case dashed UUID")]
    NotDashedLowerCase,
}

/// A user agent's id: 16 random bytes, written as 32 hex digits. It is a secret of that agent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Uaid(pub [u8; 16]);

/// A channel (subscription) id of one user agent: a UUID, written lower-case and dashed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Chid(pub [u8; 16]);

/// A message's id and `version`: time-ordered and unique (a UUIDv7), written as 32 hex digits.
///
/// The lowest bit records whether the message has a Topic. So the `version` in an ack identifies
/// the row even in a store that keys topic messages by topic. The next bit records whether its sender wants a receipt, so
/// that the ack of any other message costs no search for one. Ids of earlier versions and of other software have any bit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(u128);

/// The first two bytes of the id of a SimplePush version. As those of a UUIDv7 they are after the year 10,000.
const VERSION_TAG: u128 = 0xffff;
/// The bit of an id whose message asks for a receipt.
const WANTS_RECEIPT: u128 = 0b10;
/// The bits of a version and of the absent topic.
const VERSION_BITS: u32 = 65;
const CHANNEL_MASK: u128 = (1 << (112 - VERSION_BITS)) - 1;

/// A connection of this node, unique while the process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Correlates a store operation of one connection with its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u32);

/// Correlates a push to a connection with the answer to its endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PushId(pub u64);

/// A connection node's name: the URL of its router port, or any fixed text on a single-node server.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(Arc<str>);

impl Uaid {
    /// Parses 32 hex digits, or the dashed form.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        parse_uuid(text).map(Self)
    }
}

impl TryFrom<String> for Uaid {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        Self::parse(&text)
    }
}

impl From<Uaid> for String {
    fn from(uaid: Uaid) -> Self {
        uaid.to_string()
    }
}

impl Chid {
    /// Parses a lower-case dashed UUID, the only form of a channel id in the protocol.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let shaped = text.len() == 36 && !text.bytes().any(|b| b.is_ascii_uppercase());
        if !shaped {
            return Err(IdError::NotDashedLowerCase);
        }
        parse_uuid(text).map(Self).map_err(|_| IdError::NotDashedLowerCase)
    }
}

impl MessageId {
    /// The id of a message, from a fresh UUIDv7.
    pub fn from_uuid_v7(uuid: u128, has_topic: bool) -> Self {
        Self((uuid & !1) | u128::from(has_topic))
    }

    /// The same id with the mark of a wanted receipt, or without it.
    pub fn with_receipt(self, is_wanted: bool) -> Self {
        Self((self.0 & !WANTS_RECEIPT) | if is_wanted { WANTS_RECEIPT } else { 0 })
    }

    /// This id with the time of the millisecond after `other`, so that it is the greater one. None at the end of the
    /// times that an id may have, which only a broken clock reaches.
    pub fn above(self, other: Self) -> Option<Self> {
        const TIME_SHIFT: u32 = 80;
        let later = Self(
            (((other.0 >> TIME_SHIFT) + 1) << TIME_SHIFT) | (self.0 & ((1 << TIME_SHIFT) - 1)),
        );
        (other < later && !later.is_version()).then_some(later)
    }

    /// Whether its sender may want a receipt: if not, no row of it names one.
    pub fn may_want_receipt(self) -> bool {
        self.0 & WANTS_RECEIPT != 0 && !self.is_version()
    }

    /// The reverse of [`MessageId::to_bytes`].
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// The id of a SimplePush version. Of two ids of one channel, that of the higher version is the greater one.
    ///
    /// It begins with [`VERSION_TAG`], which no time has, and identifies the channel too, because two channels may have
    /// the same version.
    pub fn of_version(chid: Chid, version: u64) -> Self {
        let bits = u128::from_be_bytes(chid.0);
        let channel = (bits ^ (bits >> 64)) & CHANNEL_MASK;
        Self(VERSION_TAG << 112 | channel << VERSION_BITS | u128::from(version) << 1)
    }

    /// The SimplePush version that this is the id of, if it is one of this channel.
    pub fn version_of(self, chid: Chid) -> Option<u64> {
        let version = (self.0 >> 1) as u64;
        (self == Self::of_version(chid, version)).then_some(version)
    }

    /// Whether an agent that has this message needs the other one no more: it is the same, or a version of the same
    /// channel that is not higher.
    pub fn covers(self, other: Self) -> bool {
        self == other || (self.is_version() && other < self && self.channel() == other.channel())
    }

    /// The time in it; none of a SimplePush version. An id of other software may have any.
    pub fn minted_at(self) -> Option<Time> {
        (!self.is_version()).then_some(Time((self.0 >> 80) as u64))
    }

    pub(crate) fn is_version(self) -> bool {
        self.0 >> 112 == VERSION_TAG
    }

    fn channel(self) -> u128 {
        self.0 >> VERSION_BITS
    }

    /// Sixteen bytes whose byte order is the order of time.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Whether the message was sent with a Topic.
    pub fn has_topic(self) -> bool {
        self.0 & 1 == 1
    }

    /// Parses the `version` of a notification.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        parse_uuid(text).map(Self::from_bytes)
    }
}

impl NodeId {
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The name as a router record has it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Parses 32 hex digits or a dashed UUID. Every other form that [`Uuid`] knows has another length.
fn parse_uuid(text: &str) -> Result<[u8; 16], IdError> {
    let uuid = Uuid::try_parse(text).ok().filter(|_| matches!(text.len(), 32 | 36));
    uuid.map(Uuid::into_bytes).ok_or(IdError::NotUuid)
}

macro_rules! text_form {
    ($name:ident, $bytes:expr, $form:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let bytes: fn(&$name) -> [u8; 16] = $bytes;
                Uuid::from_bytes(bytes(self)).$form().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::parse(text)
            }
        }
    };
}

text_form!(Uaid, |id| id.0, simple);
text_form!(Chid, |id| id.0, hyphenated);
text_form!(MessageId, |id| id.to_bytes(), simple);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DASHED: &str = "01234567-0123-abcd-0123-0123456789ab";

    #[test]
    fn a_uaid_is_read_dashed_or_plain_and_written_plain() {
        let plain = DASHED.replace('-', "");
        assert_eq!(Uaid::parse(DASHED), Uaid::parse(&plain));
        assert_eq!(Uaid::parse(DASHED).unwrap().to_string(), plain);
    }

    #[test]
    fn a_channel_id_is_read_only_in_lower_case_with_dashes() {
        assert_eq!(Chid::parse(DASHED).unwrap().to_string(), DASHED);
        for wrong in [
            &DASHED.to_uppercase(),
            &DASHED.replace('-', ""),
            "",
            "01234567-0123-abcd-0123-0123456789a",
            "01234567_0123-abcd-0123-0123456789ab",
            "0123456é-0123-abcd-0123-123456789ab",
        ] {
            assert_eq!(Chid::parse(wrong), Err(IdError::NotDashedLowerCase));
        }
    }

    #[test]
    fn a_message_id_keeps_its_time_order_and_says_whether_it_has_a_topic() {
        let early = MessageId::from_uuid_v7(0x10, true);
        let late = MessageId::from_uuid_v7(0x20, false);
        assert!(early < late && early.to_bytes() < late.to_bytes());
        assert!(early.has_topic() && !late.has_topic());
        assert_eq!(MessageId::parse(&early.to_string()), Ok(early));
    }

    #[test]
    fn an_id_above_another_is_the_next_millisecond_with_its_own_bits() {
        let own = MessageId::from_uuid_v7(5 << 80 | 0x7000_1234, true).with_receipt(true);
        for other in [own, MessageId::from_uuid_v7(5 << 80 | 0xffff_ffff, true)] {
            let above = own.above(other).unwrap();
            assert_eq!((above.minted_at(), above > other), (Some(Time(6)), true));
            assert!(above.has_topic() && above.may_want_receipt());
            assert_eq!(
                above.0 & 0xffff_ffff,
                own.0 & 0xffff_ffff,
                "two that are above one are two"
            );
        }
        let last = MessageId::from_uuid_v7((VERSION_TAG << 112) - 1, true);
        assert_eq!(own.above(last), None, "the next id is one of a version");
        assert_eq!(own.above(MessageId::from_bytes([0xff; 16])), None);
    }

    #[test]
    fn the_mark_of_a_receipt_changes_neither_order_nor_topic() {
        for has_topic in [false, true] {
            let plain = MessageId::from_uuid_v7(0x10, has_topic).with_receipt(false);
            let marked = plain.with_receipt(true);
            assert!(marked.may_want_receipt() && !plain.may_want_receipt());
            assert_eq!((marked.has_topic(), marked.with_receipt(false)), (has_topic, plain));
            assert!(marked < MessageId::from_uuid_v7(0x20, has_topic));
        }
        let versions = (0..4).map(|version| MessageId::of_version(Chid([1; 16]), version));
        assert!(versions.into_iter().all(|version| !version.may_want_receipt()));
    }

    #[test]
    fn a_version_covers_the_lower_ones_of_its_channel() {
        let id = |channel, version| MessageId::of_version(Chid([channel; 16]), version);
        for version in [0, 1, 9, 10, u64::MAX / 2 + 1, u64::MAX] {
            assert_eq!(id(1, version).version_of(Chid([1; 16])), Some(version));
            assert!(!id(1, version).has_topic());
        }
        let channels = [1, 2].map(|last| {
            let mut bytes = [7; 16];
            bytes[15] = last;
            Chid(bytes)
        });
        let [one, two] = channels.map(|chid| MessageId::of_version(chid, 5));
        assert_eq!(one.version_of(channels[1]), None);
        assert!(one.covers(one) && !one.covers(two) && !two.covers(one));
        assert!(MessageId::of_version(channels[0], 6).covers(one));
        assert!(!one.covers(MessageId::of_version(channels[0], 6)));
        let [early, late] = [0x0193 << 112 | 0x10, 0x0193 << 112 | 0x20]
            .map(|uuid| MessageId::from_uuid_v7(uuid, false));
        assert!(!late.covers(early) && late.covers(late));
    }

    #[test]
    fn the_lowest_bit_of_a_uuid_does_not_stand_for_a_topic() {
        for uuid in [0x10, 0x11] {
            assert!(MessageId::from_uuid_v7(uuid, true).has_topic());
            assert!(!MessageId::from_uuid_v7(uuid, false).has_topic());
        }
    }
}
