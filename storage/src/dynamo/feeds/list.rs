//! Lists the feeds by name.

use std::collections::BTreeMap;

use super::super::attributes::text_of;
use super::super::client::DynamoClient;
use super::super::error::{CallError, Item};
use super::preflight::PREFLIGHT_FEED;
use super::rows::{self, NAME};
use crate::feeds::{FeedName, FeedState, Sequence};

/// Requests of one list, of 1 MB of sequences each: about half a million feeds.
const PAGES_MAX: u32 = 64;

/// The first feeds after `after`, by name. DynamoDB has no order of partition keys: the scan reads
/// all, and keeps `limit`.
pub(super) async fn list(
    client: &DynamoClient,
    after: Option<&FeedName>,
    limit: usize,
) -> Result<Vec<FeedState>, CallError> {
    let table = &client.names.sequences;
    let mut first = BTreeMap::new();
    let mut start = None;
    for _page in 0..PAGES_MAX {
        let (items, next) = match client.scan(table, None, start, None).await {
            Err(error) if error.is_table_missing() => return Ok(Vec::new()),
            page => page?,
        };
        for (name, sequence) in items.iter().filter_map(|item| decode(client, item)) {
            if after.is_none_or(|after| *after < name) {
                first.insert(name, sequence);
            }
            if first.len() > limit {
                first.pop_last();
            }
        }
        start = match next {
            Some(next) => Some(next),
            None => return Ok(first.into_iter().map(state).collect()),
        };
    }
    let what = "there are more feeds than can be listed";
    Err(CallError::unreadable("Scan", table, what))
}

fn state((name, sequence): (FeedName, Sequence)) -> FeedState {
    FeedState { name, sequence }
}

fn decode(client: &DynamoClient, item: &Item) -> Option<(FeedName, Sequence)> {
    let name = text_of(item, NAME);
    let feed = name.and_then(|name| FeedName::parse(name).ok());
    let found = feed.zip(rows::decode_sequence(item));
    if found.is_none() && name != Some(PREFLIGHT_FEED) {
        client.count_unreadable();
    }
    found.map(|(name, row)| (name, row.sequence))
}
