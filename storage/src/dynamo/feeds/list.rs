//! Which feeds there are.

use std::collections::BTreeMap;

use super::super::attributes::text_of;
use super::super::client::DynamoClient;
use super::super::error::{CallError, Item};
use super::preflight::PREFLIGHT_FEED;
use super::rows::{self, NAME};
use crate::feeds::{FeedName, FeedState, Sequence};

/// Requests that one list makes, of 1 MB of sequences each: some half a million feeds.
const PAGES_MAX: u32 = 64;

/// The first feeds by name behind `after`. DynamoDB has them in no order: all are looked at, and no more kept than asked
/// for.
pub(super) async fn list(
    client: &DynamoClient,
    after: Option<&FeedName>,
    limit: usize,
) -> Result<Vec<FeedState>, CallError> {
    let mut first = BTreeMap::new();
    let mut start = None;
    for _page in 0..PAGES_MAX {
        let (items, next) = match scan(client, start).await {
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
    Err(CallError::unreadable("Scan", client.names.sequences(), what))
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

async fn scan(
    client: &DynamoClient,
    start: Option<Item>,
) -> Result<(Vec<Item>, Option<Item>), CallError> {
    let table = client.names.sequences();
    let request = client.sdk.scan().table_name(table).consistent_read(true);
    let page = client.call("Scan", table, request.set_exclusive_start_key(start).send()).await?;
    Ok((page.items.unwrap_or_default(), page.last_evaluated_key))
}
