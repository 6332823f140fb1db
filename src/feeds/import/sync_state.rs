//! What the feed has, what was written to it, and so what is still to be written.

use std::collections::BTreeMap;

use state_machine::broadcast::Broadcasts;
use state_machine::feed::{FeedKey, FeedPage, FeedSyncId, FeedValue};

/// What is known of the feed.
#[derive(Debug, Default)]
pub struct SyncState {
    published: Broadcasts,
    /// Written by us and not seen published yet.
    waiting: BTreeMap<FeedKey, FeedValue>,
}

impl SyncState {
    /// How far the feed was read.
    pub fn cursor(&self) -> FeedSyncId {
        self.published.cursor()
    }

    /// Takes in what a page of the feed brings. A key that has a number again has nothing of ours waiting any more: a
    /// write takes the number away.
    pub fn apply(&mut self, page: FeedPage) {
        for update in &page.updates {
            self.waiting.remove(&update.key);
        }
        self.published.apply(page);
    }

    /// What of these the feed does not have and will not have soon.
    pub fn due(&self, versions: &BTreeMap<FeedKey, FeedValue>) -> Vec<(FeedKey, FeedValue)> {
        let is_due = |(id, version): &(&FeedKey, &FeedValue)| {
            let known = self.waiting.get(id.as_str()).or(self.published.version(id.as_str()));
            known != Some(version)
        };
        let due = versions.iter().filter(is_due);
        due.map(|(id, version)| (id.clone(), version.clone())).collect()
    }

    /// It was written.
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
        FeedPage { updates: vec![update], cursor: feed_sync_id, head: feed_sync_id }
    }

    fn due(sync_state: &SyncState, versions: &[(&str, &str)]) -> Vec<String> {
        let versions = versions.iter().map(|(id, version)| (key(id), value(version))).collect();
        sync_state.due(&versions).iter().map(|(id, version)| format!("{id}={version}")).collect()
    }

    #[test]
    fn only_what_differs_is_due_and_nothing_that_is_missing() {
        let mut sync_state = SyncState::default();
        assert_eq!(due(&sync_state, &[("a", "1"), ("b", "1")]), ["a=1", "b=1"]);
        sync_state.apply(page(1, "a", Some("1")));
        sync_state.apply(page(2, "c", Some("1")));
        assert_eq!(due(&sync_state, &[("a", "1"), ("b", "1")]), ["b=1"]);
        assert_eq!(due(&sync_state, &[("a", "2")]), ["a=2"]);
    }

    #[test]
    fn what_was_written_is_not_due_again_while_it_waits_to_be_published() {
        let mut sync_state = SyncState::default();
        sync_state.apply(page(1, "a", Some("1")));
        sync_state.wrote(key("a"), value("2"));
        assert_eq!(due(&sync_state, &[("a", "2")]), [""; 0]);
        assert_eq!(due(&sync_state, &[("a", "3")]), ["a=3"]);
        sync_state.apply(page(2, "a", Some("2")));
        assert_eq!(due(&sync_state, &[("a", "2")]), [""; 0]);
    }

    #[test]
    fn what_somebody_else_changed_or_deleted_since_is_due_again() {
        let mut sync_state = SyncState::default();
        sync_state.wrote(key("a"), value("2"));
        sync_state.apply(page(2, "a", Some("9")));
        assert_eq!(due(&sync_state, &[("a", "2")]), ["a=2"]);
        sync_state.wrote(key("a"), value("2"));
        sync_state.apply(page(3, "a", None));
        assert_eq!(due(&sync_state, &[("a", "2")]), ["a=2"]);
    }
}
