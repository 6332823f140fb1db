//! The preflight steps of the feed tables.

use aws_sdk_dynamodb::types::{Delete, Get, Put, TransactGetItem, TransactWriteItem, Update};

use super::rows::{FEED, ITEM, NAME};
use super::transaction::{COMPLETE, TRANSACT};
use crate::attributes::{number, text};
use crate::client::DynamoClient;
use crate::error::Item;
use crate::preflight::{PreflightStep, step};

/// Not a valid name, so that no feed has it.
pub(crate) const PREFLIGHT_FEED: &str = "(preflight)";

/// Each transaction is on one table, so that its error names that table.
pub(crate) fn steps_of_sequences(client: &DynamoClient) -> Vec<PreflightStep<'_>> {
    let table = &client.names.sequences;
    let key = Item::from([(NAME.to_owned(), text(PREFLIGHT_FEED))]);
    let update = Update::builder().table_name(table).set_key(Some(key.clone()));
    let update = update
        .update_expression("SET version = :zero")
        .expression_attribute_values(":zero", number(0_u64));
    let update = TransactWriteItem::builder().update(update.build().expect(COMPLETE)).build();
    let raise = client.sdk.update_item().table_name(table).set_key(Some(key.clone()));
    let raise = raise
        .update_expression("SET settled = :zero")
        .expression_attribute_values(":zero", number(0_u64));
    vec![
        write(client, table, update),
        step("UpdateItem", table, client.call("UpdateItem", table, raise.send())),
        step("GetItem", table, client.get(table, key.clone())),
        step("Scan", table, client.scan(table, None, None, Some(1))),
        remove(client, table, key),
    ]
}

pub(crate) fn steps_of_feeds(client: &DynamoClient) -> Vec<PreflightStep<'_>> {
    let table = &client.names.feeds;
    let nobody = || (FEED.to_owned(), text(PREFLIGHT_FEED));
    let key = Item::from([nobody(), (ITEM.to_owned(), text(PREFLIGHT_FEED))]);
    let put = Put::builder().table_name(table).set_item(Some(key.clone()));
    let put = TransactWriteItem::builder().put(put.build().expect(COMPLETE)).build();
    let query = client.sdk.query().table_name(table).consistent_read(true);
    let query = query
        .key_condition_expression("feed = :feed")
        .expression_attribute_values(":feed", text(PREFLIGHT_FEED));
    let read = Get::builder().table_name(table).set_key(Some(key.clone()));
    let read = TransactGetItem::builder().get(read.build().expect(COMPLETE)).build();
    let read = client.sdk.transact_get_items().transact_items(read);
    vec![
        write(client, table, put),
        step("GetItem", table, client.get(table, key.clone())),
        step("Query", table, client.call("Query", table, query.send())),
        step("TransactGetItems", table, client.call("TransactGetItems", table, read.send())),
        remove(client, table, key),
    ]
}

fn remove<'a>(client: &'a DynamoClient, table: &'a str, key: Item) -> PreflightStep<'a> {
    let delete = Delete::builder().table_name(table).set_key(Some(key));
    let delete = delete.build().expect(COMPLETE);
    write(client, table, TransactWriteItem::builder().delete(delete).build())
}

fn write<'a>(
    client: &'a DynamoClient,
    table: &'a str,
    action: TransactWriteItem,
) -> PreflightStep<'a> {
    let request = client.sdk.transact_write_items().transact_items(action);
    step(TRANSACT, table, client.call(TRANSACT, table, request.send()))
}
