//! Stores and deletes messages.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use aws_sdk_dynamodb::operation::put_item::PutItemOutput;
use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
use aws_sdk_dynamodb::types::ReturnValue;
use state_machine::{Chid, Message, MessageId, MessageKey, Month, Uaid};
use storage::receipts::ExpectedReceipt;
use storage::rules::receipts;
use storage::rules::topics::{self, MessageRow, RowThere};
use storage::store::{StoreError, Stored};
use storage::waiting_limits::WaitingSize;

use crate::attributes::{number, text};
use crate::client::DynamoClient;
use crate::error::{CallError, Item, applied, applied_once};
use crate::message_items::{self, SortKey};
use crate::month_rows::{MonthRows, RowFilter, RowIdentity};
use crate::{channels, waiting_counts};

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

pub(crate) async fn store(rows: &MonthRows<'_>, message: &Message) -> Result<Stored, StoreError> {
    if !channels::is_registered(rows, message.chid).await? {
        return Ok(Stored::NoSuchChannel);
    }
    let store = async || match rows.client.options.waiting.is_none() {
        true => put_message(rows, message).await.map(|put| put.stored),
        false => store_within_bounds(rows, message).await,
    };
    rows.required(store).await
}

/// Counts the message, and then stores it.
async fn store_within_bounds(rows: &MonthRows<'_>, message: &Message) -> Result<Stored, CallError> {
    let reserved = match waiting_counts::reserve(rows, message).await? {
        Ok(reserved) => reserved,
        Err(scope) => return Ok(Stored::Full(scope)),
    };
    let put = put_message(rows, message).await;
    let put = put.map_err(|error| error.after_writes(true))?;
    waiting_counts::correct(rows, message, reserved, put.replaced).await;
    Ok(put.stored)
}

/// What the write of a message has done.
struct PutMessage {
    stored: Stored,
    /// What the row before counted; none if none was written.
    replaced: Option<WaitingSize>,
}

/// Writes the row of a message, unless one of its topic has a greater id.
async fn put_message(rows: &MonthRows<'_>, message: &Message) -> Result<PutMessage, CallError> {
    let row =
        RowOfMessage { rows, item: message_items::encode(rows.uaid, message), id: message.id };
    let put = topics::put(rows.client, &row, message.id, message.topic.is_some()).await;
    put.map(|(stored, replaced)| PutMessage { stored, replaced })
}

/// The row that a message is stored in.
struct RowOfMessage<'a> {
    rows: &'a MonthRows<'a>,
    item: Item,
    id: MessageId,
}

