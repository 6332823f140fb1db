//! A change of a feed as one transaction on both tables.

use aws_sdk_dynamodb::types::builders::{DeleteBuilder, PutBuilder, UpdateBuilder};
use aws_sdk_dynamodb::types::{Delete, Put, TransactWriteItem, Update};
use storage::feeds::{FeedName, Sequence, Version};
use storage::rules::feed_rows::{ExpectedChange, FeedChange, KeyChange, KeyRow, SequenceChange};

use super::expected_receipts;
use super::feed_items::{self, FORGOTTEN, KEYS, NAME, VALUE, sequence_key};
use crate::attributes::number;
use crate::client::DynamoClient;
use crate::error::{CallError, Item};

pub(crate) const TRANSACT: &str = "TransactWriteItems";

/// What an action of a transaction is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Expected,
    /// The place of the key in the change.
    Key(usize),
    Sequence,
}

pub(super) fn actions(
    client: &DynamoClient,
    change: &FeedChange<'_>,
) -> Vec<(Part, TransactWriteItem)> {
    let FeedChange { feed, expected, keys, sequence } = change;
    let expected = match expected {
        ExpectedChange::None => None,
        ExpectedChange::Add(expected) => {
            Some(put_if(client, expected_receipts::encode(expected), None))
        }
        ExpectedChange::Remove(expected) => {
            Some(delete_if_there(client, expected_receipts::encode(expected)))
        }
    };
    let keys = keys.iter().enumerate().flat_map(|(at, key)| {
        actions_of_key(client, feed, key).into_iter().map(move |action| (Part::Key(at), action))
    });
    let sequence = match sequence {
        SequenceChange::None => None,
        SequenceChange::CountKey { keys_max, forgotten } => {
            Some(count_key(client, feed, *keys_max, *forgotten))
        }
        SequenceChange::UncountKeys(count) => Some(uncount_keys(client, feed, *count)),
        SequenceChange::RecountKey => Some(recount_key(client, feed)),
        SequenceChange::Advance { read, to } => Some(advance(client, feed, read, to)),
    };
    let expected = expected.map(|action| (Part::Expected, action));
    expected
        .into_iter()
        .chain(keys)
        .chain(sequence.map(|action| (Part::Sequence, action)))
        .collect()
}

/// The row of the key, on the condition that its version is unchanged, and that of its value, which moves with the number.
fn actions_of_key(
    client: &DynamoClient,
    feed: &FeedName,
    change: &KeyChange<'_>,
) -> Vec<TransactWriteItem> {
    let KeyChange { key, before, after } = change;
    let place = |row: &KeyRow| {
        row.number.map_or_else(|| feed_items::pending_item(key), feed_items::numbered_item)
    };
    let left = before
        .as_ref()
        .map(place)
        .filter(|left| after.as_ref().is_none_or(|(row, _)| place(row) != *left));
    let read = before.map(|before| before.version);
    let of_key = match after {
        Some((row, value)) => {
            let value = feed_items::encode_value(feed, key, row.version, row.number, *value);
            vec![put_if(client, feed_items::encode_key(feed, key, *row), read), put(client, value)]
        }
        None => {
            let key = feed_items::row_key(feed, &feed_items::key_item(key));
            vec![delete_if(client, key, read.unwrap_or_default())]
        }
    };
    let left = left.map(|left| delete(client, feed_items::row_key(feed, &left)));
    of_key.into_iter().chain(left).collect()
}

/// Executes all actions or none. The SDK sends every attempt with the same token: a transaction
/// whose reply was lost is not executed twice.
pub(super) async fn transact(
    client: &DynamoClient,
    actions: Vec<TransactWriteItem>,
) -> Result<(), CallError> {
    let request = client.sdk.transact_write_items().set_transact_items(Some(actions));
    client.call(TRANSACT, &client.names.feeds, request.send()).await.map(drop)
}

fn put(client: &DynamoClient, item: Item) -> TransactWriteItem {
    of_put(Put::builder().table_name(&client.names.feeds).set_item(Some(item)))
}

/// Writes the row of a key, if its version is still `read`, or if there is still none.
fn put_if(client: &DynamoClient, item: Item, read: Option<Version>) -> TransactWriteItem {
    let put = Put::builder().table_name(&client.names.feeds).set_item(Some(item));
    of_put(match read {
        Some(version) => put
            .condition_expression("version = :version")
            .expression_attribute_values(":version", number(version.0)),
        None => put.condition_expression("attribute_not_exists(feed)"),
    })
}

pub(super) fn delete(client: &DynamoClient, key: Item) -> TransactWriteItem {
    of_delete(Delete::builder().table_name(&client.names.feeds).set_key(Some(key)))
}

