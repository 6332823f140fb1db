//! Forgets the entries of a feed up to its horizon.
//!
//! The horizon is raised before the first row is removed. A reader that finds a number missing reads it after the rows
//! ([`fetch`](super::fetch)).

use aws_sdk_dynamodb::types::TransactWriteItem;

use super::super::attributes::number;
use super::super::client::DynamoClient;
use super::super::error::{CallError, applied};
use super::rows::{self, FORGOTTEN, HORIZON, MARK, MARKED_AT, NAME, numbered_item, sequence_key};
use super::transact::{self, RetryBudget, Transacted, transact};
use crate::feeds::{FeedKey, FeedMark, FeedName, FeedSyncId, Forgotten, Sequence, Version};

/// Entries in one transaction: two actions each and one for the sequence, of the hundred that a
/// transaction has.
const FORGOTTEN_MAX: usize = 49;

/// An entry at or below the horizon.
struct Old {
    number: FeedSyncId,
    key: FeedKey,
    version: Version,
}

/// Raises the horizon, and removes the first entries up to it. None if there is no such feed.
pub(super) async fn forget(
    client: &DynamoClient,
    feed: &FeedName,
    through: FeedSyncId,
    limit: usize,
) -> Result<Option<Forgotten>, CallError> {
    let limit = limit.clamp(1, FORGOTTEN_MAX);
    let mut budget = RetryBudget::new(client);
    loop {
        let Some(row) = rows::sequence(client, feed).await? else { return Ok(None) };
        let horizon = row.sequence.horizon.max(through.min(row.settled));
        let (old, is_all) = oldest(client, feed, horizon, limit).await?;
        let version = old.iter().map(|old| old.version).max().unwrap_or_default();
        let raised =
            Sequence { horizon, forgotten: row.sequence.forgotten.max(version), ..row.sequence };
        let lost = if raise(client, feed, row.sequence, raised).await? {
            if old.is_empty() {
                return Ok(Some(Forgotten { count: 0, is_all }));
            }
            match transact(client, actions(client, feed, &old)).await? {
                Transacted::Done => return Ok(Some(Forgotten { count: old.len(), is_all })),
                Transacted::Refused(lost) => lost,
            }
        } else {
            CallError::contended("UpdateItem", &client.names.sequences)
        };
        budget.next_attempt(lost).await?;
    }
}

/// Replaces the mark of a feed that exists.
pub(super) async fn mark(
    client: &DynamoClient,
    feed: &FeedName,
    mark: FeedMark,
) -> Result<(), CallError> {
    let table = &client.names.sequences;
    let request = client
        .sdk
        .update_item()
        .table_name(table)
        .set_key(Some(sequence_key(feed)))
        .update_expression("SET #mark = :mark, #at = :at")
        .condition_expression("attribute_exists(#name)")
        .expression_attribute_names("#mark", MARK)
        .expression_attribute_names("#at", MARKED_AT)
        .expression_attribute_names("#name", NAME)
        .expression_attribute_values(":mark", number(mark.number.0))
        .expression_attribute_values(":at", number(mark.at.0));
    applied(client.call("UpdateItem", table, request.send()).await).map(drop)
}

/// The entries with the lowest numbers, and whether they are all up to the horizon. An unreadable
/// row stays.
async fn oldest(
    client: &DynamoClient,
    feed: &FeedName,
    horizon: FeedSyncId,
    limit: usize,
) -> Result<(Vec<Old>, bool), CallError> {
    let condition = "#item BETWEEN :first AND :last";
    let values = [(":first", numbered_item(FeedSyncId(1))), (":last", numbered_item(horizon))];
    if horizon.is_none() {
        return Ok((Vec::new(), true));
    }
    // One row more shows whether others are left.
    let (items, next) = rows::query(client, feed, condition, &values, None, limit + 1).await?;
    let is_all = next.is_none() && items.len() <= limit;
    let mut old = Vec::new();
    for item in items.iter().take(limit) {
        match rows::decode_numbered(item) {
            Some(update) => old.push(Old {
                number: update.feed_sync_id,
                key: update.key,
                version: update.version,
            }),
            None => client.count_unreadable(),
        }
    }
    Ok((old, is_all))
}

/// Raises the horizon and the greatest forgotten version, unless another node did meanwhile.
async fn raise(
    client: &DynamoClient,
    feed: &FeedName,
    read: Sequence,
    raised: Sequence,
) -> Result<bool, CallError> {
    if read == raised {
        return Ok(true);
    }
    let table = &client.names.sequences;
    let unchanged = |name: &str, read: u64| match read {
        0 => format!("attribute_not_exists(#{name})"),
        _ => format!("#{name} = :{name}"),
    };
    let horizon = unchanged(HORIZON, read.horizon.0);
    let forgotten = unchanged(FORGOTTEN, read.forgotten.0);
    let mut request = client
        .sdk
        .update_item()
        .table_name(table)
        .set_key(Some(sequence_key(feed)))
        .update_expression("SET #horizon = :new_horizon, #forgotten = :new_forgotten")
        .condition_expression(format!("attribute_exists(#name) AND {horizon} AND {forgotten}"))
        .expression_attribute_names("#name", NAME)
        .expression_attribute_names("#horizon", HORIZON)
        .expression_attribute_names("#forgotten", FORGOTTEN)
        .expression_attribute_values(":new_horizon", number(raised.horizon.0))
        .expression_attribute_values(":new_forgotten", number(raised.forgotten.0));
    for (name, read) in [(":horizon", read.horizon.0), (":forgotten", read.forgotten.0)] {
        if read > 0 {
            request = request.expression_attribute_values(name, number(read));
        }
    }
    applied(client.call("UpdateItem", table, request.send()).await)
}

/// Removes the entries, on the condition that none has changed since, and counts them.
fn actions(client: &DynamoClient, feed: &FeedName, old: &[Old]) -> Vec<TransactWriteItem> {
    let removals = old.iter().flat_map(|Old { number, key, version }| {
        let key = rows::row_key(feed, &rows::key_item(key));
        [
            transact::delete(client, rows::row_key(feed, &numbered_item(*number))),
            transact::delete_if(client, key, *version),
        ]
    });
    removals.chain([transact::uncount_keys(client, feed, old.len())]).collect()
}
