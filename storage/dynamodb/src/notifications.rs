//! SimplePush notifications: one item per channel (docs/sources.md#table-functions).

use state_machine::{Chid, Uaid};
use storage::Notification;

use crate::attributes::{UAID, number, number_of, text, text_of};
use crate::client::DynamoClient;
use crate::error::{CallError, Item, applied_once, if_table};

pub(crate) const CHID: &str = "chid";

pub(crate) async fn fetch(
    client: &DynamoClient,
    uaid: Uaid,
    after: Option<Chid>,
    limit: usize,
) -> Result<Vec<Notification>, CallError> {
    let table = &client.names.legacy;
    let request = client
        .sdk
        .query()
        .table_name(table)
        .key_condition_expression("uaid = :uaid")
        .expression_attribute_values(":uaid", text(uaid.to_string()))
        .consistent_read(true)
        .set_exclusive_start_key(after.map(|chid| key(uaid, chid)));
    let page_size = limit.clamp(1, ITEMS_MAX) as i32;
    let mut items = request.into_paginator().page_size(page_size).items().send();
    let found = async move {
        let mut found = Vec::new();
        while found.len() < limit {
            match items.try_next().await {
                Ok(Some(item)) => found.extend(decode(&item)),
                Ok(None) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    };
    Ok(if_table(client.call("Query", table, found).await)?.unwrap_or_default())
}

/// Items in one request.
const ITEMS_MAX: usize = 1000;

pub(crate) async fn put(
    client: &DynamoClient,
    uaid: Uaid,
    notification: &Notification,
) -> Result<bool, CallError> {
    let table = &client.names.legacy;
    let request = client
        .sdk
        .put_item()
        .table_name(table)
        .set_item(Some(encode(uaid, notification)))
        .condition_expression("attribute_not_exists(version) OR version < :version")
        .expression_attribute_values(":version", number(notification.version));
    applied_once(client.call("PutItem", table, request.send()).await)
}

pub(crate) async fn delete(
    client: &DynamoClient,
    uaid: Uaid,
    chid: Chid,
    version: Option<u64>,
) -> Result<bool, CallError> {
    let table = &client.names.legacy;
    let request = client.sdk.delete_item().table_name(table).set_key(Some(key(uaid, chid)));
    let request = match version {
        Some(version) => request
            .condition_expression("version <= :version")
            .expression_attribute_values(":version", number(version)),
        None => request.condition_expression("attribute_exists(uaid)"),
    };
    let done = applied_once(client.call("DeleteItem", table, request.send()).await);
    Ok(if_table(done)?.unwrap_or(false))
}

const VERSION: &str = "version";
/// Absent from rows of other software.
const DATA: &str = "data";

fn key(uaid: Uaid, chid: Chid) -> Item {
    Item::from([
        (UAID.to_owned(), text(uaid.to_string())),
        (CHID.to_owned(), text(chid.to_string())),
    ])
}

pub(crate) fn encode(uaid: Uaid, notification: &Notification) -> Item {
    let mut item = key(uaid, notification.chid);
    item.insert(VERSION.to_owned(), number(notification.version));
    item.extend(notification.data.as_ref().map(|data| (DATA.to_owned(), text(data))));
    item
}

/// None for a text that is no channel id.
pub(crate) fn decode(item: &Item) -> Option<Notification> {
    let chid = Chid::parse(text_of(item, CHID)?).ok()?;
    let data = text_of(item, DATA).map(str::to_owned);
    Some(Notification { chid, version: number_of(item, VERSION)?, data })
}
