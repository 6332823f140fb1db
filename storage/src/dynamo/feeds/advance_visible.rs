//! Raises `settled` over a publication once all of it is visible.

use aws_sdk_dynamodb::types::{Get, TransactGetItem};

use super::super::attributes::number;
use super::super::client::DynamoClient;
use super::super::error::{CallError, applied};
use super::rows::{self, SequenceRow, VERSION, sequence_key};
use crate::feeds::{FeedName, FeedSyncId, Sequence};

/// Raises `settled` to the last number for a publisher that has not done so. Returns false if
/// another publisher changed the sequence meanwhile.
pub(super) async fn catch_up(
    client: &DynamoClient,
    feed: &FeedName,
    row: SequenceRow,
) -> Result<bool, CallError> {
    if row.settled == row.sequence.value {
        return Ok(true);
    }
    until_whole(client, feed, row).await?;
    advance(client, feed, row.sequence).await
}

/// Raises `settled` to the last number of a finished publication. Returns whether it still is the
/// last one.
pub(super) async fn advance(
    client: &DynamoClient,
    feed: &FeedName,
    sequence: Sequence,
) -> Result<bool, CallError> {
    let table = &client.names.sequences;
    let request = client
        .sdk
        .update_item()
        .table_name(table)
        .set_key(Some(sequence_key(feed)))
        .update_expression("SET settled = :settled")
        .condition_expression("version = :version")
        .expression_attribute_values(":settled", number(sequence.value.0))
        .expression_attribute_values(":version", number(sequence.version));
    applied(client.call("UpdateItem", table, request.send()).await)
}

/// Returns once the whole publication of these numbers is finished: a transaction that reads what
/// another writes is rejected until then.
async fn until_whole(
    client: &DynamoClient,
    feed: &FeedName,
    row: SequenceRow,
) -> Result<(), CallError> {
    let table = &client.names.feeds;
    let numbers = row.settled.0 + 1..=row.sequence.value.0;
    let gets = numbers.map(|number| {
        let key = rows::row_key(feed, &rows::numbered_item(FeedSyncId(number)));
        let get =
            Get::builder().table_name(table).set_key(Some(key)).projection_expression(VERSION);
        let get = get.build().expect("it has a table and a key");
        TransactGetItem::builder().get(get).build()
    });
    let request = client.sdk.transact_get_items().set_transact_items(Some(gets.collect()));
    client.call("TransactGetItems", table, request.send()).await.map(drop)
}
