//! Changes a key: the transaction also removes its number, so that it waits to be published.

use aws_sdk_dynamodb::types::TransactWriteItem;

use super::super::client::DynamoClient;
use super::super::error::{CallError, if_table};
use super::super::tables;
use super::rows::{self, KeyRow};
use super::transact::{self, RetryBudget, Transacted, transact};
use crate::feeds::{FeedKey, FeedName, FeedValue, Version, WriteResult};

/// The index of the key's row in a transaction that changes it.
const ROW: usize = 0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyChange {
    Republish,
    Delete,
}

/// Sets a key, and creates the tables if they are missing.
pub(super) async fn write(
    client: &DynamoClient,
    feed: &FeedName,
    key: &FeedKey,
    value: &FeedValue,
    keys_max: u64,
) -> Result<WriteResult, CallError> {
    match set(client, feed, key, value, keys_max).await {
        Err(error) if error.is_table_missing() => {
            tables::ensure_feeds(client).await?;
            set(client, feed, key, value, keys_max).await
        }
        done => done,
    }
}

/// Changes an existing key. None if there is none, or nothing to delete.
pub(super) async fn change(
    client: &DynamoClient,
    feed: &FeedName,
    key: &FeedKey,
    change: KeyChange,
) -> Result<Option<Version>, CallError> {
    let mut budget = RetryBudget::new(client);
    loop {
        let row = if_table(rows::key_row(client, feed, key).await)?.flatten();
        let Some(row) = row else { return Ok(None) };
        let lost = match stored_value(client, feed, key, row).await? {
            Some(None) if change == KeyChange::Delete => return Ok(None),
            Some(value) => {
                let value = value.filter(|_| change == KeyChange::Republish);
                let rows =
                    rows_of_change(client, feed, key, Some(row), row.version, value.as_ref());
                match transact(client, rows).await? {
                    Transacted::Done => return Ok(Some(row.version.next())),
                    Transacted::Refused(lost) => lost,
                }
            }
            None => CallError::contended("GetItem", &client.names.feeds),
        };
        budget.next_attempt(lost).await?;
    }
}

/// The value of a key whose row was read: the outer `None` if the key changed meanwhile, the inner
/// one if it is deleted.
pub(super) async fn stored_value(
    client: &DynamoClient,
    feed: &FeedName,
    key: &FeedKey,
    row: KeyRow,
) -> Result<Option<Option<FeedValue>>, CallError> {
    let item = row.number.map_or_else(|| rows::pending_item(key), rows::numbered_item);
    let item = client.get(&client.names.feeds, rows::row_key(feed, &item)).await?;
    let found = item.as_ref().and_then(rows::decode_value);
    Ok(found.filter(|(version, _)| *version == row.version).map(|(_, value)| value))
}

async fn set(
    client: &DynamoClient,
    feed: &FeedName,
    key: &FeedKey,
    value: &FeedValue,
    keys_max: u64,
) -> Result<WriteResult, CallError> {
    let mut budget = RetryBudget::new(client);
    loop {
        let row = rows::key_row(client, feed, key).await?;
        if row.is_none() && keys_max == 0 {
            return Ok(WriteResult::TooManyKeys);
        }
        let (before, count) = match row {
            Some(row) => (row.version, None),
            None => {
                let sequence = rows::sequence(client, feed).await?.map(|row| row.sequence);
                let forgotten = sequence.unwrap_or_default().forgotten;
                (forgotten, Some(transact::count_key(client, feed, keys_max, forgotten)))
            }
        };
        let mut actions = rows_of_change(client, feed, key, row, before, Some(value));
        actions.extend(count);
        let lost = match transact(client, actions).await? {
            Transacted::Done => return Ok(WriteResult::Done(before.next())),
            Transacted::Refused(lost) => lost,
        };
        if is_only_the_count(&lost) && is_full(client, feed, keys_max).await? {
            return Ok(WriteResult::TooManyKeys);
        }
        budget.next_attempt(lost).await?;
    }
}

/// The actions by which a key takes the version after `before` and waits.
pub(super) fn rows_of_change(
    client: &DynamoClient,
    feed: &FeedName,
    key: &FeedKey,
    row: Option<KeyRow>,
    before: Version,
    value: Option<&FeedValue>,
) -> Vec<TransactWriteItem> {
    let version = before.next();
    let changed = KeyRow { version, number: None };
    let changed = rows::encode_key(feed, key, changed);
    let mut actions = vec![
        transact::put_if(client, changed, row.map(|row| row.version)),
        transact::put(client, rows::encode_pending(feed, key, version, value)),
    ];
    if let Some(number) = row.and_then(|row| row.number) {
        let left = rows::row_key(feed, &rows::numbered_item(number));
        actions.push(transact::delete(client, left));
    }
    actions
}

/// Whether the sequence refused the write, and not the key.
fn is_only_the_count(lost: &CallError) -> bool {
    lost.refused_actions().is_some_and(|refused| !refused.contains(&ROW))
}

/// Fails if the sequence cannot be read.
pub(super) async fn is_full(
    client: &DynamoClient,
    feed: &FeedName,
    keys_max: u64,
) -> Result<bool, CallError> {
    let row = rows::sequence(client, feed).await?;
    Ok(row.is_some_and(|row| row.sequence.keys >= keys_max))
}
