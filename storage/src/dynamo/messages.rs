//! Storing and deleting messages.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use futures_util::StreamExt;
use futures_util::stream;
use state_machine::{Message, MessageId, MessageKey, Month, Uaid};

use super::attributes::{UAID, text, text_of};
use super::channels;
use super::client::DynamoClient;
use super::error::{CallError, Item};
use super::month_table::{required, with_table};
use super::query::{RowFilter, look_through};
use super::rows::{self, SORT_KEY, UPDATE_ID};
use crate::store::{StoreError, Stored};

/// What a row may take the place of.
#[derive(Debug)]
pub(super) enum Replaces {
    /// Whatever is there: the sort key is the message's own.
    Itself,
    /// A message of its topic with a lesser id, or one that other software wrote.
    Older(MessageId),
    /// Nothing.
    Nothing,
}

/// Stores a message, if its channel is registered in that month.
pub(super) async fn store(
    client: &DynamoClient,
    uaid: Uaid,
    month: Month,
    message: &Message,
) -> Result<Stored, StoreError> {
    let registered = channels::is_registered(client, uaid, month, message.chid).await;
    if !required(month, registered)? {
        return Ok(Stored::NoSuchChannel);
    }
    let item = rows::encode(uaid, message);
    let replaces = match message.topic {
        Some(_) => Replaces::Older(message.id),
        None => Replaces::Itself,
    };
    let stored =
        with_table(client, month, |table| put(client, table, item.clone(), &replaces)).await;
    required(month, stored).map(|_written| Stored::Done)
}

/// Writes a row, unless there is one that it does not replace. Answers whether it did.
pub(super) async fn put(
    client: &DynamoClient,
    table: String,
    item: Item,
    replaces: &Replaces,
) -> Result<bool, CallError> {
    let request = client.sdk.put_item().table_name(&table).set_item(Some(item));
    let request = match replaces {
        Replaces::Itself => request,
        Replaces::Older(id) => request
            .condition_expression(
                "attribute_not_exists(updateid) OR updateid < :id OR attribute_not_exists(accepted_at)",
            )
            .expression_attribute_values(":id", text(id.to_string())),
        Replaces::Nothing => request.condition_expression("attribute_not_exists(uaid)"),
    };
    match client.call("PutItem", &table, request.send()).await {
        Ok(_stored) => Ok(true),
        Err(error) if error.is_condition_failed() => Ok(error.is_indeterminate()),
        Err(error) => Err(error),
    }
}

/// Deletes messages in each month that has a table. Answers how many there were.
pub(super) async fn delete(
    client: &DynamoClient,
    uaid: Uaid,
    months: &[Month],
    messages: &[MessageKey],
) -> Result<usize, CallError> {
    let deleted = AtomicUsize::new(0);
    for month in months {
        let done =
            with_table(client, *month, |table| delete_in(client, uaid, table, messages, &deleted));
        done.await.map_err(|error| error.after_writes(deleted.load(Relaxed) > 0))?;
    }
    Ok(deleted.load(Relaxed))
}

async fn delete_in(
    client: &DynamoClient,
    uaid: Uaid,
    table: String,
    messages: &[MessageKey],
    deleted: &AtomicUsize,
) -> Result<(), CallError> {
    let (known, sought): (Vec<_>, Vec<_>) =
        messages.iter().partition(|message| is_row_known(message));
    let known = known.into_iter().map(Row::of_ours).collect();
    delete_rows(client, uaid, &table, known, deleted).await?;
    let found = search(client, uaid, &table, &sought).await?;
    delete_rows(client, uaid, &table, found, deleted).await
}

async fn delete_rows(
    client: &DynamoClient,
    uaid: Uaid,
    table: &str,
    rows: Vec<Row>,
    deleted: &AtomicUsize,
) -> Result<(), CallError> {
    let deletes = rows.iter().map(async |row| {
        if delete_row(client, uaid, table, row).await? {
            deleted.fetch_add(1, Relaxed);
        }
        Ok(())
    });
    all(client, deletes.collect()).await
}

