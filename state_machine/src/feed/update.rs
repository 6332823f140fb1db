//! Numbered changes of keys, and their pages.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::text::{FeedKey, FeedValue};

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

    use crate::feed::text::FeedValue;

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