impl MessageRow for RowOfMessage<'_> {
    type Error = CallError;
    type Replaced = WaitingSize;

    async fn put(&self, replaces: topics::Replaces) -> Result<Option<WaitingSize>, CallError> {
        let replaces = match replaces {
            topics::Replaces::Any => Replaces::Itself,
            topics::Replaces::OlderWithoutReceipt => Replaces::OlderWithoutReceipt(self.id),
            topics::Replaces::Message(id) => Replaces::Message(id),
        };
        match put_item(self.rows.client, &self.rows.table, &self.item, &replaces).await {
            Ok((put, is_unclear)) => {
                // The row before may be that of an attempt whose answer was lost: what that replaced stays counted.
                let is_before =
                    |before: &&Item| !is_unclear || message_items::id_of(before) != self.id;
                let before = put.attributes.as_ref().filter(is_before);
                Ok(Some(before.map_or(WaitingSize::NOTHING, waiting_counts::size_of)))
            }
            Err(error) if error.is_condition_failed() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn there(&self) -> Result<Option<RowThere>, CallError> {
        let there = self.rows.get(message_items::sort_key_of(&self.item)).await?;
        Ok(there.filter(message_items::is_ours).map(|there| RowThere {
            id: message_items::id_of(&there),
            expected: message_items::decode(&there).as_ref().and_then(ExpectedReceipt::of),
        }))
    }

    fn contended(&self) -> CallError {
        CallError::contended("PutItem", &self.rows.table)
    }
}

/// Moves a row to the month that the record names, unless that month has a row of its topic. Returns whether it did.
pub(crate) async fn put_moved(rows: &MonthRows<'_>, item: &Item) -> Result<bool, CallError> {
    let sort_key = message_items::sort_key_of(item);
    let is_topical = SortKey::parse(sort_key).is_some_and(|key| key.is_topical);
    let replaces = if is_topical { Replaces::Nothing } else { Replaces::Itself };
    // After a lost answer the row that is there may be another one all the same.
    let is_written = applied(put_item(rows.client, &rows.table, item, &replaces).await)?;
    if !is_written && item.contains_key(message_items::RECEIPT) {
        let there = rows.get(sort_key).await?;
        if there.is_none_or(|there| message_items::id_of(&there) != message_items::id_of(item)) {
            cancel_receipt(rows.client, item).await?;
        }
    }
    Ok(is_written)
}

/// Expects the receipt no more that a row names, if it names one.
async fn cancel_receipt(client: &DynamoClient, item: &Item) -> Result<(), CallError> {
    match message_items::decode(item).as_ref().and_then(ExpectedReceipt::of) {
        Some(expected) => receipts::cancel(client, &expected).await,
        None => Ok(()),
    }
}

/// Writes a row, unless one is stored that it must not replace. Returns whether it did.
pub(crate) async fn put(
    client: &DynamoClient,
    table: &str,
    item: &Item,
    replaces: &Replaces,
) -> Result<bool, CallError> {
    applied_once(put_item(client, table, item, replaces).await)
}

/// Writes a row and returns the one before, and whether an attempt before the answered one may have written it too.
async fn put_item(
    client: &DynamoClient,
    table: &str,
    item: &Item,
    replaces: &Replaces,
) -> Result<(PutItemOutput, bool), CallError> {
    let request = put_request(client, table, item.clone(), replaces);
    client.call_tracked("PutItem", table, request.return_values(ReturnValue::AllOld).send()).await
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
        let rows = MonthRows::new(client, uaid, *month);
        let done = rows.with_table(|| delete_in(&rows, messages, &deleted));
        done.await.map_err(|error| error.after_writes(deleted.load(Relaxed) > 0))?;
    }
    Ok(deleted.load(Relaxed))
}

/// Increments `offers` in the rows of this program's messages.
pub(crate) async fn record_offers(
    rows: &MonthRows<'_>,
    messages: &[MessageKey],
) -> Result<(), CallError> {
    let record = async || {
        let known = messages.iter().filter(|message| is_row_known(message));
        let writes = known.map(|message| record_offer(rows, RowIdentity::of_ours(message)));
        let (count, done) = rows.client.write_rows(writes.collect()).await;
        done.map_err(|error| error.after_writes(count > 0))
    };
    rows.with_table(record).await.map(drop)
}

async fn record_offer(rows: &MonthRows<'_>, row: RowIdentity) -> Result<bool, CallError> {
    let Some(id) = row.update_id else { return Ok(false) };
    let request = rows
        .update_request(&row.sort_key)
        .update_expression("ADD offers :one")
        .condition_expression("updateid = :id")
        .expression_attribute_values(":one", number(1_u64))
        .expression_attribute_values(":id", text(id));
    applied_once(rows.update(request).await)
}

async fn delete_in(
    rows: &MonthRows<'_>,
    messages: &[MessageKey],
    deleted: &AtomicUsize,
) -> Result<(), CallError> {
    let delete = async |found: Vec<RowIdentity>| {
        let (count, done) = delete_rows(rows, &found).await;
        deleted.fetch_add(count, Relaxed);
        done
    };
    let (known, sought) = known_and_sought(messages);
    delete(known).await?;
    delete(search(rows, &sought).await?).await
}

