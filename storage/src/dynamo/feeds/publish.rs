//! Publishes waiting keys in one transaction, and then advances `settled`.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::{Get, TransactGetItem, TransactWriteItem};
use state_machine::feed::{Assignment, Publication, UnpublishedKey};

use super::super::attributes::number;
use super::super::client::DynamoClient;
use super::super::error::{CallError, applied};
use super::pending::{self, Waiting, WaitingRow};
use super::rows::{self, KeyRow, SequenceRow, VERSION, sequence_key};
use super::transact::{self, RetryBudget, TRANSACT, Transacted, transact};
use crate::feeds::{FeedKey, FeedName, FeedSyncId, PublishResult, Sequence, Update};

/// Assigns the next numbers to waiting keys. None if there is no such feed.
pub(super) async fn publish(
    client: &DynamoClient,
    feed: &FeedName,
    after: Option<&FeedKey>,
    limit: usize,
) -> Result<Option<PublishResult>, CallError> {
    let mut budget = RetryBudget::new(client);
    // A row that is refused twice is wrong, and not only late.
    let mut refused = BTreeSet::new();
    loop {
        let Some(row) = rows::sequence(client, feed).await? else { return Ok(None) };
        let waiting = pending::read(client, feed, after, limit, &refused).await?;
        let lost = match assign(client, feed, row, &waiting).await? {
            Numbered::Done(published) => return Ok(Some(published)),
            Numbered::Lost(lost) => lost,
        };
        refused.extend(refused_keys(&lost, &waiting));
        budget.next_attempt(lost).await?;
    }
}

enum Numbered {
    Done(PublishResult),
    /// Another publisher changed the rows first.
    Lost(CallError),
}

async fn assign(
    client: &DynamoClient,
    feed: &FeedName,
    row: SequenceRow,
    waiting: &Waiting,
) -> Result<Numbered, CallError> {
    if !catch_up(client, feed, row).await? {
        return Ok(Numbered::Lost(CallError::contended(TRANSACT, &client.names.sequences)));
    }
    let pending = waiting.rows.iter().map(|row| row.pending.clone()).collect();
    let Some(publication) = Publication::of(row.sequence, pending) else {
        let next = waiting.last.clone().filter(|_| !waiting.is_all);
        let published = PublishResult { count: 0, head: row.sequence.value, next };
        return Ok(Numbered::Done(published));
    };
    let actions = actions(client, feed, &publication, &waiting.rows);
    if let Transacted::Refused(lost) = transact(client, actions).await? {
        return Ok(Numbered::Lost(lost));
    }
    // A publisher that published since has settled this before.
    let settled = advance(client, feed, publication.sequence).await;
    let _is_last = settled.map_err(|error| error.after_writes(true))?;
    Ok(Numbered::Done(publication.outcome(waiting.is_all)))
}

/// The actions of the keys, [`ACTIONS_A_KEY`] each, and that of the sequence.
fn actions(
    client: &DynamoClient,
    feed: &FeedName,
    publication: &Publication,
    waiting: &[WaitingRow],
) -> Vec<TransactWriteItem> {
    let keys = publication.assignments.iter().zip(waiting);
    let keys = keys.flat_map(|(assignment, row)| actions_of_key(client, feed, assignment, row));
    keys.chain([transact::advance(client, feed, publication)]).collect()
}

const ACTIONS_A_KEY: usize = 3;

fn actions_of_key(
    client: &DynamoClient,
    feed: &FeedName,
    assignment: &Assignment,
    row: &WaitingRow,
) -> [TransactWriteItem; ACTIONS_A_KEY] {
    let Assignment { pending: UnpublishedKey { key, version: read }, version, feed_sync_id } =
        assignment;
    let numbered = KeyRow { version: *version, number: Some(*feed_sync_id) };
    let update = Update {
        feed_sync_id: *feed_sync_id,
        key: key.clone(),
        version: *version,
        value: row.value.clone(),
    };
    [
        transact::put_if(client, rows::encode_key(feed, key, numbered), Some(*read)),
        transact::delete(client, rows::row_key(feed, &rows::pending_item(key))),
        transact::put(client, rows::encode_numbered(feed, &update)),
    ]
}

fn refused_keys(lost: &CallError, waiting: &Waiting) -> Vec<UnpublishedKey> {
    let actions = lost.refused_actions().unwrap_or_default();
    let rows = actions.into_iter().filter_map(|action| waiting.rows.get(action / ACTIONS_A_KEY));
    rows.map(|row| row.pending.clone()).collect()
}

/// Raises `settled` to the last number for a publisher that has not done so. Returns false if
/// another publisher changed the sequence meanwhile.
async fn catch_up(
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
async fn advance(
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
