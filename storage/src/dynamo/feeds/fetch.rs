//! Fetches published updates by number.

use super::super::attributes::text_of;
use super::super::client::DynamoClient;
use super::super::error::{CallError, Item};
use super::rows::{self, ITEM};
use crate::feeds::{FeedName, FeedPage, FeedSyncId, FeedValue};
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
    let page = FeedPage { updates: Vec::new(), cursor: after, head: row.settled };
    if after >= page.head {
        return Ok(Some(page));
    }
    read(client, feed, page, limit).await.map(Some)
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
    let what = "nothing but rows that make no sense are where updates should be: remove them";
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
