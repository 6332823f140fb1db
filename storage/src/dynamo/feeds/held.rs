//! What a key holds.

use super::super::error::CallError;
use super::super::link::Link;
use super::rows::{self, KeyRow};
use crate::feeds::{FeedKey, FeedName, FeedValue};

/// The value of a key whose row was read.
pub(super) async fn value(
    link: &Link,
    feed: &FeedName,
    key: &FeedKey,
    row: KeyRow,
) -> Result<Held, CallError> {
    let item = match row.number {
        Some(number) => rows::numbered_item(number),
        None => rows::pending_item(key),
    };
    let item = rows::get(link, link.names.feeds(), rows::place(feed, &item)).await?;
    let found = item.as_ref().and_then(rows::decode_value);
    Ok(match found.filter(|(version, _)| *version == row.version) {
        Some((_, value)) => Held::Value(value),
        None => Held::Changed,
    })
}

/// What was found.
pub(super) enum Held {
    /// What the key holds; nothing where it was deleted.
    Value(Option<FeedValue>),
    /// It was changed meanwhile.
    Changed,
}
