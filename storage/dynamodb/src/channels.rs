//! The channels of a user agent: a set of strings in the item whose sort key is a single space
//! (docs/sources.md#message-table-schema). A set cannot be empty: the attribute is removed, the
//! item stays.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;
use state_machine::{Chid, Month, Uaid};
use storage::store::StoreError;

use crate::attributes::{text, uaid_key};
use crate::client::DynamoClient;
use crate::error::{CallError, Item, applied};
use crate::message_items::{CHANNELS_KEY, SORT_KEY};
use crate::month_rows::MonthRows;

const EXPIRY: &str = "expiry";

/// The registered channels; none if no channel was ever registered or there is no table.
///
/// The caller will rely on them: an `expiry` that other software wrote is removed first, because
/// the expiry of the item would remove every subscription.
pub(crate) async fn read(rows: &MonthRows<'_>) -> Result<Option<BTreeSet<Chid>>, CallError> {
    let item = rows.with_table(|| read_to_keep(rows)).await?;
    Ok(item.flatten().map(|item| decode(&item)))
}

/// The registered channels; none if the item is missing.
pub(crate) async fn read_there(rows: &MonthRows<'_>) -> Result<Option<BTreeSet<Chid>>, StoreError> {
    let item = rows.required(|| read_item(rows)).await?;
    Ok(item.map(|item| decode(&item)))
}

pub(crate) async fn is_registered(rows: &MonthRows<'_>, chid: Chid) -> Result<bool, StoreError> {
    let channels = read_there(rows).await?;
    Ok(channels.is_some_and(|channels| channels.contains(&chid)))
}

pub(crate) async fn add(rows: &MonthRows<'_>, channels: &BTreeSet<Chid>) -> Result<(), StoreError> {
    let add = || rows.update(adding(rows.update_request(CHANNELS_KEY), channels));
    rows.required(add).await.map(drop)
}

/// Creates the item with these channels. One that is there stays as it is.
pub(crate) async fn create(
    rows: &MonthRows<'_>,
    channels: &BTreeSet<Chid>,
) -> Result<(), StoreError> {
    let create = async || {
        let request = adding(rows.update_request(CHANNELS_KEY), channels);
        applied(rows.update(request.condition_expression("attribute_not_exists(uaid)")).await)
    };
    rows.required(create).await.map(drop)
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
        let rows = MonthRows::new(client, uaid, *month);
        let remove = || {
            let request = rows.update_request(CHANNELS_KEY);
            let request = request.update_expression("DELETE chids :chids");
            let request =
                request.expression_attribute_values(":chids", set(&BTreeSet::from([chid])));
            change_if_there(&rows, request)
        };
        rows.with_table(remove).await.map_err(|error| error.after_writes(some))?;
        some = true;
    }
    Ok(())
}

/// Reads the item, and removes its `expiry`.
async fn read_to_keep(rows: &MonthRows<'_>) -> Result<Option<Item>, CallError> {
    match read_item(rows).await? {
        Some(item) if item.contains_key(EXPIRY) => {
            let request = rows.update_request(CHANNELS_KEY).update_expression("REMOVE expiry");
            Ok(change_if_there(rows, request).await?.then_some(item))
        }
        item => Ok(item),
    }
}

/// Changes an existing item only. Returns whether there is one.
async fn change_if_there(
    rows: &MonthRows<'_>,
    request: UpdateItemFluentBuilder,
) -> Result<bool, CallError> {
    applied(rows.update(request.condition_expression("attribute_exists(uaid)")).await)
}

pub(crate) async fn read_item(rows: &MonthRows<'_>) -> Result<Option<Item>, CallError> {
    rows.get(CHANNELS_KEY).await
}

/// Copies up to where the agent has acked rows of other software.
pub(crate) async fn set_acked(
    rows: &MonthRows<'_>,
    timestamp: &AttributeValue,
) -> Result<(), CallError> {
    let request = rows
        .update_request(CHANNELS_KEY)
        .update_expression("SET current_timestamp = :timestamp")
        .expression_attribute_values(":timestamp", timestamp.clone());
    rows.update(request).await.map(drop)
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
