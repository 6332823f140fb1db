//! Broadcasts: values of which many user agents want the last version.
//!
//! They are the feed [`FeedName::broadcasts`](crate::feed::FeedName::broadcasts): its keys are the
//! broadcasts' ids, its values their versions. Every connection node consumes it and has all of
//! them in memory, as a [`Broadcasts`].

use std::collections::BTreeMap;

pub use crate::feed::reserved::{BROADCASTS_MAX, RESERVED_ID, VERSION_BYTES_MAX};

use crate::feed::{FeedKey, FeedPage, FeedSyncId, FeedValue};

/// Versions of broadcasts by id, as an agent has them or receives them.
pub type Versions = BTreeMap<FeedKey, FeedValue>;

/// All broadcasts, up to the cursor of this node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Broadcasts {
    cursor: FeedSyncId,
    versions: BTreeMap<FeedKey, (FeedValue, FeedSyncId)>,
}

/// The part of a message to an agent that is about broadcasts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct BroadcastUpdate {
    /// The broadcasts whose version differs from the agent's.
    pub versions: Versions,
    /// The broadcasts that the agent will get no updates of, now or ever.
    pub refused: BTreeMap<FeedKey, BroadcastRefusal>,
}

/// Why an agent gets no updates of a broadcast that it asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BroadcastRefusal {
    /// No broadcast has this id. The agent gets its version once one does.
    NotFound,
    /// The agent has its maximum of subscriptions. This one is dropped.
    TooMany,
}

impl Broadcasts {
    /// These broadcasts, numbered from 1 in their order.
    pub fn of(versions: impl IntoIterator<Item = (FeedKey, FeedValue)>) -> Self {
        let mut all = Self::default();
        for (id, version) in versions {
            all.cursor = all.cursor.plus(1);
            all.versions.insert(id, (version, all.cursor));
        }
        all
    }

    /// Applies the updates of a page of the feed.
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

    /// The number up to which the feed was applied.
    pub fn cursor(&self) -> FeedSyncId {
        self.cursor
    }

    /// The version of a broadcast; none if it does not exist.
    pub fn version(&self, id: &str) -> Option<&FeedValue> {
        self.versions.get(id).map(|(version, _)| version)
    }

    /// The version of a broadcast, if it changed after `seen`.
    pub fn changed_since(&self, id: &str, seen: FeedSyncId) -> Option<&FeedValue> {
        self.versions.get(id).filter(|(_, changed)| *changed > seen).map(|(version, _)| version)
    }

    /// The id as it is stored here, if the broadcast exists. All its subscribers share the text.
    pub(crate) fn shared_id(&self, id: &FeedKey) -> Option<FeedKey> {
        self.versions.get_key_value(id).map(|(id, _)| id.clone())
    }

    /// All broadcasts in the order of their ids, with the number of their last change.
    pub fn sequenced(&self) -> impl Iterator<Item = (FeedSyncId, &FeedKey, &FeedValue)> {
        self.versions.iter().map(|(id, (version, changed))| (*changed, id, version))
    }

    /// All broadcasts in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (&FeedKey, &FeedValue)> {
        self.versions.iter().map(|(id, (version, _))| (id, version))
    }
}

impl BroadcastUpdate {
    /// Whether the update has nothing to send.
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty() && self.refused.is_empty()
    }
}

impl BroadcastRefusal {
    /// The error text that the agent receives.
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
        all.apply(FeedPage { updates, cursor, head: cursor, ..FeedPage::default() });
        all
    }

    #[test]
    fn subscribers_share_the_text_of_an_id() {
        let all = after(vec![update(1, "news", Some("v1"))]);
        let shared = |id| all.shared_id(&FeedKey::parse(id).unwrap());
        let texts = [shared("news"), shared("news")].map(|id| id.unwrap().as_str().as_ptr());
        assert_eq!(texts[0], texts[1]);
        assert_eq!(shared("weather"), None);
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
    fn the_id_of_refusals_is_no_broadcast() {
        let all = after(vec![update(1, RESERVED_ID, Some("v1"))]);
        assert_eq!(all.version(RESERVED_ID), None);
        assert_eq!(all.cursor(), FeedSyncId(1));
    }
}
