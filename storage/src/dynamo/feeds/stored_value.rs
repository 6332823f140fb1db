//! What a key holds.

use super::super::client::DynamoClient;
use super::super::error::CallError;
use super::rows::{self, KeyRow};
use crate::feeds::{FeedKey, FeedName, FeedValue};

/// The value of a key whose row was read.
pub(super) async fn read(
    client: &DynamoClient,
    feed: &FeedName,
    key: &FeedKey,
    row: KeyRow,
) -> Result<StoredValue, CallError> {
    let item = match row.number {
        Some(number) => rows::numbered_item(number),
        None => rows::pending_item(key),
    };
    let item = rows::get(client, client.names.feeds(), rows::row_key(feed, &item)).await?;
    let found = item.as_ref().and_then(rows::decode_value);
    Ok(match found.filter(|(version, _)| *version == row.version) {
        Some((_, value)) => StoredValue::Value(value),
        None => StoredValue::Changed,
    })
}

/// What was found.
pub(super) enum StoredValue {
    /// What the key holds; nothing where it was deleted.
    Value(Option<FeedValue>),
    /// It was changed meanwhile.
    Changed,
}
