//! Fetches published updates by number, and lists the feeds by name.

use std::collections::BTreeMap;

use super::super::attributes::text_of;
use super::super::client::DynamoClient;
use super::super::error::{CallError, Item, if_table};
use super::preflight::PREFLIGHT_FEED;
use super::rows::{self, ITEM, NAME};
use crate::feeds::{FeedName, FeedPage, FeedState, FeedSyncId, FeedValue, Sequence};
use crate::store::PageLimit;

/// Updates in one page, whatever its limit.
const ROWS_MAX: usize = 1000;
/// Requests of one fetch, unreadable rows included.
const QUERIES_MAX: u32 = 10;

/// The updates after `after`. None if there is no such feed.
///
/// The sequence is read first: a later publication may be visible in part, and is left to the next
/// page.
pub(super) async fn fetch(
    client: &DynamoClient,
    feed: &FeedName,
    after: FeedSyncId,
    limit: PageLimit,
) -> Result<Option<FeedPage>, CallError> {
    let Some(row) = rows::sequence(client, feed).await? else { return Ok(None) };
    let horizon = row.sequence.horizon;
    let begin = if after.is_none() { horizon } else { after };
    let page = FeedPage { updates: Vec::new(), cursor: begin, head: row.settled, horizon };
    if begin >= page.head || page.is_too_late(after) {
        return Ok(Some(page));
    }
    let page = read(client, feed, page, limit).await?;
    let has_gaps = page.updates.len() as u64 != page.cursor.0 - begin.0;
    if after.is_none() || !has_gaps {
        return Ok(Some(page));
    }
    // Rows may have been removed since the sequence was read. Their removal raised the horizon before.
    let row = rows::sequence(client, feed).await?;
    Ok(row.map(|row| FeedPage { horizon: row.sequence.horizon, ..page }))
}

async fn read(
    client: &DynamoClient,
    feed: &FeedName,
    mut page: FeedPage,
    limit: PageLimit,
) -> Result<FeedPage, CallError> {
    let after = page.cursor;
    let limit = PageLimit { rows: limit.rows.clamp(1, ROWS_MAX), ..limit };
    let condition = "#item BETWEEN :first AND :last";
    let [first, last] = [after.plus(1), page.head].map(rows::numbered_item);
    let values = [(":first", first), (":last", last)];
    let mut start = None;
    for _query in 0..QUERIES_MAX {
        // One row more shows whether the page is the last.
        let (items, next) =
            rows::query(client, feed, condition, &values, start, limit.rows + 1).await?;
        let is_all = take_in(client, &mut page, &items, limit);
        if is_all && next.is_none() {
            return Ok(FeedPage { cursor: page.head, ..page });
        }
        if !page.updates.is_empty() {
            return Ok(page);
        }
        start = next;
    }
    let what = "all rows in place of updates are unreadable: remove them";
    let unreadable = CallError::unreadable("Query", &client.names.feeds, what);
    if page.cursor > after { Ok(page) } else { Err(unreadable) }
}

/// Adds updates up to the limit. Returns whether these are all.
fn take_in(client: &DynamoClient, page: &mut FeedPage, items: &[Item], limit: PageLimit) -> bool {
    let mut bytes = 0;
    for item in items {
        let is_full = page.updates.len() >= limit.rows || bytes >= limit.bytes;
        if !page.updates.is_empty() && is_full {
            return false;
        }
        let update = rows::decode_numbered(item);
        match update {
            Some(update) => {
                bytes += update.value.as_ref().map_or(0, bytes_of);
                page.updates.push(update);
            }
            None => client.count_unreadable(),
        }
        let number = text_of(item, ITEM).and_then(rows::number_at);
        page.cursor = number.unwrap_or(page.cursor);
    }
    true
}

fn bytes_of(value: &FeedValue) -> usize {
    value.as_str().len()
}

/// Requests of one list, of 1 MB of sequences each: about eight million feeds and receipt subscriptions.
const PAGES_MAX: u32 = 1024;

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
    let found = feed.zip(rows::decode_sequence(item));
    if found.is_none() && name != Some(PREFLIGHT_FEED) {
        client.count_unreadable();
    }
    found.map(|(name, row)| (name, row.sequence))
}
