//! What the feed has, what was written to it, and so what is still to be written.

use std::collections::BTreeMap;

use state_machine::broadcast::Broadcasts;
use state_machine::feed::{FeedKey, FeedPage, FeedSyncId, FeedValue};

/// What is known of the feed.
#[derive(Debug, Default)]
pub struct Ledger {
    published: Broadcasts,
    /// Written by us and not seen published yet.
    waiting: BTreeMap<FeedKey, FeedValue>,
}

impl Ledger {
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

    fn due(ledger: &Ledger, versions: &[(&str, &str)]) -> Vec<String> {
        let versions = versions.iter().map(|(id, version)| (key(id), value(version))).collect();
        ledger.due(&versions).iter().map(|(id, version)| format!("{id}={version}")).collect()
    }

    #[test]
    fn only_what_differs_is_due_and_nothing_that_is_missing() {
        let mut ledger = Ledger::default();
        assert_eq!(due(&ledger, &[("a", "1"), ("b", "1")]), ["a=1", "b=1"]);
        ledger.apply(page(1, "a", Some("1")));
        ledger.apply(page(2, "c", Some("1")));
        assert_eq!(due(&ledger, &[("a", "1"), ("b", "1")]), ["b=1"]);
        assert_eq!(due(&ledger, &[("a", "2")]), ["a=2"]);
    }

    #[test]
    fn what_was_written_is_not_due_again_while_it_waits_to_be_published() {
        let mut ledger = Ledger::default();
        ledger.apply(page(1, "a", Some("1")));
        ledger.wrote(key("a"), value("2"));
        assert_eq!(due(&ledger, &[("a", "2")]), [""; 0]);
        assert_eq!(due(&ledger, &[("a", "3")]), ["a=3"]);
        ledger.apply(page(2, "a", Some("2")));
        assert_eq!(due(&ledger, &[("a", "2")]), [""; 0]);
    }

    #[test]
    fn what_somebody_else_changed_or_deleted_since_is_due_again() {
        let mut ledger = Ledger::default();
        ledger.wrote(key("a"), value("2"));
        ledger.apply(page(2, "a", Some("9")));
        assert_eq!(due(&ledger, &[("a", "2")]), ["a=2"]);
        ledger.wrote(key("a"), value("2"));
        ledger.apply(page(3, "a", None));
        assert_eq!(due(&ledger, &[("a", "2")]), ["a=2"]);
    }
}
