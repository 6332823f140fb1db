//! Broadcasts: what many user agents want to know the last version of.
//!
//! They are the feed [`FeedName::broadcasts`](crate::feed::FeedName::broadcasts): its keys are their ids, its values
//! their versions. Every connection node follows it and has all of them in memory, as a [`Broadcasts`].

use std::collections::BTreeMap;

use crate::feed::{FeedKey, FeedPage, FeedSyncId, FeedValue};

/// All broadcasts, as far as a node has followed the feed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Broadcasts {
    cursor: FeedSyncId,
    versions: BTreeMap<FeedKey, (FeedValue, FeedSyncId)>,
}

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

    /// All of them, by id.
    pub fn iter(&self) -> impl Iterator<Item = (&FeedKey, &FeedValue)> {
        self.versions.iter().map(|(id, (version, _))| (id, version))
    }
}
