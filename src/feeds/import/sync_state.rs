//! The versions in the feed, those written to it, and so those still to be written.

use std::collections::BTreeMap;

use state_machine::broadcast::Broadcasts;
use state_machine::feed::{FeedKey, FeedPage, FeedSyncId, FeedValue};

#[derive(Debug, Default)]
pub struct SyncState {
    published: Broadcasts,
    /// Written by this importer and not published yet.
    waiting: BTreeMap<FeedKey, FeedValue>,
}

impl SyncState {
    pub fn cursor(&self) -> FeedSyncId {
        self.published.cursor()
    }

    /// Applies a page of the feed. A write takes the number of its key away, so a key with a new number has no write
    /// waiting.
    pub fn apply(&mut self, page: FeedPage) {
        for update in &page.updates {
            self.waiting.remove(&update.key);
        }
        self.published.apply(page);
    }

    /// The versions that the feed neither has nor will have once it is published.
    pub fn due(&self, versions: &BTreeMap<FeedKey, FeedValue>) -> Vec<(FeedKey, FeedValue)> {
        let is_due = |(id, version): &(&FeedKey, &FeedValue)| {
            let known = self.waiting.get(id.as_str()).or(self.published.version(id.as_str()));
            known != Some(version)
        };
        let due = versions.iter().filter(is_due);
        due.map(|(id, version)| (id.clone(), version.clone())).collect()
    }

    pub fn wrote(&mut self, id: FeedKey, version: FeedValue) {
        self.waiting.insert(id, version);
    }
}

#[cfg(test)]
mod tests {
    use state_machine::feed::{Update, Version};

    use super::*;

    fn key(text: &str) -> FeedKey {
        FeedKey::parse(text).unwrap()
    }

    fn value(text: &str) -> FeedValue {
        FeedValue::parse(text).unwrap()
    }

    fn page(number: u64, id: &str, version: Option<&str>) -> FeedPage {
        let feed_sync_id = FeedSyncId(number);
        let value = version.map(value);
        let update = Update { feed_sync_id, key: key(id), version: Version(2), value };
        let updates = vec![update];
        let (cursor, head) = (feed_sync_id, feed_sync_id);
        FeedPage { updates, cursor, head, ..FeedPage::default() }
    }

    fn due(sync_state: &SyncState, versions: &[(&str, &str)]) -> Vec<String> {
        let versions = versions.iter().map(|(id, version)| (key(id), value(version))).collect();
        sync_state.due(&versions).iter().map(|(id, version)| format!("{id}={version}")).collect()
    }

    #[test]
    fn only_versions_that_differ_are_due() {
        let mut sync_state = SyncState::default();
        assert_eq!(due(&sync_state, &[("a", "1"), ("b", "1")]), ["a=1", "b=1"]);
        sync_state.apply(page(1, "a", Some("1")));
        sync_state.apply(page(2, "c", Some("1")));
        assert_eq!(due(&sync_state, &[("a", "1"), ("b", "1")]), ["b=1"]);
        assert_eq!(due(&sync_state, &[("a", "2")]), ["a=2"]);
    }

    #[test]
    fn a_written_version_is_not_due_while_it_waits_to_be_published() {
        let mut sync_state = SyncState::default();
        sync_state.apply(page(1, "a", Some("1")));
        sync_state.wrote(key("a"), value("2"));
        assert_eq!(due(&sync_state, &[("a", "2")]), [""; 0]);
        assert_eq!(due(&sync_state, &[("a", "3")]), ["a=3"]);
        sync_state.apply(page(2, "a", Some("2")));
        assert_eq!(due(&sync_state, &[("a", "2")]), [""; 0]);
    }

    #[test]
    fn a_version_that_another_writer_changed_or_deleted_is_due_again() {
        let mut sync_state = SyncState::default();
        sync_state.wrote(key("a"), value("2"));
        sync_state.apply(page(2, "a", Some("9")));
        assert_eq!(due(&sync_state, &[("a", "2")]), ["a=2"]);
        sync_state.wrote(key("a"), value("2"));
        sync_state.apply(page(3, "a", None));
        assert_eq!(due(&sync_state, &[("a", "2")]), ["a=2"]);
    }
}
