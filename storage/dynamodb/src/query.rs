//! Reads a user agent's rows in the order of their sort keys, and the messages in them by page.

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use state_machine::{Message, Month, Time, Uaid};
use storage::store::{Cursor, Page, PageLimit};

use crate::acked_rows::without_acked;
use crate::attributes::{number, text, text_of};
use crate::client::DynamoClient;
use crate::error::{CallError, Item};
use crate::month_table::with_table;
use crate::rows::{self, EXPIRY_MAX_S, SORT_KEY};
use crate::waiting::WAITING_KEY;

#[derive(Debug, Default)]
pub(crate) struct RowPage {
    pub(crate) items: Vec<Item>,
    /// The sort key after which there may be more rows.
    pub(crate) next: Option<String>,
}

/// At most `rows` rows after a sort key. With `now`, most of the expired ones are left out.
pub(crate) async fn rows_after(
    client: &DynamoClient,
    uaid: Uaid,
    table: &str,
    after: &str,
    rows: i32,
    now: Option<Time>,
) -> Result<RowPage, CallError> {
    let request = of_agent(client, uaid, table)
        .key_condition_expression("uaid = :uaid AND chidmessageid > :after")
        .expression_attribute_values(":after", text(after))
        .limit(rows);
    // `expiry` is rounded up and at most the limit: no live row is left out.
    let request = match now {
        Some(now) => request
            .filter_expression("attribute_not_exists(expiry) OR expiry > :now")
            .expression_attribute_values(":now", number(now.as_secs().min(EXPIRY_MAX_S - 1))),
        None => request,
    };
    send(client, table, request).await
}

/// The sort keys of at most `rows` rows, the channels first.
pub(crate) async fn first_keys(
    client: &DynamoClient,
    uaid: Uaid,
    table: &str,
    rows: i32,
) -> Result<Vec<String>, CallError> {
    let request = of_agent(client, uaid, table)
        .projection_expression("uaid, chidmessageid")
        .key_condition_expression("uaid = :uaid")
        .limit(rows);
    let row_page = send(client, table, request).await?;
    Ok(row_page.items.iter().map(|item| rows::sort_key_of(item).to_owned()).collect())
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RowFilter {
    /// Rows whose sort key has the prefix.
    Prefix(String),
    /// All rows of messages.
    Messages,
}

/// Passes rows, with only their sort keys and `updateid`s, to `is_done` until it returns true, in
/// at most `pages_max` requests of 1 MB of rows each.
pub(crate) async fn look_through(
    client: &DynamoClient,
    uaid: Uaid,
    table: &str,
    filter: &RowFilter,
    pages_max: u32,
    mut is_done: impl FnMut(&Item) -> bool,
) -> Result<(), CallError> {
    let mut start = None;
    for _page in 0..pages_max {
        let request = of_agent(client, uaid, table)
            .projection_expression("uaid, chidmessageid, updateid")
            .set_exclusive_start_key(start);
        let row_page = send(client, table, only(request, filter)).await?;
        let done = row_page.items.iter().any(&mut is_done);
        let Some(next) = row_page.next.filter(|_| !done) else { break };
        let key = [("uaid", uaid.to_string()), (SORT_KEY, next)];
        start = Some(key.map(|(name, value)| (name.to_owned(), text(value))).into());
    }
    Ok(())
}

fn only(request: QueryFluentBuilder, filter: &RowFilter) -> QueryFluentBuilder {
    match filter {
        RowFilter::Prefix(prefix) => request
            .key_condition_expression("uaid = :uaid AND begins_with(chidmessageid, :prefix)")
            .expression_attribute_values(":prefix", text(prefix)),
        RowFilter::Messages => request
            .key_condition_expression("uaid = :uaid AND chidmessageid > :channels")
            .expression_attribute_values(":channels", text(WAITING_KEY)),
    }
}

fn of_agent(client: &DynamoClient, uaid: Uaid, table: &str) -> QueryFluentBuilder {
    client
        .sdk
        .query()
        .table_name(table)
        .expression_attribute_values(":uaid", text(uaid.to_string()))
        .consistent_read(true)
}

async fn send(
    client: &DynamoClient,
    table: &str,
    request: QueryFluentBuilder,
) -> Result<RowPage, CallError> {
    let read = client.call("Query", table, request.send()).await?;
    let next = read.last_evaluated_key.as_ref();
    Ok(RowPage {
        next: next.and_then(|key| text_of(key, SORT_KEY)).map(str::to_owned),
        items: read.items.unwrap_or_default(),
    })
}

/// Rows in one request, whatever the limit of the page.
const ROWS_MAX: usize = 1000;
/// Requests of one fetch, expired rows included: bounds its cost.
const QUERIES_MAX: u32 = 10;

/// The messages after a cursor. Pages are in the order of the sort keys, topics first; the messages
/// of a page are in the order of their age.
pub(crate) async fn fetch(
    client: &DynamoClient,
    uaid: Uaid,
    month: Month,
    after: Option<&Cursor>,
    limit: PageLimit,
    now: Time,
) -> Result<Page, CallError> {
    let rows = limit.rows.clamp(1, ROWS_MAX) as i32;
    let mut after = after.map_or(WAITING_KEY, Cursor::as_str).to_owned();
    for _query in 0..QUERIES_MAX {
        let row_page = with_table(client, month, async |table| {
            let row_page = rows_after(client, uaid, &table, &after, rows, Some(now)).await?;
            without_acked(client, uaid, &table, row_page).await
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
