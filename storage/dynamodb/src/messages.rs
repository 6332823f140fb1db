//! Stores and deletes messages.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use aws_sdk_dynamodb::operation::delete_item::builders::DeleteItemFluentBuilder;
use aws_sdk_dynamodb::operation::put_item::PutItemOutput;
use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
use aws_sdk_dynamodb::types::ReturnValue;
use futures_util::StreamExt;
use futures_util::stream;
use state_machine::{Chid, Message, MessageId, MessageKey, Month, Uaid};
use storage::receipts::ExpectedReceipt;
use storage::rules::topics::{self, MessageRow, RowThere};
use storage::store::{StoreError, Stored};
use storage::waiting::Waiting;

use crate::attributes::{UAID, number, text, text_of};
use crate::channels;
use crate::client::DynamoClient;
use crate::error::{CallError, Item, applied_once};
use crate::month_table::{required, with_table};
use crate::query::{RowFilter, look_through};
use crate::rows::{self, SORT_KEY, SortKey, UPDATE_ID};
use crate::{receipts, waiting};

/// What a written row may replace.
#[derive(Debug)]
pub(crate) enum Replaces {
    /// Any row: the sort key is the message's own.
    Itself,
    /// A message of its topic with a lesser id, or one of other software.
    Older(MessageId),
    /// As [`Replaces::Older`], but not one whose sender wants a receipt.
    OlderWithoutReceipt(MessageId),
    /// The row that still holds this message.
    Message(MessageId),
    Nothing,
}

pub(crate) async fn store(
    client: &DynamoClient,
    uaid: Uaid,
    month: Month,
    message: &Message,
) -> Result<Stored, StoreError> {
    let registered = channels::is_registered(client, uaid, month, message.chid).await;
    if !required(month, registered)? {
        return Ok(Stored::NoSuchChannel);
    }
    let stored = with_table(client, month, async |table| match client.options.waiting.is_none() {
        true => put_message(client, uaid, &table, message).await.map(|put| put.stored),
        false => store_within_bounds(client, uaid, &table, message).await,
    });
    required(month, stored.await)
}

/// Counts the message, and then stores it.
async fn store_within_bounds(
    client: &DynamoClient,
    uaid: Uaid,
    table: &str,
    message: &Message,
) -> Result<Stored, CallError> {
    let reserved = match waiting::reserve(client, uaid, table, message).await? {
        Ok(reserved) => reserved,
        Err(scope) => return Ok(Stored::Full(scope)),
    };
    let put = put_message(client, uaid, table, message).await;
    let put = put.map_err(|error| error.after_writes(true))?;
    waiting::correct(client, uaid, table, message, reserved, put.replaced).await;
    Ok(put.stored)
}

/// What the write of a message has done.
struct PutMessage {
    stored: Stored,
    /// What the row before counted; none if none was written.
    replaced: Option<Waiting>,
}

/// Writes the row of a message, unless one of its topic has a greater id.
async fn put_message(
    client: &DynamoClient,
    uaid: Uaid,
    table: &str,
    message: &Message,
) -> Result<PutMessage, CallError> {
    let row = RowOfMessage { client, table, item: rows::encode(uaid, message), id: message.id };
    let put = topics::put(client, &row, message.id, message.topic.is_some()).await;
    put.map(|(stored, replaced)| PutMessage { stored, replaced })
}

/// The row that a message is stored in.
struct RowOfMessage<'a> {
    client: &'a DynamoClient,
    table: &'a str,
    item: Item,
    id: MessageId,
}

