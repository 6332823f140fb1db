//! Reads the messages of a user agent by page.

use state_machine::{Message, Time};
use storage::store::{Cursor, Page, PageLimit};

use crate::acked_rows::without_acked;
use crate::client::DynamoClient;
use crate::error::{CallError, Item};
use crate::message_items::{self, WAITING_KEY};
use crate::month_rows::{ItemPage, MonthRows};

/// Rows in one request, whatever the limit of the page.
const ROWS_MAX: usize = 1000;
/// Requests of one fetch, expired rows included: bounds its cost.
const QUERIES_MAX: u32 = 10;

/// The messages after a cursor. Pages are in the order of the sort keys, topics first; the messages
/// of a page are in the order of their age.
pub(crate) async fn fetch(
    rows: &MonthRows<'_>,
    after: Option<&Cursor>,
    limit: PageLimit,
    now: Time,
) -> Result<Page, CallError> {
    let rows_max = limit.rows.clamp(1, ROWS_MAX) as i32;
    let mut after = after.map_or(WAITING_KEY, Cursor::as_str).to_owned();
    for _query in 0..QUERIES_MAX {
        let items = rows.with_table(async || {
            without_acked(rows, rows.after(&after, rows_max, Some(now)).await?).await
        });
        let page = page(rows.client, items.await?.unwrap_or_default(), limit, now);
        match page.next {
            Some(next) if page.messages.is_empty() => after = next.as_str().to_owned(),
            _ => return Ok(page),
        }
    }
    Ok(Page { messages: Vec::new(), next: Some(Cursor::new(after)) })
}

fn page(client: &DynamoClient, page: ItemPage, limit: PageLimit, now: Time) -> Page {
    let mut messages: Vec<Message> = Vec::new();
    let mut bytes = 0;
    let mut last = None;
    let mut next = page.next;
    for item in &page.items {
        if limit.is_reached(messages.len(), bytes) {
            next = last;
            break;
        }
        if let Some(message) = live(client, item, now) {
            bytes += message.payload.as_ref().map_or(0, |payload| payload.data.len());
            messages.push(message);
        }
        last = Some(message_items::sort_key_of(item).to_owned());
    }
    messages.sort_by_key(age);
    Page { messages, next: next.map(Cursor::new) }
}

/// Rows of other software are the oldest: they were stored before the migration, and their ids are
/// random.
fn age(message: &Message) -> impl Ord + use<> {
    let is_ours = message_items::is_our_id(message.id);
    (is_ours, if is_ours { Time(0) } else { message.accepted_at }, message.id)
}

fn live(client: &DynamoClient, item: &Item, now: Time) -> Option<Message> {
    let message = message_items::decode(item);
    if message.is_none() {
        client.count_unreadable();
    }
    message.filter(|message| message.expires_at() > now)
}
