//! Names, keys and values of feeds.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use super::reserved;
use crate::time::Time;

/// A feed's name: 1 to 64 of `a` to `z`, `0` to `9`, `-` and `_`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct FeedName(Arc<str>);

/// A key of a feed: 1 to [`FeedKey::BYTES_MAX`] bytes of text without control characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct FeedKey(Arc<str>);

/// The value of a key: a text of at most [`FeedValue::BYTES_MAX`] bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct FeedValue(Arc<str>);

/// Why a text is not a name, a key or a value. The error never quotes the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FeedTextError {
    #[error("a feed's name is 1 to 64 of a-z, 0-9, - and _")]
    Name,
    #[error("a key is 1 to 256 bytes of text without control characters")]
    Key,
    #[error("a value has at most 262144 bytes")]
    Value,
}

const BROADCASTS: &str = "broadcasts";

/// Its dot keeps it apart from all names that [`FeedName::parse`] reads.
const ACCESS: &str = ".access";

/// Its dot keeps it apart, as that of [`ACCESS`] does.
const MAINTENANCE: &str = ".maintenance";

/// The feeds of receipt subscriptions. Their ends, in seconds since 1970, order their names.
const RECEIPTS: &str = ".receipts.";

/// The greatest end of a receipt subscription, in seconds: ten digits.
const RECEIPTS_END_MAX: u64 = 9_999_999_999;

impl FeedName {
    /// The feed of the broadcasts: a key is a broadcast's id, a value its version.
    pub fn broadcasts() -> Self {
        Self(BROADCASTS.into())
    }

    /// The feed of the access tokens. No command and no request can name it.
    pub fn access() -> Self {
        Self(ACCESS.into())
    }

    /// The feed of what servers do by themselves: a key is a task, a value the time when a server last took it. No command
    /// and no request can name it.
    pub fn maintenance() -> Self {
        Self(MAINTENANCE.into())
    }

    /// The feed of a receipt subscription that ends at `ends_at`, rounded down to whole seconds. No command and no
    /// request can name it.
    pub fn receipts(ends_at: Time, random: u128) -> Self {
        let ends_at = ends_at.as_secs().min(RECEIPTS_END_MAX);
        Self(format!("{RECEIPTS}{ends_at:010}.{random:032x}").into())
    }

    /// A text between the names of the receipt subscriptions that have ended by `now` and those of all others.
    pub fn receipts_ended(now: Time) -> String {
        format!("{RECEIPTS}{:010}.", now.as_secs().min(RECEIPTS_END_MAX))
    }

    /// The end of a receipt subscription; none of another feed.
    pub fn receipts_end(&self) -> Option<Time> {
        let (ends_at, random) = self.0.strip_prefix(RECEIPTS)?.split_once('.')?;
        let is_whole = ends_at.len() == 10 && random.len() == 32;
        let is_hex = |byte: u8| matches!(byte, b'a'..=b'f' | b'0'..=b'9');
        let ends_at =
            ends_at.parse::<u64>().ok().filter(|_| is_whole && random.bytes().all(is_hex));
        ends_at.map(|secs| Time(secs * 1000))
    }

    /// Whether no request names it: it belongs to the server.
    pub fn is_reserved(&self) -> bool {
        self.0.starts_with('.')
    }

    /// Reads a name that is in a store, where the reserved feeds are among the others.
    pub fn from_store(text: &str) -> Result<Self, FeedTextError> {
        let reserved = Self(text.into());
        let is_known = [ACCESS, MAINTENANCE].contains(&text) || reserved.receipts_end().is_some();
        if is_known { Ok(reserved) } else { Self::parse(text) }
    }

    /// Whether readers can read the feed before its first write. Until then it is empty.
    pub fn is_always_there(&self) -> bool {
        *self == Self::broadcasts()
    }

    /// The maximum bytes of a value in this feed, if the server allows `bytes_max`. Broadcast
    /// versions are limited further: every node has all of them in memory, and an agent receives up
    /// to 64 in a frame.
    pub fn value_bytes_max(&self, bytes_max: usize) -> usize {
        match self.as_str() {
            BROADCASTS => bytes_max.min(reserved::VERSION_BYTES_MAX),
            ACCESS => reserved::GRANT_BYTES_MAX,
            _ => bytes_max,
        }
    }

    /// The maximum number of keys of this feed, including deleted ones, if the server allows
    /// `keys_max`.
    pub fn keys_max(&self, keys_max: u64) -> u64 {
        match self.as_str() {
            BROADCASTS => keys_max.min(reserved::BROADCASTS_MAX),
            ACCESS => reserved::ACCESS_TOKENS_MAX,
            MAINTENANCE => reserved::TASKS_MAX,
            _ => keys_max,
        }
    }

