//! Feeds that lose no update (docs/sources.md#feed-sequences-note).
//!
//! A feed is a table of keys. One transaction assigns the next number of the feed's sequence, the
//! `feed_sync_id`, to each changed key. A consumer stores the last number it has seen, and receives
//! the last state of each key at least once.
//!
//! ```text
//!   write, republish, delete        publish                         fetch after a cursor
//!   version + 1, number none  ──►   sequence + 1, version + 1  ──►  numbers in (cursor, head], ascending
//!   (pending)                       (numbered)
//! ```
//!
//! - [`Table`] models the table of a feed in memory: tests compare the storage engines with it, and
//!   model checkers explore it.
//! - [`Publication`] is one publishing transaction: what it read, what it writes, and its
//!   condition.
//! - [`Publisher`] decides when to publish. [`Consumer`] decides when to fetch, and keeps the
//!   cursor.
//!
//! Architecture Invariant: a key has at most one number, and a number at most one key. A changed
//! key gives up its old number, so a consumer at a number has seen every update that remains before
//! it.
//!
//! Architecture Invariant: no number is computed from the numbers in use (`MAX + 1`). The key with
//! the greatest number may have given it up. The same number would then be assigned twice, and
//! consumers past it would miss the second update.

pub mod consumer;
pub mod publication;
pub mod publisher;
pub mod sequence;
pub mod table;

pub use consumer::{Consumer, ConsumerEffect, ConsumerEnd, ConsumerEvent, ConsumerLimits};
pub use publication::{Assignment, Publication, PublishResult, UnpublishedKey};
pub use publisher::{Publisher, PublisherEffect, PublisherEvent, PublisherLimits, PublisherWait};
pub use sequence::{FeedMark, Forgotten, Sequence};
pub use table::Table;

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use crate::access;
use crate::backoff::Backoff;
use crate::broadcast;
use crate::time::{Span, Time};

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

/// A number of a feed's sequence, from 1. A consumer's cursor is the last number it has seen.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct FeedSyncId(pub u64);

/// The number of changes of a key's row, publications included
/// (docs/sources.md#feed-sequences-note).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Version(pub u64);

/// A numbered change, as a consumer receives it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Update {
    pub feed_sync_id: FeedSyncId,
    pub key: FeedKey,
    /// The version of the key's row, as published.
    pub version: Version,
    /// The value of the key; none if the key was deleted.
    #[serde(flatten, with = "value_or_deleted")]
    pub value: Option<FeedValue>,
}

/// Part of a feed's updates, in the order of their numbers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct FeedPage {
    pub updates: Vec<Update>,
    /// The cursor after this page. Every update up to it is in this page or an earlier one, or its
    /// key has changed again.
    pub cursor: FeedSyncId,
    /// The feed's greatest number when the page was read. If the cursor is less, another page
    /// follows.
    pub head: FeedSyncId,
    /// Entries up to this number are forgotten. See [`FeedPage::is_too_late`].
    #[serde(default, skip_serializing_if = "FeedSyncId::is_none")]
    pub horizon: FeedSyncId,
}

impl FeedPage {
    /// Keeps the first `count` updates, and moves the cursor back to the last of them.
    pub fn truncate(&mut self, count: usize) {
        if self.updates.len() > count {
            self.updates.truncate(count);
            self.cursor = self.updates.last().map_or(self.cursor, |last| last.feed_sync_id);
        }
    }

    /// Whether a page that was read with the cursor `after` may lack deletions that are forgotten.
    /// Then it is not consumed: the consumer discards what it has, and starts over without a cursor.
    pub fn is_too_late(&self, after: FeedSyncId) -> bool {
        !after.is_none() && after < self.horizon
    }