/// Removes a row whose version is still this.
fn delete_if(client: &DynamoClient, key: Item, version: Version) -> TransactWriteItem {
    let delete = Delete::builder().table_name(&client.names.feeds).set_key(Some(key));
    of_delete(
        delete
            .condition_expression("version = :version")
            .expression_attribute_values(":version", number(version.0)),
    )
}

/// Counts keys no more.
fn uncount_keys(client: &DynamoClient, feed: &FeedName, count: usize) -> TransactWriteItem {
    let update = of_sequence(client, feed)
        .update_expression("SET #keys = #keys - :count")
        .condition_expression("#keys >= :count")
        .expression_attribute_names("#keys", KEYS)
        .expression_attribute_values(":count", number(count as u64));
    of_update(update)
}

/// Counts a key again, unless the sequence is gone.
fn recount_key(client: &DynamoClient, feed: &FeedName) -> TransactWriteItem {
    let update = of_sequence(client, feed)
        .update_expression("SET #keys = #keys + :one")
        .condition_expression("attribute_exists(#keys)")
        .expression_attribute_names("#keys", KEYS)
        .expression_attribute_values(":one", number(1_u64));
    of_update(update)
}

/// Deletes a row that must exist.
fn delete_if_there(client: &DynamoClient, key: Item) -> TransactWriteItem {
    let delete = Delete::builder().table_name(&client.names.feeds).set_key(Some(key));
    of_delete(delete.condition_expression("attribute_exists(feed)"))
}

/// Removes a sequence, if it still counts so many keys.
pub(super) fn remove_sequence(
    client: &DynamoClient,
    feed: &FeedName,
    keys: Option<u64>,
) -> TransactWriteItem {
    let delete = Delete::builder()
        .table_name(&client.names.sequences)
        .set_key(Some(sequence_key(feed)))
        .expression_attribute_names("#keys", KEYS);
    of_delete(match keys {
        Some(keys) => delete
            .condition_expression("#keys = :keys")
            .expression_attribute_values(":keys", number(keys)),
        None => delete.condition_expression("attribute_not_exists(#keys)"),
    })
}

/// Counts a new key, and creates the sequence with the first. An incomplete sequence is not
/// changed: its numbers would start again. Nor is one that has forgotten another version than
/// `forgotten`, which the version of the key was made from.
fn count_key(
    client: &DynamoClient,
    feed: &FeedName,
    keys_max: u64,
    forgotten: Version,
) -> TransactWriteItem {
    let is_unchanged = match forgotten {
        Version(0) => "attribute_not_exists(#forgotten)",
        _ => "#forgotten = :forgotten",
    };
    let mut update = of_sequence(client, feed)
        .update_expression(
            "SET #keys = if_not_exists(#keys, :zero) + :one, #value = if_not_exists(#value, :zero), \
             version = if_not_exists(version, :zero), settled = if_not_exists(settled, :zero)",
        )
        .condition_expression(format!(
            "attribute_not_exists(#name) OR (#keys < :max AND attribute_exists(#value) \
             AND attribute_exists(version) AND attribute_exists(settled) AND {is_unchanged})",
        ))
        .expression_attribute_names("#forgotten", FORGOTTEN)
        .expression_attribute_names("#keys", KEYS)
        .expression_attribute_names("#value", VALUE)
        .expression_attribute_names("#name", NAME)
        .expression_attribute_values(":zero", number(0_u64))
        .expression_attribute_values(":one", number(1_u64))
        .expression_attribute_values(":max", number(keys_max));
    if forgotten > Version::default() {
        update = update.expression_attribute_values(":forgotten", number(forgotten.0));
    }
    of_update(update)
}

/// Advances the sequence by the numbers of a publication.
fn advance(
    client: &DynamoClient,
    feed: &FeedName,
    read: &Sequence,
    to: &Sequence,
) -> TransactWriteItem {
    let update = of_sequence(client, feed)
        .update_expression("SET #value = :value, version = :next")
        .condition_expression("version = :read")
        .expression_attribute_names("#value", VALUE)
        .expression_attribute_values(":value", number(to.value.0))
        .expression_attribute_values(":next", number(to.version))
        .expression_attribute_values(":read", number(read.version));
    of_update(update)
}

fn of_sequence(client: &DynamoClient, feed: &FeedName) -> UpdateBuilder {
    Update::builder().table_name(&client.names.sequences).set_key(Some(sequence_key(feed)))
}

pub(crate) fn of_put(put: PutBuilder) -> TransactWriteItem {
    TransactWriteItem::builder().put(put.build().expect(COMPLETE)).build()
}

pub(crate) fn of_delete(delete: DeleteBuilder) -> TransactWriteItem {
    TransactWriteItem::builder().delete(delete.build().expect(COMPLETE)).build()
}

pub(crate) fn of_update(update: UpdateBuilder) -> TransactWriteItem {
    TransactWriteItem::builder().update(update.build().expect(COMPLETE)).build()
}

pub(crate) const COMPLETE: &str = "it has a table and a key";
