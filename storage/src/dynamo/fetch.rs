//! Fetching a page of messages.

use state_machine::{Message, Month, Time, Uaid};

use super::channels::CHANNELS_KEY;
use super::client::DynamoClient;
use super::error::{CallError, Item};
use super::month_table::with_table;
use super::query::{RowPage, rows_after};
use super::rows;
use crate::store::{Cursor, Page, PageLimit};

/// Rows in one request, whatever the limit of the page.
const ROWS_MAX: usize = 1000;
/// Requests of one fetch, expired rows included: bounds its cost.
const QUERIES_MAX: u32 = 10;

/// The messages after a cursor. Pages are in the order of the sort keys, topics first; the messages
/// of a page are in the order of their age.
pub(super) async fn fetch(
    client: &DynamoClient,
    uaid: Uaid,
    month: Month,
    after: Option<&Cursor>,
    limit: PageLimit,
    now: Time,
) -> Result<Page, CallError> {
    let rows = limit.rows.clamp(1, ROWS_MAX) as i32;
    let mut after = after.map_or(CHANNELS_KEY, Cursor::as_str).to_owned();
    for _query in 0..QUERIES_MAX {
        let row_page = with_table(client, month, async |table| {
            rows_after(client, uaid, &table, &after, rows, Some(now)).await
        });
        let row_page = row_page.await?.unwrap_or_default();
        let page = page(client, row_page, limit, now);
        match page.next {
            Some(next) if page.messages.is_empty() => after = next.as_str().to_owned(),
            _ => return Ok(page),
        }
    }
    Ok(Page { messages: Vec::new(), next: Some(Cursor::new(after)) })
}

fn page(client: &DynamoClient, row_page: RowPage, limit: PageLimit, now: Time) -> Page {
    let mut messages: Vec<Message> = Vec::new();
    let mut bytes = 0;
    let mut last = None;
    let mut next = row_page.next;
    for item in &row_page.items {
        if !messages.is_empty() && bytes >= limit.bytes {
            next = last;
            break;
        }
        if let Some(message) = live(client, item, now) {
            bytes += message.payload.as_ref().map_or(0, |payload| payload.data.len());
            messages.push(message);
        }
        last = Some(rows::sort_key_of(item).to_owned());
    }
    messages.sort_by_key(age);
    Page { messages, next: next.map(Cursor::new) }
}

/// Rows of other software are the oldest: they were stored before the migration, and their ids are
/// random.
fn age(message: &Message) -> impl Ord + use<> {
    let is_ours = rows::is_our_id(message.id);
    (is_ours, if is_ours { Time(0) } else { message.accepted_at }, message.id)
}

fn live(client: &DynamoClient, item: &Item, now: Time) -> Option<Message> {
    let message = rows::decode(item);
    if message.is_none() {
        client.count_unreadable();
    }
    message.filter(|message| message.expires_at() > now)
}