    /// Whether the feed had no updates after this page when the page was read.
    pub fn is_last(&self) -> bool {
        self.cursor >= self.head
    }
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WriteResult {
    /// The write is durable and the key has no number yet. The value is the row's new version.
    Done(Version),
    /// The feed has its maximum of keys. Nothing was written.
    TooManyKeys,
}

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

/// The backoff after a store failure: `retry` first, doubled with each failure, at most 64 times
/// `retry`.
fn store_backoff(retry: Span) -> Backoff {
    Backoff::new(retry, retry * 64)
}

const BROADCASTS: &str = "broadcasts";

/// Its dot keeps it apart from all names that [`FeedName::parse`] reads.
const ACCESS: &str = ".access";

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
        let is_known = text == ACCESS || reserved.receipts_end().is_some();
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
            BROADCASTS => bytes_max.min(broadcast::VERSION_BYTES_MAX),
            ACCESS => access::GRANT_BYTES_MAX,
            _ => bytes_max,
        }
    }

    /// The maximum number of keys of this feed, including deleted ones, if the server allows
    /// `keys_max`.
    pub fn keys_max(&self, keys_max: u64) -> u64 {
        match self.as_str() {
            BROADCASTS => keys_max.min(broadcast::BROADCASTS_MAX),
            ACCESS => access::ACCESS_TOKENS_MAX,
            _ => keys_max,
        }
    }

    /// Whether this feed may have the key. A broadcast cannot have the id that `hello` uses for
    /// errors.
    pub fn may_have(&self, key: &FeedKey) -> bool {
        *self != Self::broadcasts() || key.as_str() != broadcast::RESERVED_ID
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

impl FeedSyncId {
    /// The cursor of a consumer that has seen no update.
    pub const NONE: Self = Self(0);

    /// Whether it is [`FeedSyncId::NONE`].
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// The number that is `steps` greater.
    pub fn plus(self, steps: usize) -> Self {
        Self(self.0 + steps as u64)
    }
}

impl Version {
    /// The version after one more change.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
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

impl fmt::Display for FeedSyncId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The JSON of a key's content: `"value": "…"`, or `"deleted": true`.
mod value_or_deleted {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::FeedValue;

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Content<V> {
        Value(V),
        Deleted(bool),
    }

    pub(super) fn serialize<S: Serializer>(
        value: &Option<FeedValue>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().map_or(Content::Deleted(true), Content::Value).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<FeedValue>, D::Error> {
        Ok(match Content::deserialize(deserializer)? {
            Content::Value(value) => Some(value),
            Content::Deleted(_) => None,
        })
    }
}

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
    fn a_page_has_the_json_that_readers_of_a_feed_get() {
        let update = |number, value: Option<&str>| Update {
            feed_sync_id: FeedSyncId(number),
            key: FeedKey::parse("a/b").unwrap(),
            version: Version(2),
            value: value.map(|value| FeedValue::parse(value).unwrap()),
        };
        let updates = vec![update(3, Some("x\ny")), update(5, None)];
        let page =
            FeedPage { updates, cursor: FeedSyncId(5), head: FeedSyncId(9), ..FeedPage::default() };
        let json = serde_json::to_string(&page).unwrap();
        let first = r#"{"feed_sync_id":3,"key":"a/b","version":2,"value":"x\ny"}"#;
        let second = r#"{"feed_sync_id":5,"key":"a/b","version":2,"deleted":true}"#;
        assert_eq!(json, format!(r#"{{"updates":[{first},{second}],"cursor":5,"head":9}}"#));
        assert_eq!(serde_json::from_str::<FeedPage>(&json).unwrap(), page);
        assert!(serde_json::from_str::<FeedKey>(r#""a\nb""#).is_err());
    }

    #[test]
    fn a_page_is_too_late_for_a_cursor_below_the_horizon_and_never_for_none() {
        let page = FeedPage { horizon: FeedSyncId(5), ..FeedPage::default() };
        let late = [0, 1, 4, 5, 6].map(|after| page.is_too_late(FeedSyncId(after)));
        assert_eq!(late, [false, true, true, false, false]);
        assert!(serde_json::to_string(&page).unwrap().ends_with(r#""horizon":5}"#));
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

    #[test]
    fn a_page_that_is_cut_short_ends_at_its_last_update() {
        let update = |number| Update {
            feed_sync_id: FeedSyncId(number),
            key: FeedKey::parse("a").unwrap(),
            version: Version(2),
            value: None,
        };
        let page = |updates: &[u64], cursor| FeedPage {
            updates: updates.iter().copied().map(update).collect(),
            cursor: FeedSyncId(cursor),
            head: FeedSyncId(9),
            ..FeedPage::default()
        };
        let mut cut = page(&[3, 5], 9);
        assert!(cut.is_last());
        cut.truncate(2);
        assert_eq!(cut, page(&[3, 5], 9), "the keys of the numbers after 5 changed again");
        cut.truncate(1);
        assert_eq!(cut, page(&[3], 3));
        assert!(!cut.is_last());
    }
}
