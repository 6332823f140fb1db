//! Publishing: steps 1 to 4 of seed 004 in one transaction, and then letting readers see it.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::TransactWriteItem;
use state_machine::feed::{Assignment, Pending, Publication};

use super::super::error::CallError;
use super::super::link::Link;
use super::contest::Contest;
use super::pending::{self, Waiting, WaitingRow};
use super::rows::{self, KeyRow, SequenceRow};
use super::settle;
use super::transact::{self, TRANSACT, Transacted, transact};
use crate::feeds::{FeedKey, FeedName, Published, Update};

/// Gives keys that wait the next numbers. None where there is no such feed.
pub(super) async fn publish(
    link: &Link,
    feed: &FeedName,
    after: Option<&FeedKey>,
    limit: usize,
) -> Result<Option<Published>, CallError> {
    let mut contest = Contest::new(link);
    // A row that says again what was refused before is not just late.
    let mut refused = BTreeSet::new();
    loop {
        let Some(row) = rows::sequence(link, feed).await? else { return Ok(None) };
        let waiting = pending::read(link, feed, after, limit, &refused).await?;
        let lost = match number(link, feed, row, &waiting).await? {
            Numbered::Done(published) => return Ok(Some(published)),
            Numbered::Lost(lost) => lost,
        };
        refused.extend(refused_keys(&lost, &waiting));
        contest.again(lost).await?;
    }
}

enum Numbered {
    Done(Published),
    /// Somebody else was faster.
    Lost(CallError),
}

async fn number(
    link: &Link,
    feed: &FeedName,
    row: SequenceRow,
    waiting: &Waiting,
) -> Result<Numbered, CallError> {
    if !settle::catch_up(link, feed, row).await? {
        return Ok(Numbered::Lost(CallError::contended(TRANSACT, link.names.sequences())));
    }
    let pending = waiting.rows.iter().map(|row| row.pending.clone()).collect();
    let Some(publication) = Publication::of(row.sequence, pending) else {
        let next = waiting.last.clone().filter(|_| !waiting.is_all);
        let published = Published { count: 0, head: row.sequence.value, next };
        return Ok(Numbered::Done(published));
    };
    let actions = actions(link, feed, &publication, &waiting.rows);
    if let Transacted::Refused(lost) = transact(link, actions).await? {
        return Ok(Numbered::Lost(lost));
    }
    // Where somebody else has published since, they settled this before.
    let settled = settle::raise(link, feed, publication.sequence).await;
    let _is_last = settled.map_err(|error| error.after_writes(true))?;
    Ok(Numbered::Done(publication.outcome(waiting.is_all)))
}

/// The keys come first, [`ACTIONS_A_KEY`] each.
fn actions(
    link: &Link,
    feed: &FeedName,
    publication: &Publication,
    waiting: &[WaitingRow],
) -> Vec<TransactWriteItem> {
    let keys = publication.assignments.iter().zip(waiting);
    let keys = keys.flat_map(|(assignment, row)| actions_of_key(link, feed, assignment, row));
    keys.chain([transact::advance(link, feed, publication)]).collect()
}

const ACTIONS_A_KEY: usize = 3;

fn actions_of_key(
    link: &Link,
    feed: &FeedName,
    assignment: &Assignment,
    row: &WaitingRow,
) -> [TransactWriteItem; ACTIONS_A_KEY] {
    let Assignment { pending: Pending { key, version: read }, version, feed_sync_id } = assignment;
    let numbered = KeyRow { version: *version, number: Some(*feed_sync_id) };
    let update = Update {
        feed_sync_id: *feed_sync_id,
        key: key.clone(),
        version: *version,
        value: row.value.clone(),
    };
    [
        transact::put_if(link, rows::encode_key(feed, key, numbered), Some(*read)),
        transact::delete(link, rows::place(feed, &rows::pending_item(key))),
        transact::put(link, rows::encode_numbered(feed, &update)),
    ]
}

fn refused_keys(lost: &CallError, waiting: &Waiting) -> Vec<Pending> {
    let actions = lost.refused_actions().unwrap_or_default();
    let rows = actions.into_iter().filter_map(|action| waiting.rows.get(action / ACTIONS_A_KEY));
    rows.map(|row| row.pending.clone()).collect()
}
