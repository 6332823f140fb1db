//! The channels of a user agent: a set of strings in the item whose sort key is a single space
//! (docs/sources.md#message-table-schema). A set cannot be empty: the attribute is removed, the
//! item stays.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;
use state_machine::{Chid, Month, Uaid};
use storage::store::StoreError;

use crate::attributes::{UAID, text, uaid_key};
use crate::client::DynamoClient;
use crate::error::{CallError, Item, applied};
use crate::month_table::{required, with_table};
use crate::rows::SORT_KEY;

/// The sort key of the channels, before all messages.
pub(crate) const CHANNELS_KEY: &str = " ";
const EXPIRY: &str = "expiry";

/// The registered channels; none if no channel was ever registered or there is no table.
///
/// The caller will rely on them: an `expiry` that other software wrote is removed first, because
/// the expiry of the item would remove every subscription.
pub(crate) async fn read(
    client: &DynamoClient,
    uaid: Uaid,
    month: Month,
) -> Result<Option<BTreeSet<Chid>>, CallError> {
    let item = with_table(client, month, |table| read_to_keep(client, uaid, table)).await?;
    Ok(item.flatten().map(|item| decode(&item)))
}

/// The registered channels: the outer `None` is a missing table, the inner one a missing item.
pub(crate) async fn read_there(
    client: &DynamoClient,
    uaid: Uaid,
    month: Month,
) -> Result<Option<Option<BTreeSet<Chid>>>, CallError> {
    let item = with_table(client, month, |table| read_item(client, uaid, table)).await?;
    Ok(item.map(|item| item.map(|item| decode(&item))))
}

/// Whether a channel is registered; none if there is no table.
pub(crate) async fn is_registered(
    client: &DynamoClient,
    uaid: Uaid,
    month: Month,
    chid: Chid,
) -> Result<Option<bool>, CallError> {
    let channels = read_there(client, uaid, month).await?;
    Ok(channels.map(|channels| channels.is_some_and(|channels| channels.contains(&chid))))
}

pub(crate) async fn add(
    client: &DynamoClient,
    uaid: Uaid,
    month: Month,
    channels: &BTreeSet<Chid>,
) -> Result<(), StoreError> {
    let added = with_table(client, month, async |table| {
        let request = adding(update(client, uaid, &table), channels);
        client.call("UpdateItem", &table, request.send()).await.map(|_changed| ())
    });
    required(month, added.await)
}

/// Creates the item with these channels. One that is there stays as it is.
pub(crate) async fn create(
    client: &DynamoClient,
    uaid: Uaid,
    month: Month,
    channels: &BTreeSet<Chid>,
) -> Result<(), StoreError> {
    let created = with_table(client, month, async |table| {
        let request = adding(update(client, uaid, &table), channels);
        let request = request.condition_expression("attribute_not_exists(uaid)");
        applied(client.call("UpdateItem", &table, request.send()).await).map(|_is_new| ())
    });
    required(month, created.await)
}

/// Adds channels, creates the item if it is missing, and removes an `expiry` of other software.
fn adding(request: UpdateItemFluentBuilder, channels: &BTreeSet<Chid>) -> UpdateItemFluentBuilder {
    if channels.is_empty() {
        // An update that only removes would not create the item.
        request
            .update_expression("SET known = :true REMOVE expiry")
            .expression_attribute_values(":true", AttributeValue::Bool(true))
    } else {
        request
            .update_expression("ADD chids :chids REMOVE expiry")
            .expression_attribute_values(":chids", set(channels))
    }
}

/// Removes a channel in each month that has a table and an item.
pub(crate) async fn remove(
    client: &DynamoClient,
    uaid: Uaid,
    months: &[Month],
    chid: Chid,
) -> Result<(), CallError> {
    let mut some = false;
    for month in months {
        let removed =
            with_table(client, *month, |table| remove_in(client, uaid, table, chid)).await;
        removed.map_err(|error| error.after_writes(some))?;
        some = true;
    }
    Ok(())
}

async fn remove_in(
    client: &DynamoClient,
    uaid: Uaid,
    table: String,
    chid: Chid,
) -> Result<(), CallError> {
    let request = update(client, uaid, &table)
        .update_expression("DELETE chids :chids")
        .expression_attribute_values(":chids", set(&BTreeSet::from([chid])));
    change_if_there(client, &table, request).await.map(|_was_there| ())
}

/// Reads the item, and removes its `expiry`.
async fn read_to_keep(
    client: &DynamoClient,
    uaid: Uaid,
    table: String,
) -> Result<Option<Item>, CallError> {
    let item = read_item(client, uaid, table.clone()).await?;
    match item {
        Some(item) if item.contains_key(EXPIRY) => {
            let request = update(client, uaid, &table).update_expression("REMOVE expiry");
            Ok(change_if_there(client, &table, request).await?.then_some(item))
        }
        item => Ok(item),
    }
}

/// Changes an existing item only. Returns whether there is one.
async fn change_if_there(
    client: &DynamoClient,
    table: &str,
    request: UpdateItemFluentBuilder,
) -> Result<bool, CallError> {
    let request = request.condition_expression("attribute_exists(uaid)");
    applied(client.call("UpdateItem", table, request.send()).await)
}

pub(crate) async fn read_item(
    client: &DynamoClient,
    uaid: Uaid,
    table: String,
) -> Result<Option<Item>, CallError> {
    let mut key = uaid_key(uaid);
    key.insert(SORT_KEY.to_owned(), text(CHANNELS_KEY));
    client.get(&table, key).await
}

pub(crate) fn update(client: &DynamoClient, uaid: Uaid, table: &str) -> UpdateItemFluentBuilder {
    client
        .sdk
        .update_item()
        .table_name(table)
        .key(UAID, text(uaid.to_string()))
        .key(SORT_KEY, text(CHANNELS_KEY))
}

/// Copies up to where the agent has acked rows of other software.
pub(crate) async fn set_acked(
    client: &DynamoClient,
    uaid: Uaid,
    table: String,
    timestamp: AttributeValue,
) -> Result<(), CallError> {
    let request = update(client, uaid, &table)
        .update_expression("SET current_timestamp = :timestamp")
        .expression_attribute_values(":timestamp", timestamp);
    client.call("UpdateItem", &table, request.send()).await.map(|_changed| ())
}

/// The item with these channels.
pub(crate) fn encode(uaid: Uaid, channels: &BTreeSet<Chid>) -> Item {
    let mut item = uaid_key(uaid);
    item.insert(SORT_KEY.to_owned(), text(CHANNELS_KEY));
    // A set cannot be empty.
    item.insert("known".to_owned(), AttributeValue::Bool(true));
    item.extend((!channels.is_empty()).then(|| ("chids".to_owned(), set(channels))));
    item
}

fn set(channels: &BTreeSet<Chid>) -> AttributeValue {
    AttributeValue::Ss(channels.iter().map(Chid::to_string).collect())
}

/// Skips texts that are no channel ids.
pub(crate) fn decode(item: &Item) -> BTreeSet<Chid> {
    let chids = item.get("chids").and_then(|chids| chids.as_ss().ok());
    chids.into_iter().flatten().filter_map(|chid| Chid::parse(chid).ok()).collect()
}
