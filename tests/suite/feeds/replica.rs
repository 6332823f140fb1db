//! A consumer's replica of a feed, and its cursor.

use std::collections::BTreeMap;

use super::{FeedClient, Page, Update};

/// A consumer's replica. A clone stands for the state that survives a crash.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Replica {
    /// By key: number, version and value.
    pub(super) rows: BTreeMap<String, (u64, u64, Option<String>)>,
    pub(super) cursor: u64,
}

impl Replica {
    /// Reads the whole feed.
    pub(super) async fn of(client: &FeedClient) -> Self {
        let mut copy = Self::default();
        while !copy.take(client.page(&format!("after={}", copy.cursor)).await) {}
        copy
    }

    /// Applies a page, and returns whether it was the last one.
    pub(super) fn take(&mut self, page: Page) -> bool {
        for update in page.updates {
            self.update(update);
        }
        assert!(self.cursor <= page.cursor && page.cursor <= page.head);
        self.cursor = page.cursor;
        page.cursor == page.head
    }

    pub(super) fn update(&mut self, update: Update) {
        let Update { feed_sync_id, key, version, value, deleted } = update;
        assert!(self.cursor < feed_sync_id, "{feed_sync_id} after {}", self.cursor);
        assert_eq!(value.is_none(), deleted, "{key}");
        self.cursor = feed_sync_id;
        let before = self.rows.insert(key.clone(), (feed_sync_id, version, value));
        assert!(before.is_none_or(|before| before.1 < version), "{key} went back to {version}");
    }

    /// The value of a key.
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        self.rows.get(key)?.2.as_deref()
    }
}
