//! Fetching what was published, by number.

use super::super::attributes::{text, text_of};
use super::super::error::{CallError, Item};
use super::super::link::Link;
use super::rows::{self, ITEM};
use crate::contract::PageLimit;
use crate::feeds::{FeedName, FeedPage, FeedSyncId, FeedValue};

/// Updates that one page has, however many are asked for.
const ROWS_MAX: usize = 1000;
/// Requests that one fetch makes, however many of the rows make no sense.
const QUERIES_MAX: u32 = 10;

/// The updates behind `after`. None where there is no such feed.
///
/// The sequence is read first: what is numbered meanwhile may be seen in part, and is left to the next page.
pub(super) async fn fetch(
    link: &Link,
    feed: &FeedName,
    after: FeedSyncId,
    limit: PageLimit,
) -> Result<Option<FeedPage>, CallError> {
    let Some(row) = rows::sequence(link, feed).await? else { return Ok(None) };
    let page = FeedPage { updates: Vec::new(), cursor: after, head: row.settled };
    if after >= page.head {
        return Ok(Some(page));
    }
    read(link, feed, page, limit).await.map(Some)
}

async fn read(
    link: &Link,
    feed: &FeedName,
    mut page: FeedPage,
    limit: PageLimit,
) -> Result<FeedPage, CallError> {
    let after = page.cursor;
    let limit = PageLimit { rows: limit.rows.clamp(1, ROWS_MAX), ..limit };
    let mut start = None;
    for _query in 0..QUERIES_MAX {
        // One more tells whether the page is the last.
        let (items, next) = query(link, feed, after, page.head, start, limit.rows + 1).await?;
        let is_all = take_in(link, &mut page, &items, limit);
        if is_all && next.is_none() {
            return Ok(FeedPage { cursor: page.head, ..page });
        }
        if !page.updates.is_empty() {
            return Ok(page);
        }
        start = next;
    }
    let what = "nothing but rows that make no sense are where updates should be: remove them";
    let unreadable = CallError::unreadable("Query", link.names.feeds(), what);
    if page.cursor > after { Ok(page) } else { Err(unreadable) }
}

/// Adds what the page has room for. Answers whether that is all.
fn take_in(link: &Link, page: &mut FeedPage, items: &[Item], limit: PageLimit) -> bool {
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
            None => link.count_unreadable(),
        }
        let number = text_of(item, ITEM).and_then(rows::number_at);
        page.cursor = number.unwrap_or(page.cursor);
    }
    true
}

fn bytes_of(value: &FeedValue) -> usize {
    value.as_str().len()
}

/// Rows with numbers above `after` and up to `head`.
async fn query(
    link: &Link,
    feed: &FeedName,
    after: FeedSyncId,
    head: FeedSyncId,
    start: Option<Item>,
    limit: usize,
) -> Result<(Vec<Item>, Option<Item>), CallError> {
    let table = link.names.feeds();
    let request = link
        .client
        .query()
        .table_name(table)
        .key_condition_expression("feed = :feed AND #item BETWEEN :first AND :last")
        .expression_attribute_names("#item", ITEM)
        .expression_attribute_values(":feed", text(feed.as_str()))
        .expression_attribute_values(":first", text(rows::numbered_item(after.plus(1))))
        .expression_attribute_values(":last", text(rows::numbered_item(head)))
        .consistent_read(true)
        .set_exclusive_start_key(start)
        .limit(limit as i32);
    let page = link.call("Query", table, request.send()).await?;
    Ok((page.items.unwrap_or_default(), page.last_evaluated_key))
}