/// The rows of messages, those among them that there are.
pub(crate) async fn find(
    rows: &MonthRows<'_>,
    messages: &[MessageKey],
) -> Result<Vec<RowIdentity>, CallError> {
    let (mut known, sought) = known_and_sought(messages);
    known.extend(search(rows, &sought).await?);
    Ok(known)
}

/// The rows that are computed from their keys, and the messages whose rows must be searched.
fn known_and_sought(messages: &[MessageKey]) -> (Vec<RowIdentity>, Vec<&MessageKey>) {
    let (known, sought): (Vec<_>, _) = messages.iter().partition(|message| is_row_known(message));
    (known.into_iter().map(RowIdentity::of_ours).collect(), sought)
}

/// Deletes rows that still hold the same messages. Returns how many, and the first error.
pub(crate) async fn delete_rows(
    rows: &MonthRows<'_>,
    deleted: &[RowIdentity],
) -> (usize, Result<(), CallError>) {
    let sizes = Mutex::new(Vec::new());
    let deletes = deleted.iter().map(|row| delete_counted(rows, row, &sizes));
    let (count, done) = rows.client.write_rows(deletes.collect()).await;
    let sizes = sizes.into_inner().unwrap_or_else(PoisonError::into_inner);
    waiting_counts::subtract(rows, sizes).await;
    (count, done)
}

/// As [`MonthRows::delete`]; adds to `sizes` what waits no longer, if it is counted.
async fn delete_counted(
    rows: &MonthRows<'_>,
    row: &RowIdentity,
    sizes: &Mutex<Vec<(Chid, WaitingSize)>>,
) -> Result<bool, CallError> {
    if rows.client.options.waiting.is_none() {
        return rows.delete(row).await;
    }
    let request = rows.delete_request(row).return_values(ReturnValue::AllOld);
    let deleted = rows.client.call("DeleteItem", &rows.table, request.send()).await;
    let item = deleted.as_ref().ok().and_then(|deleted| deleted.attributes.as_ref());
    if let Some(message) = item.and_then(message_items::decode) {
        let mut sizes = sizes.lock().unwrap_or_else(PoisonError::into_inner);
        sizes.push((message.chid, WaitingSize::of(&message)));
    }
    applied_once(deleted)
}

/// Whether the row can be computed from the key: not if other software stored it, or if the topic
/// is unknown.
fn is_row_known(message: &MessageKey) -> bool {
    message_items::is_our_id(message.id) && (message.topic.is_some() || !message.id.has_topic())
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
    rows: &MonthRows<'_>,
    sought: &[&MessageKey],
) -> Result<Vec<RowIdentity>, CallError> {
    let mut missing: BTreeSet<_> =
        sought.iter().map(|message| (message.id, message.chid)).collect();
    let mut found = Vec::new();
    let Some(filter) = narrowest_filter(sought) else { return Ok(found) };
    let is_last = |item: &Item| {
        let sort_key_parts = SortKey::parse(message_items::sort_key_of(item));
        if sort_key_parts.is_some_and(|sort_key_parts| {
            missing.remove(&(message_items::id_of(item), sort_key_parts.chid))
        }) {
            found.push(RowIdentity::of(item));
        }
        missing.is_empty()
    };
    rows.look_through(&filter, SEARCH_PAGES_MAX, is_last).await?;
    Ok(found)
}

/// The narrowest filter that includes all sought messages; none if there are none.
fn narrowest_filter(sought: &[&MessageKey]) -> Option<RowFilter> {
    let first = sought.first()?;
    let is_topical = |message: &MessageKey| {
        message.topic.is_some() || (message_items::is_our_id(message.id) && message.id.has_topic())
    };
    Some(if !sought.iter().all(|message| is_topical(message)) {
        RowFilter::Messages
    } else if sought.iter().all(|message| message.chid == first.chid) {
        RowFilter::Prefix(message_items::topics_of(first.chid))
    } else {
        RowFilter::Prefix(message_items::TOPICAL.to_owned())
    })
}
