//! How updates are written: the same in pages and in events.

use serde::Serialize;
use state_machine::feed::{FeedPage, Update};

/// A page.
#[derive(Serialize)]
pub(super) struct ShownPage<'a> {
    updates: Vec<ShownUpdate<'a>>,
    cursor: u64,
    head: u64,
}

/// An update.
#[derive(Serialize)]
pub(super) struct ShownUpdate<'a> {
    feed_sync_id: u64,
    key: &'a str,
    version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted: Option<bool>,
}

impl<'a> From<&'a FeedPage> for ShownPage<'a> {
    fn from(page: &'a FeedPage) -> Self {
        let updates = page.updates.iter().map(ShownUpdate::from).collect();
        Self { updates, cursor: page.cursor.0, head: page.head.0 }
    }
}

impl<'a> From<&'a Update> for ShownUpdate<'a> {
    fn from(update: &'a Update) -> Self {
        Self {
            feed_sync_id: update.feed_sync_id.0,
            key: update.key.as_str(),
            version: update.version.0,
            value: update.value.as_ref().map(|value| value.as_str()),
            deleted: update.value.is_none().then_some(true),
        }
    }
}
