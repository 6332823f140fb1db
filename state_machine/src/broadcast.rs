//! Broadcasts: what many user agents want to know the last version of.
//!
//! They are the feed [`FeedName::broadcasts`](crate::feed::FeedName::broadcasts): its keys are their ids, its values
//! their versions. Every connection node follows it and has all of them in memory, as a [`Broadcasts`].

use std::collections::BTreeMap;

use crate::feed::{FeedKey, FeedPage, FeedSyncId, FeedValue};

/// Versions of broadcasts, by their ids: those that an agent has, or is told of.
pub type Versions = BTreeMap<FeedKey, FeedValue>;

/// Bytes of a version at most: a version is a date or a hash, and every node has all of them in memory.
pub const VERSION_BYTES_MAX: usize = 1024;

/// Broadcasts at most, those that were deleted too.
pub const BROADCASTS_MAX: u64 = 10_000;

/// All broadcasts, as far as a node has followed the feed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Broadcasts {
    cursor: FeedSyncId,
    versions: BTreeMap<FeedKey, (FeedValue, FeedSyncId)>,
}

/// What a user agent is told of broadcasts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct BroadcastUpdate {
    /// Those that have another version than it knows of.
    pub versions: Versions,
    /// Those it will hear nothing of, for now or for good.
    pub refused: BTreeMap<FeedKey, BroadcastRefusal>,
}

/// Why a broadcast that was asked for is not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BroadcastRefusal {
    /// There is none of this id. It is told as soon as there is.
    NotFound,
    /// The agent has as many as it may have. It is not followed.
    TooMany,
}

/// The id that no broadcast can have: its name stands for what was refused, where versions are told.
pub const RESERVED_ID: &str = "errors";

impl Broadcasts {
    /// These broadcasts, numbered as they come.
    pub fn of(versions: impl IntoIterator<Item = (FeedKey, FeedValue)>) -> Self {
        let mut all = Self::default();
        for (id, version) in versions {
            all.cursor = all.cursor.plus(1);
            all.versions.insert(id, (version, all.cursor));
        }
        all
    }

    /// Takes in what a page of the feed brings.
    pub fn apply(&mut self, page: FeedPage) {
        for update in page.updates {
            match update.value {
                Some(_) if update.key.as_str() == RESERVED_ID => None,
                Some(version) => self.versions.insert(update.key, (version, update.feed_sync_id)),
                None => self.versions.remove(&update.key),
            };
        }
        self.cursor = self.cursor.max(page.cursor);
    }

    /// How far the feed was followed.
    pub fn cursor(&self) -> FeedSyncId {
        self.cursor
    }

    /// The version of a broadcast; none where there is no such broadcast.
    pub fn version(&self, id: &str) -> Option<&FeedValue> {
        self.versions.get(id).map(|(version, _)| version)
    }

    /// The version of a broadcast, if it changed after `told`.
    pub fn changed_since(&self, id: &str, told: FeedSyncId) -> Option<&FeedValue> {
        self.versions.get(id).filter(|(_, changed)| *changed > told).map(|(version, _)| version)
    }

    /// The id as it is kept here, where there is such a broadcast: all who follow it share its text.
    pub(crate) fn shared_id(&self, id: &FeedKey) -> Option<FeedKey> {
        self.versions.get_key_value(id).map(|(id, _)| id.clone())
    }

    /// All of them with the number of their last change, by id.
    pub fn sequenced(&self) -> impl Iterator<Item = (FeedSyncId, &FeedKey, &FeedValue)> {
        self.versions.iter().map(|(id, (version, changed))| (*changed, id, version))
    }

    /// All of them, by id.
    pub fn iter(&self) -> impl Iterator<Item = (&FeedKey, &FeedValue)> {
        self.versions.iter().map(|(id, (version, _))| (id, version))
    }
}

impl BroadcastUpdate {
    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty() && self.refused.is_empty()
    }
}

impl BroadcastRefusal {
    /// What the agent is told.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "Broadcast not found",
            Self::TooMany => "too many broadcasts",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::{Update, Version};

    fn update(number: u64, id: &str, version: Option<&str>) -> Update {
        Update {
            feed_sync_id: FeedSyncId(number),
            key: FeedKey::parse(id).unwrap(),
            version: Version::default(),
            value: version.map(|version| FeedValue::parse(version).unwrap()),
        }
    }

    fn after(updates: Vec<Update>) -> Broadcasts {
        let cursor = updates.last().map(|update| update.feed_sync_id).unwrap_or_default();
        let mut all = Broadcasts::default();
        all.apply(FeedPage { updates, cursor, head: cursor });
        all
    }

    #[test]
    fn the_last_version_is_kept_with_the_number_of_its_change() {
        let all = after(vec![
            update(1, "news", Some("v1")),
            update(2, "weather", Some("sunny")),
            update(3, "news", Some("v2")),
        ]);
        assert_eq!(all.version("news").map(FeedValue::as_str), Some("v2"));
        assert!(all.changed_since("news", FeedSyncId(2)).is_some());
        assert_eq!(all.changed_since("news", FeedSyncId(3)), None);
        assert_eq!(all.changed_since("weather", FeedSyncId(2)), None);
        assert_eq!((all.cursor(), all.iter().count()), (FeedSyncId(3), 2));
        assert_eq!(all.version("sports"), None);
    }

    #[test]
    fn a_broadcast_that_was_deleted_is_none_and_its_number_is_counted() {
        let all = after(vec![update(1, "news", Some("v1")), update(2, "news", None)]);
        assert_eq!(all.version("news"), None);
        assert_eq!(all.cursor(), FeedSyncId(2));
    }

    #[test]
    fn the_id_that_refusals_are_told_under_is_no_broadcast() {
        let all = after(vec![update(1, RESERVED_ID, Some("v1"))]);
        assert_eq!(all.version(RESERVED_ID), None);
        assert_eq!(all.cursor(), FeedSyncId(1));
    }
}
