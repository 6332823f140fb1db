//! Publishes waiting keys in one transaction, and then advances `settled`.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::TransactWriteItem;
use state_machine::feed::{Assignment, Publication, UnpublishedKey};

use super::super::client::DynamoClient;
use super::super::error::CallError;
use super::advance_visible;
use super::optimistic_retry::RetryBudget;
use super::pending::{self, Waiting, WaitingRow};
use super::rows::{self, KeyRow, SequenceRow};
use super::transact::{self, TRANSACT, Transacted, transact};
use crate::feeds::{FeedKey, FeedName, PublishResult, Update};

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
        let lost = match number(client, feed, row, &waiting).await? {
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

async fn number(
    client: &DynamoClient,
    feed: &FeedName,
    row: SequenceRow,
    waiting: &Waiting,
) -> Result<Numbered, CallError> {
    if !advance_visible::catch_up(client, feed, row).await? {
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
    let settled = advance_visible::advance(client, feed, publication.sequence).await;
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
