//! Changing a key: it leaves its number in the same transaction, and waits to be published.

use aws_sdk_dynamodb::types::TransactWriteItem;

use super::super::error::CallError;
use super::super::link::Link;
use super::super::tables;
use super::contest::Contest;
use super::held::{self, Held};
use super::rows::{self, KeyRow};
use super::transact::{self, Transacted, transact};
use crate::feeds::{FeedKey, FeedName, FeedValue, Version, Written};

/// The place of the key's row in a transaction that changes it.
const ROW: usize = 0;

/// What becomes of a key that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It is published again.
    Nothing,
    /// It is deleted.
    Delete,
}

/// Sets a key. The tables are made by the first that finds them missing.
pub(super) async fn write(
    link: &Link,
    feed: &FeedName,
    key: &FeedKey,
    value: &FeedValue,
    keys_max: u64,
) -> Result<Written, CallError> {
    match set(link, feed, key, value, keys_max).await {
        Err(error) if error.is_table_missing() => {
            tables::ensure_feeds(link).await?;
            set(link, feed, key, value, keys_max).await
        }
        done => done,
    }
}

/// Changes a key that is there. None where there is none, or nothing to delete.
pub(super) async fn change(
    link: &Link,
    feed: &FeedName,
    key: &FeedKey,
    change: Change,
) -> Result<Option<Version>, CallError> {
    let mut contest = Contest::new(link);
    loop {
        let row = match rows::key_row(link, feed, key).await {
            Err(error) if error.is_table_missing() => return Ok(None),
            row => row?,
        };
        let Some(row) = row else { return Ok(None) };
        let lost = match held::value(link, feed, key, row).await? {
            Held::Value(None) if change == Change::Delete => return Ok(None),
            Held::Value(value) => {
                let value = value.filter(|_| change == Change::Nothing);
                let rows = rows_of_change(link, feed, key, Some(row), value.as_ref());
                match transact(link, rows).await? {
                    Transacted::Done => return Ok(Some(row.version.next())),
                    Transacted::Refused(lost) => lost,
                }
            }
            Held::Changed => CallError::contended("GetItem", link.names.feeds()),
        };
        contest.again(lost).await?;
    }
}

async fn set(
    link: &Link,
    feed: &FeedName,
    key: &FeedKey,
    value: &FeedValue,
    keys_max: u64,
) -> Result<Written, CallError> {
    let mut contest = Contest::new(link);
    loop {
        let row = rows::key_row(link, feed, key).await?;
        if row.is_none() && keys_max == 0 {
            return Ok(Written::TooManyKeys);
        }
        let mut actions = rows_of_change(link, feed, key, row, Some(value));
        if row.is_none() {
            actions.push(transact::count_key(link, feed, keys_max));
        }
        let lost = match transact(link, actions).await? {
            Transacted::Done => {
                return Ok(Written::Done(row.map(|row| row.version).unwrap_or_default().next()));
            }
            Transacted::Refused(lost) => lost,
        };
        if is_only_the_count(&lost) && is_full(link, feed, keys_max).await? {
            return Ok(Written::TooManyKeys);
        }
        contest.again(lost).await?;
    }
}

/// The rows of a key that takes its next version and waits.
fn rows_of_change(
    link: &Link,
    feed: &FeedName,
    key: &FeedKey,
    row: Option<KeyRow>,
    value: Option<&FeedValue>,
) -> Vec<TransactWriteItem> {
    let version = row.map(|row| row.version).unwrap_or_default().next();
    let changed = KeyRow { version, number: None };
    let changed = rows::encode_key(feed, key, changed);
    let mut actions = vec![
        transact::put_if(link, changed, row.map(|row| row.version)),
        transact::put(link, rows::encode_pending(feed, key, version, value)),
    ];
    if let Some(number) = row.and_then(|row| row.number) {
        let left = rows::place(feed, &rows::numbered_item(number));
        actions.push(transact::delete(link, left));
    }
    actions
}

/// Whether the key is as it was read, and so the sequence was in the way.
fn is_only_the_count(lost: &CallError) -> bool {
    lost.refused_actions().is_some_and(|refused| !refused.contains(&ROW))
}

/// An error where the sequence cannot be read: it is not touched then.
async fn is_full(link: &Link, feed: &FeedName, keys_max: u64) -> Result<bool, CallError> {
    let row = rows::sequence(link, feed).await?;
    Ok(row.is_some_and(|row| row.sequence.keys >= keys_max))
}