/// Runs requests that each write a row, some at the same time, and all of them whatever becomes of one:
/// none is still under way when the call is answered.
pub(super) async fn all<F: Future<Output = Result<(), E>>, E>(
    client: &DynamoClient,
    requests: Vec<F>,
) -> Result<(), E> {
    let at_once = client.options.rows_in_flight_max.max(1);
    let done = stream::iter(requests).buffer_unordered(at_once).collect::<Vec<_>>().await;
    done.into_iter().collect()
}

/// What names a row and the message in it.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) sort_key: String,
    pub(super) update_id: Option<String>,
}

impl Row {
    /// The row of a message of ours: it follows from what names the message.
    fn of_ours(message: &MessageKey) -> Self {
        let MessageKey { id, chid, ref topic } = *message;
        let sort_key = rows::sort_key(id, chid, topic.as_ref());
        Self { sort_key, update_id: Some(id.to_string()) }
    }

    /// The row that an item is.
    pub(super) fn of(item: &Item) -> Self {
        let update_id = text_of(item, UPDATE_ID).map(str::to_owned);
        Self { sort_key: rows::sort_key_of(item).to_owned(), update_id }
    }
}

/// Deletes a row, if it still holds the same message. Answers whether it did.
pub(super) async fn delete_row(
    client: &DynamoClient,
    uaid: Uaid,
    table: &str,
    row: &Row,
) -> Result<bool, CallError> {
    let request = client
        .sdk
        .delete_item()
        .table_name(table)
        .key(UAID, text(uaid.to_string()))
        .key(SORT_KEY, text(&row.sort_key));
    let request = match &row.update_id {
        Some(id) => request
            .condition_expression("updateid = :id")
            .expression_attribute_values(":id", text(id)),
        None => request
            .condition_expression("attribute_exists(uaid) AND attribute_not_exists(updateid)"),
    };
    match client.call("DeleteItem", table, request.send()).await {
        Ok(_deleted) => Ok(true),
        // The first attempt deleted it, and only its answer was lost; or another did meanwhile.
        Err(error) if error.is_condition_failed() => Ok(error.is_indeterminate()),
        Err(error) => Err(error),
    }
}

/// Whether the row follows from what names the message. It does not where other software stored it, and
/// where the topic of ours was forgotten.
fn is_row_known(message: &MessageKey) -> bool {
    rows::is_our_id(message.id) && (message.topic.is_some() || !message.id.has_topic())
}

/// Requests that one search makes, of 1 MB of rows each, for what one call deletes of a month.
///
/// Ten thousand rows of other software, each with a payload of 4 KB in base64, are 60 MB. What is not found
/// among so many rows stays: it is delivered again, and is found when what is before it was acked or
/// expired.
const SEARCH_PAGES_MAX: u32 = 64;

/// Finds the rows of messages that do not say where they are, all of them in one search: what an agent
/// acks it can make up.
async fn search(
    client: &DynamoClient,
    uaid: Uaid,
    table: &str,
    sought: &[&MessageKey],
) -> Result<Vec<Row>, CallError> {
    let mut missing: BTreeSet<_> =
        sought.iter().map(|message| (message.id, message.chid)).collect();
    let mut found = Vec::new();
    let Some(filter) = narrowest_filter(sought) else { return Ok(found) };
    let is_last = |item: &Item| {
        let sort_key_parts = rows::SortKey::parse(rows::sort_key_of(item));
        if sort_key_parts
            .is_some_and(|sort_key_parts| missing.remove(&(rows::id_of(item), sort_key_parts.chid)))
        {
            found.push(Row::of(item));
        }
        missing.is_empty()
    };
    look_through(client, uaid, table, &filter, SEARCH_PAGES_MAX, is_last).await?;
    Ok(found)
}

/// The fewest rows that all of these are among. None where nothing is sought.
fn narrowest_filter(sought: &[&MessageKey]) -> Option<RowFilter> {
    let first = sought.first()?;
    let is_topical = |message: &MessageKey| {
        message.topic.is_some() || (rows::is_our_id(message.id) && message.id.has_topic())
    };
    Some(if !sought.iter().all(|message| is_topical(message)) {
        RowFilter::Messages
    } else if sought.iter().all(|message| message.chid == first.chid) {
        RowFilter::Prefix(rows::topics_of(first.chid))
    } else {
        RowFilter::Prefix(rows::TOPICAL.to_owned())
    })
}
