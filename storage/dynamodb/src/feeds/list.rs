//! The list of feeds, and the mark of one.

use std::collections::BTreeMap;

use storage::feeds::{FeedMark, FeedName, FeedState, Sequence};

use super::feed_items::{self, MARK, MARKED_AT, NAME, PREFLIGHT_FEED};
use crate::attributes::{number, text_of};
use crate::client::DynamoClient;
use crate::error::{CallError, Item, applied, if_table};

/// Requests of one list, of 1 MB of sequences each: about eight million feeds and receipt subscriptions.
const PAGES_MAX: u32 = 1024;

/// The first feeds after `after`, by name. DynamoDB has no order of partition keys: the scan reads
/// all, and keeps `limit`.
pub(crate) async fn list(
    client: &DynamoClient,
    after: Option<&FeedName>,
    limit: usize,
) -> Result<Vec<FeedState>, CallError> {
    let table = &client.names.sequences;
    let mut first = BTreeMap::new();
    let mut start = None;
    for _page in 0..PAGES_MAX {
        let page = if_table(client.scan(table, None, start, None).await)?;
        let (items, next) = page.unwrap_or_default();
        for (name, sequence) in items.iter().filter_map(|item| decode(client, item)) {
            let is_listed = name.receipts_end().is_none();
            if is_listed && after.is_none_or(|after| *after < name) {
                first.insert(name, sequence);
            }
            if first.len() > limit {
                first.pop_last();
            }
        }
        start = match next {
            Some(next) => Some(next),
            None => {
                let state = |(name, sequence)| FeedState { name, sequence };
                return Ok(first.into_iter().map(state).collect());
            }
        };
    }
    let what = "there are more feeds than can be listed";
    Err(CallError::unreadable("Scan", table, what))
}

fn decode(client: &DynamoClient, item: &Item) -> Option<(FeedName, Sequence)> {
    let name = text_of(item, NAME);
    let feed = name.and_then(|name| FeedName::from_store(name).ok());
    let found = feed.zip(feed_items::decode_sequence(item));
    if found.is_none() && name != Some(PREFLIGHT_FEED) {
        client.count_unreadable();
    }
    found.map(|(name, row)| (name, row.sequence))
}

/// Replaces the mark of a feed that exists.
pub(crate) async fn mark(
    client: &DynamoClient,
    feed: &FeedName,
    mark: FeedMark,
) -> Result<(), CallError> {
    let table = &client.names.sequences;
    let request = feed_items::update_sequence(client, feed)
        .update_expression("SET #mark = :mark, #at = :at")
        .condition_expression("attribute_exists(#name)")
        .expression_attribute_names("#mark", MARK)
        .expression_attribute_names("#at", MARKED_AT)
        .expression_attribute_names("#name", NAME)
        .expression_attribute_values(":mark", number(mark.number.0))
        .expression_attribute_values(":at", number(mark.at.0));
    applied(client.call("UpdateItem", table, request.send()).await).map(drop)
}