impl MessageRow for RowOfMessage<'_> {
    type Error = CallError;
    type Replaced = Waiting;

    async fn put(&self, replaces: topics::Replaces) -> Result<Option<Waiting>, CallError> {
        let replaces = match replaces {
            topics::Replaces::Any => Replaces::Itself,
            topics::Replaces::OlderWithoutReceipt => Replaces::OlderWithoutReceipt(self.id),
            topics::Replaces::Message(id) => Replaces::Message(id),
        };
        match put_item(self.client, self.table, &self.item, &replaces).await {
            Ok(put) => Ok(Some(put.attributes.as_ref().map_or(Waiting::NOTHING, waiting::size_of))),
            Err(error) if error.is_condition_failed() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn there(&self) -> Result<Option<RowThere>, CallError> {
        let there = row_there(self.client, self.table, &self.item).await?;
        Ok(there.filter(rows::is_ours).map(|there| RowThere {
            id: rows::id_of(&there),
            expected: rows::decode(&there).as_ref().and_then(ExpectedReceipt::of),
        }))
    }

    fn contended(&self) -> CallError {
        CallError::contended("PutItem", self.table)
    }
}

/// The row that has the key of this one.
async fn row_there(
    client: &DynamoClient,
    table: &str,
    item: &Item,
) -> Result<Option<Item>, CallError> {
    let key = [UAID, SORT_KEY].map(|name| (name.to_owned(), item[name].clone()));
    client.get(table, Item::from(key)).await
}

/// Moves a row to the month that the record names, unless that month has a row of its topic. Returns whether it did.
pub(crate) async fn put_moved(
    client: &DynamoClient,
    table: &str,
    item: &Item,
) -> Result<bool, CallError> {
    let is_topical = SortKey::parse(rows::sort_key_of(item)).is_some_and(|key| key.is_topical);
    let replaces = if is_topical { Replaces::Nothing } else { Replaces::Itself };
    let is_written = put(client, table.to_owned(), item.clone(), &replaces).await?;
    if !is_written && item.contains_key(rows::RECEIPT) {
        let there = row_there(client, table, item).await?;
        if there.is_none_or(|there| rows::id_of(&there) != rows::id_of(item)) {
            receipts::cancel_row(client, item).await?;
        }
    }
    Ok(is_written)
}

/// Writes a row, unless one is stored that it must not replace. Returns whether it did.
pub(crate) async fn put(
    client: &DynamoClient,
    table: String,
    item: Item,
    replaces: &Replaces,
) -> Result<bool, CallError> {
    applied_once(put_item(client, &table, &item, replaces).await)
}

/// Writes a row and returns the one before.
async fn put_item(
    client: &DynamoClient,
    table: &str,
    item: &Item,
    replaces: &Replaces,
) -> Result<PutItemOutput, CallError> {
    let request = put_request(client, table, item.clone(), replaces);
    client.call("PutItem", table, request.return_values(ReturnValue::AllOld).send()).await
}

fn put_request(
    client: &DynamoClient,
    table: &str,
    item: Item,
    replaces: &Replaces,
) -> PutItemFluentBuilder {
    let request = client.sdk.put_item().table_name(table).set_item(Some(item));
    match replaces {
        Replaces::Itself => request,
        Replaces::Older(id) => request
            .condition_expression(
                "attribute_not_exists(updateid) OR updateid < :id OR attribute_not_exists(accepted_at)",
            )
            .expression_attribute_values(":id", text(id.to_string())),
        Replaces::OlderWithoutReceipt(id) => request
            .condition_expression(
                "(attribute_not_exists(updateid) OR updateid < :id OR attribute_not_exists(accepted_at)) \
                 AND attribute_not_exists(receipt)",
            )
            .expression_attribute_values(":id", text(id.to_string())),
        Replaces::Message(id) => request
            .condition_expression("updateid = :id")
            .expression_attribute_values(":id", text(id.to_string())),
        Replaces::Nothing => request.condition_expression("attribute_not_exists(uaid)"),
    }
}

/// Deletes messages in each month that has a table. Returns the number of deleted messages.
pub(crate) async fn delete(
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

/// Increments `offers` in the rows of this program's messages.
pub(crate) async fn record_offers(
    client: &DynamoClient,
    uaid: Uaid,
    month: Month,
    messages: &[MessageKey],
) -> Result<(), CallError> {
    let recorded = with_table(client, month, async |table| {
        let rows = messages.iter().filter(|message| is_row_known(message)).map(Row::of_ours);
        let writes = rows.map(|row| record_offer(client, uaid, &table, row));
        let (count, done) = write_rows(client, writes.collect()).await;
        done.map_err(|error| error.after_writes(count > 0))
    });
    recorded.await.map(|_done| ())
}

async fn record_offer(
    client: &DynamoClient,
    uaid: Uaid,
    table: &str,
    row: Row,
) -> Result<bool, CallError> {
    let Some(id) = row.update_id else { return Ok(false) };
    let request = client
        .sdk
        .update_item()
        .table_name(table)
        .key(UAID, text(uaid.to_string()))
        .key(SORT_KEY, text(row.sort_key))
        .update_expression("ADD offers :one")
        .condition_expression("updateid = :id")
        .expression_attribute_values(":one", number(1_u64))
        .expression_attribute_values(":id", text(id));
    applied_once(client.call("UpdateItem", table, request.send()).await)
}

async fn delete_in(
    client: &DynamoClient,
    uaid: Uaid,
    table: String,
    messages: &[MessageKey],
    deleted: &AtomicUsize,
) -> Result<(), CallError> {
    let delete_rows = async |rows: Vec<Row>| {
        let (count, done) = delete_rows(client, uaid, &table, &rows).await;
        deleted.fetch_add(count, Relaxed);
        done
    };
    let (known, sought): (Vec<_>, Vec<_>) =
        messages.iter().partition(|message| is_row_known(message));
    delete_rows(known.into_iter().map(Row::of_ours).collect()).await?;
    delete_rows(search(client, uaid, &table, &sought).await?).await
}

/// The rows of messages, those among them that there are.
pub(crate) async fn find(
    client: &DynamoClient,
    uaid: Uaid,
    table: &str,
    messages: &[MessageKey],
) -> Result<Vec<Row>, CallError> {
    let (known, sought): (Vec<_>, Vec<_>) =
        messages.iter().partition(|message| is_row_known(message));
    let found = search(client, uaid, table, &sought).await?;
    Ok(known.into_iter().map(Row::of_ours).chain(found).collect())
}

/// Deletes rows that still hold the same messages. Returns how many, and the first error.
pub(crate) async fn delete_rows(
    client: &DynamoClient,
    uaid: Uaid,
    table: &str,
    rows: &[Row],
) -> (usize, Result<(), CallError>) {
    let sizes = Mutex::new(Vec::new());
    let deletes = rows.iter().map(|row| delete_counted(client, uaid, table, row, &sizes));
    let (count, done) = write_rows(client, deletes.collect()).await;
    let sizes = sizes.into_inner().unwrap_or_else(PoisonError::into_inner);
    waiting::subtract(client, uaid, table, sizes).await;
    (count, done)
}

/// Runs requests that each write one row or leave it, some concurrently, and all of them also if
/// one fails: none is under way when the call is answered. Returns how many wrote, and the first
/// error.
pub(crate) async fn write_rows<F: Future<Output = Result<bool, E>>, E>(
    client: &DynamoClient,
    requests: Vec<F>,
) -> (usize, Result<(), E>) {
    let at_once = client.options.rows_in_flight_max.max(1);
    let done = stream::iter(requests).buffer_unordered(at_once).collect::<Vec<_>>().await;
    let written = done.iter().filter(|done| matches!(done, Ok(true))).count();
    (written, done.into_iter().try_for_each(|done| done.map(|_is_written| ())))
}

/// The identity of a row and of the message in it.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) sort_key: String,
    pub(crate) update_id: Option<String>,
}

impl Row {
    /// The row of a message that this program stored, computed from its key.
    fn of_ours(message: &MessageKey) -> Self {
        let MessageKey { id, chid, ref topic } = *message;
        let sort_key = rows::sort_key(id, chid, topic.as_ref());
        Self { sort_key, update_id: Some(id.to_string()) }
    }

    pub(crate) fn of(item: &Item) -> Self {
        let update_id = text_of(item, UPDATE_ID).map(str::to_owned);
        Self { sort_key: rows::sort_key_of(item).to_owned(), update_id }
    }
}

/// Deletes a row if it still holds the same message. Returns whether it did.
pub(crate) async fn delete_row(
    client: &DynamoClient,
    uaid: Uaid,
    table: &str,
    row: &Row,
) -> Result<bool, CallError> {
    let request = delete_request(client, uaid, table, row);
    applied_once(client.call("DeleteItem", table, request.send()).await)
}

/// As [`delete_row`]; adds to `sizes` what waits no longer, if it is counted.
async fn delete_counted(
    client: &DynamoClient,
    uaid: Uaid,
    table: &str,
    row: &Row,
    sizes: &Mutex<Vec<(Chid, Waiting)>>,
) -> Result<bool, CallError> {
    if client.options.waiting.is_none() {
        return delete_row(client, uaid, table, row).await;
    }
    let request = delete_request(client, uaid, table, row).return_values(ReturnValue::AllOld);
    let deleted = client.call("DeleteItem", table, request.send()).await;
    let item = deleted.as_ref().ok().and_then(|deleted| deleted.attributes.as_ref());
    if let Some(message) = item.and_then(rows::decode) {
        let mut sizes = sizes.lock().unwrap_or_else(PoisonError::into_inner);
        sizes.push((message.chid, Waiting::of(&message)));
    }
    applied_once(deleted)
}

fn delete_request(
    client: &DynamoClient,
    uaid: Uaid,
    table: &str,
    row: &Row,
) -> DeleteItemFluentBuilder {
    let request = client
        .sdk
        .delete_item()
        .table_name(table)
        .key(UAID, text(uaid.to_string()))
        .key(SORT_KEY, text(&row.sort_key));
    match &row.update_id {
        Some(id) => request
            .condition_expression("updateid = :id")
            .expression_attribute_values(":id", text(id)),
        None => request
            .condition_expression("attribute_exists(uaid) AND attribute_not_exists(updateid)"),
    }
}

/// Whether the row can be computed from the key: not if other software stored it, or if the topic
/// is unknown.
fn is_row_known(message: &MessageKey) -> bool {
    rows::is_our_id(message.id) && (message.topic.is_some() || !message.id.has_topic())
}

/// Requests of one search, each of 1 MB of rows.
///
/// Ten thousand rows of other software with payloads of 4 KB in base64 are 60 MB. A row beyond is
/// not deleted: its message is delivered again, and is found once the rows before it were acked or
/// expired.
const SEARCH_PAGES_MAX: u32 = 64;

/// Finds the rows of messages whose sort key is unknown, all in one search: an agent can invent the
/// versions that it acks.
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
        let sort_key_parts = SortKey::parse(rows::sort_key_of(item));
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

/// The narrowest filter that includes all sought messages; none if there are none.
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
