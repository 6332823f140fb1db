//! What is tried out of the feed tables. The rows are of no feed: theirs is not a name.

use aws_sdk_dynamodb::types::{Delete, Get, Put, TransactGetItem, TransactWriteItem, Update};

use super::super::attributes::{number, text};
use super::super::error::Item;
use super::super::link::Link;
use super::super::preflight::{Step, get};
use super::rows::{FEED, ITEM, NAME};

/// Nobody's feed.
pub(super) const NOBODYS: &str = "(preflight)";

/// Each transaction is on one table, so that what it lacks is told of that table.
pub(in super::super) fn steps_of_sequences(link: &Link) -> Vec<Step<'_>> {
    let table = link.names.sequences();
    let key = Item::from([(NAME.to_owned(), text(NOBODYS))]);
    let update = Update::builder().table_name(table).set_key(Some(key.clone()));
    let update = update
        .update_expression("SET version = :zero")
        .expression_attribute_values(":zero", number(0_u64));
    let update = TransactWriteItem::builder().update(update.build().expect(COMPLETE)).build();
    let raise = link.client.update_item().table_name(table).set_key(Some(key.clone()));
    let raise = raise
        .update_expression("SET settled = :zero")
        .expression_attribute_values(":zero", number(0_u64));
    let scan = link.client.scan().table_name(table).consistent_read(true).limit(1);
    vec![
        write(link, table, update),
        Step::new(link, "UpdateItem", table, raise.send()),
        get(link, table, key.clone()),
        Step::new(link, "Scan", table, scan.send()),
        remove(link, table, key),
    ]
}

/// The same for the keys.
pub(in super::super) fn steps_of_feeds(link: &Link) -> Vec<Step<'_>> {
    let table = link.names.feeds();
    let nobody = || (FEED.to_owned(), text(NOBODYS));
    let key = Item::from([nobody(), (ITEM.to_owned(), text(NOBODYS))]);
    let put = Put::builder().table_name(table).set_item(Some(key.clone()));
    let put = TransactWriteItem::builder().put(put.build().expect(COMPLETE)).build();
    let query = link.client.query().table_name(table).consistent_read(true);
    let query = query
        .key_condition_expression("feed = :feed")
        .expression_attribute_values(":feed", text(NOBODYS));
    let read = Get::builder().table_name(table).set_key(Some(key.clone()));
    let read = TransactGetItem::builder().get(read.build().expect(COMPLETE)).build();
    let read = link.client.transact_get_items().transact_items(read);
    vec![
        write(link, table, put),
        get(link, table, key.clone()),
        Step::new(link, "Query", table, query.send()),
        Step::new(link, "TransactGetItems", table, read.send()),
        remove(link, table, key),
    ]
}

fn remove<'a>(link: &'a Link, table: &'a str, key: Item) -> Step<'a> {
    let delete = Delete::builder().table_name(table).set_key(Some(key));
    let delete = delete.build().expect(COMPLETE);
    write(link, table, TransactWriteItem::builder().delete(delete).build())
}

fn write<'a>(link: &'a Link, table: &'a str, action: TransactWriteItem) -> Step<'a> {
    let request = link.client.transact_write_items().transact_items(action);
    Step::new(link, "TransactWriteItems", table, request.send())
}

const COMPLETE: &str = "it has a table and a key";