    /// Whether this feed may have the key. A broadcast cannot have the id that `hello` uses for
    /// errors.
    pub fn may_have(&self, key: &FeedKey) -> bool {
        *self != Self::broadcasts() || key.as_str() != reserved::RESERVED_ID
    }

    pub fn parse(text: &str) -> Result<Self, FeedTextError> {
        let is_ours = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
        let fits = matches!(text.len(), 1..=64) && text.bytes().all(is_ours);
        if fits { Ok(Self(text.into())) } else { Err(FeedTextError::Name) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FeedKey {
    /// The maximum length of a key, in bytes.
    pub const BYTES_MAX: usize = 256;

    pub fn parse(text: &str) -> Result<Self, FeedTextError> {
        let fits = matches!(text.len(), 1..=Self::BYTES_MAX) && !text.contains(char::is_control);
        if fits { Ok(Self(text.into())) } else { Err(FeedTextError::Key) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FeedValue {
    /// The maximum length of a value in any store, in bytes: a DynamoDB item has 400 KB. Servers
    /// usually allow less.
    pub const BYTES_MAX: usize = 262_144;

    pub fn parse(text: &str) -> Result<Self, FeedTextError> {
        if text.len() <= Self::BYTES_MAX {
            Ok(Self(text.into()))
        } else {
            Err(FeedTextError::Value)
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for FeedKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

macro_rules! shown_as_text {
    ($($name:ident)*) => { $(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = FeedTextError;

            fn try_from(text: String) -> Result<Self, FeedTextError> {
                Self::parse(&text)
            }
        }
    )* };
}

shown_as_text!(FeedName FeedKey FeedValue);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keys_and_values_are_bounded() {
        assert_eq!(FeedName::parse("broadcasts"), Ok(FeedName::broadcasts()));
        assert!(FeedName::parse(&"x".repeat(64)).is_ok());
        for wrong in ["", "A", "a b", "a/b", "ä", &"x".repeat(65)] {
            assert_eq!(FeedName::parse(wrong), Err(FeedTextError::Name), "{wrong}");
        }
        assert!(FeedKey::parse("remote-settings/monitor_changes").is_ok());
        assert!(FeedKey::parse(&"x".repeat(FeedKey::BYTES_MAX)).is_ok());
        for wrong in ["", "a\nb", "\u{7f}", &"x".repeat(FeedKey::BYTES_MAX + 1)] {
            assert_eq!(FeedKey::parse(wrong), Err(FeedTextError::Key));
        }
        assert!(FeedValue::parse("").is_ok());
        assert!(FeedValue::parse(&"x".repeat(FeedValue::BYTES_MAX)).is_ok());
        let long = "x".repeat(FeedValue::BYTES_MAX + 1);
        assert_eq!(FeedValue::parse(&long), Err(FeedTextError::Value));
    }

    #[test]
    fn the_names_of_receipt_subscriptions_are_ordered_by_their_ends() {
        let name = |secs: u64| FeedName::receipts(Time(secs * 1000 + 999), u128::MAX);
        let (early, late) = (name(900), name(1_796_000_000));
        assert!(early.as_str() < late.as_str() && late.is_reserved());
        assert_eq!(late.receipts_end(), Some(Time(1_796_000_000_000)));
        assert_eq!(FeedName::from_store(late.as_str()).as_ref(), Ok(&late));
        assert!(FeedName::parse(late.as_str()).is_err());
        let between = FeedName::receipts_ended(Time(901_000));
        assert!(early.as_str() < between.as_str() && between.as_str() < late.as_str());
        assert!(late.as_str().len() <= 64);
        for other in [".receipts.", ".receipts.1.2", ".receipts.0000000001.zz", "broadcasts"] {
            assert_eq!(FeedName(other.into()).receipts_end(), None, "{other}");
        }
    }

    #[test]
    fn broadcasts_are_small_and_few_and_other_feeds_as_the_server_allows() {
        let (broadcasts, other) = (FeedName::broadcasts(), FeedName::parse("other").unwrap());
        assert_eq!(
            (broadcasts.value_bytes_max(65_536), other.value_bytes_max(65_536)),
            (1024, 65_536)
        );
        assert!(broadcasts.is_always_there() && !other.is_always_there());
        assert_eq!(other.as_str(), "other");
        assert_eq!((broadcasts.keys_max(100_000), other.keys_max(100_000)), (10_000, 100_000));
        assert_eq!((broadcasts.value_bytes_max(10), broadcasts.keys_max(10)), (10, 10));
        let [errors, error] = ["errors", "error"].map(|key| FeedKey::parse(key).unwrap());
        assert!(
            !broadcasts.may_have(&errors) && broadcasts.may_have(&error) && other.may_have(&errors)
        );
    }
}
