//! What a consumer makes of a feed: a copy of it, and the cursor that goes with it.

use std::collections::BTreeMap;

use super::{Desk, Page, Update};

/// A consumer's copy. It is saved whole: a clone is what survives a crash.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Copy {
    /// By key: number, version, value.
    pub(super) rows: BTreeMap<String, (u64, u64, Option<String>)>,
    pub(super) cursor: u64,
}

impl Copy {
    /// A copy from the beginning.
    pub(super) async fn of(desk: &Desk) -> Self {
        let mut copy = Self::default();
        while !copy.take(desk.page(&format!("after={}", copy.cursor)).await) {}
        copy
    }

    /// Takes a page in; whether it was the last.
    pub(super) fn take(&mut self, page: Page) -> bool {
        for update in page.updates {
            self.update(update);
        }
        assert!(self.cursor <= page.cursor && page.cursor <= page.head);
        self.cursor = page.cursor;
        page.cursor == page.head
    }

    /// Takes an update in.
    pub(super) fn update(&mut self, update: Update) {
        let Update { feed_sync_id, key, version, value, deleted } = update;
        assert!(self.cursor < feed_sync_id, "{feed_sync_id} after {}", self.cursor);
        assert_eq!(value.is_none(), deleted, "{key}");
        self.cursor = feed_sync_id;
        let before = self.rows.insert(key.clone(), (feed_sync_id, version, value));
        assert!(before.is_none_or(|before| before.1 < version), "{key} went back to {version}");
    }

    /// What a key holds.
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        self.rows.get(key)?.2.as_deref()
    }
}
