//! Transactions on both tables, and their retries after a concurrent one.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::types::builders::{DeleteBuilder, PutBuilder, UpdateBuilder};
use aws_sdk_dynamodb::types::{Delete, Put, TransactWriteItem, Update};
use state_machine::feed::Publication;
use tokio::time::sleep;

use super::super::attributes::number;
use super::super::client::DynamoClient;
use super::super::error::{CallError, Item};
use super::rows::{FORGOTTEN, KEYS, NAME, VALUE, sequence_key};
use crate::feeds::{FeedName, Version};

pub(super) const TRANSACT: &str = "TransactWriteItems";

pub(super) enum Transacted {
    Done,
    /// A condition does not hold, and nothing was done. The error has the refused actions.
    Refused(CallError),
}

/// Executes all actions or none. The SDK sends every attempt with the same token: a transaction
/// whose reply was lost is not executed twice.
pub(super) async fn transact(
    client: &DynamoClient,
    actions: Vec<TransactWriteItem>,
) -> Result<Transacted, CallError> {
    let request = client.sdk.transact_write_items().set_transact_items(Some(actions));
    match client.call(TRANSACT, &client.names.feeds, request.send()).await {
        Ok(_done) => Ok(Transacted::Done),
        Err(error) if error.refused_actions().is_some() => Ok(Transacted::Refused(error)),
        Err(error) => Err(error),
    }
}

pub(super) fn put(client: &DynamoClient, item: Item) -> TransactWriteItem {
    of_put(Put::builder().table_name(&client.names.feeds).set_item(Some(item)))
}

/// Writes the row of a key, if its version is still `read`, or if there is still none.
pub(super) fn put_if(
    client: &DynamoClient,
    item: Item,
    read: Option<Version>,
) -> TransactWriteItem {
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
pub(super) fn delete_if(client: &DynamoClient, key: Item, version: Version) -> TransactWriteItem {
    let delete = Delete::builder().table_name(&client.names.feeds).set_key(Some(key));
    of_delete(
        delete
            .condition_expression("version = :version")
            .expression_attribute_values(":version", number(version.0)),
    )
}

/// Counts keys no more.
pub(super) fn uncount_keys(
    client: &DynamoClient,
    feed: &FeedName,
    count: usize,
) -> TransactWriteItem {
    let update = of_sequence(client, feed)
        .update_expression("SET #keys = #keys - :count")
        .condition_expression("#keys >= :count")
        .expression_attribute_names("#keys", KEYS)
        .expression_attribute_values(":count", number(count as u64));
    of_update(update)
}

/// Deletes a row that must exist.
pub(super) fn delete_if_there(client: &DynamoClient, key: Item) -> TransactWriteItem {
    let delete = Delete::builder().table_name(&client.names.feeds).set_key(Some(key));
    of_delete(delete.condition_expression("attribute_exists(feed)"))
}

pub(super) fn remove_sequence(client: &DynamoClient, feed: &FeedName) -> TransactWriteItem {
    let delete = Delete::builder().table_name(&client.names.sequences);
    of_delete(delete.set_key(Some(sequence_key(feed))))
}

/// Counts a new key, and creates the sequence with the first. An incomplete sequence is not
/// changed: its numbers would start again. Nor is one that has forgotten another version than
/// `forgotten`, which the version of the key was made from.
pub(super) fn count_key(
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
pub(super) fn advance(
    client: &DynamoClient,
    feed: &FeedName,
    publication: &Publication,
) -> TransactWriteItem {
    let Publication { read, sequence, .. } = publication;
    let update = of_sequence(client, feed)
        .update_expression("SET #value = :value, version = :next")
        .condition_expression("version = :read")
        .expression_attribute_names("#value", VALUE)
        .expression_attribute_values(":value", number(sequence.value.0))
        .expression_attribute_values(":next", number(sequence.version))
        .expression_attribute_values(":read", number(read.version));
    of_update(update)
}

fn of_sequence(client: &DynamoClient, feed: &FeedName) -> UpdateBuilder {
    Update::builder().table_name(&client.names.sequences).set_key(Some(sequence_key(feed)))
}

fn of_put(put: PutBuilder) -> TransactWriteItem {
    TransactWriteItem::builder().put(put.build().expect(COMPLETE)).build()
}

fn of_delete(delete: DeleteBuilder) -> TransactWriteItem {
    TransactWriteItem::builder().delete(delete.build().expect(COMPLETE)).build()
}

fn of_update(update: UpdateBuilder) -> TransactWriteItem {
    TransactWriteItem::builder().update(update.build().expect(COMPLETE)).build()
}

pub(super) const COMPLETE: &str = "it has a table and a key";

/// Attempts of one call.
const ATTEMPTS_MAX: u32 = 20;

/// The attempts of one call. The last one begins within the time of one request.
pub(super) struct RetryBudget<'a> {
    client: &'a DynamoClient,
    attempt: u32,
    begun: Instant,
    indeterminate: bool,
}

impl<'a> RetryBudget<'a> {
    pub(super) fn new(client: &'a DynamoClient) -> Self {
        Self { client, attempt: 0, begun: Instant::now(), indeterminate: false }
    }

    /// Waits before another attempt. The error is `lost` if there is none.
    pub(super) async fn next_attempt(&mut self, lost: CallError) -> Result<(), CallError> {
        self.attempt += 1;
        self.indeterminate |= lost.is_indeterminate();
        let is_late = self.begun.elapsed() >= self.client.options.operation_timeout;
        if self.attempt >= ATTEMPTS_MAX || is_late {
            return Err(lost.after_writes(self.indeterminate));
        }
        sleep(any_part_of(self.client.pause_before(self.attempt))).await;
        Ok(())
    }
}

/// Jitter, so that two calls that conflicted do not conflict again.
fn any_part_of(pause: Duration) -> Duration {
    let thousandths = RandomState::new().hash_one(0) % 1000;
    pause * thousandths as u32 / 1000
}
