//! The fingerprints of the nodes' keys, in one item of the router table.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::AttributeValue;

use crate::attributes::{UAID, text};
use crate::client::DynamoClient;
use crate::error::{CallError, Item};
use crate::record_update::{RecordUpdate, Updated};

/// The key is no uaid, and the item has no `last_connect`: it is not in the index and not counted.
pub(crate) const KEYS: &str = "keys";

const MARKS: &str = "marks";

/// One request, of one capacity unit.
pub(crate) async fn read(client: &DynamoClient) -> Result<BTreeSet<String>, CallError> {
    let key = Item::from([(UAID.to_owned(), text(KEYS))]);
    let item = client.get(&client.names.router, key).await?;
    Ok(marks(&item.unwrap_or_default()))
}

/// Replaces `before` by `after`. Returns whether they are `after` now.
pub(crate) async fn swap(
    client: &DynamoClient,
    before: BTreeSet<String>,
    after: BTreeSet<String>,
) -> Result<bool, CallError> {
    // A set in DynamoDB cannot be empty: then there is no attribute.
    let change = RecordUpdate::of_key(KEYS.to_owned());
    let change = match after.is_empty() {
        true => change.remove(MARKS),
        false => change.set(MARKS, set(&after)),
    };
    let change = match before.is_empty() {
        true => change.only_if("attribute_not_exists(marks)"),
        false => change.only_if("marks = :before").with(":before", set(&before)),
    };
    match change.try_send(client).await? {
        Updated::Done(_before) => Ok(true),
        // The reply to the first attempt may be lost, or another node wrote the same.
        Updated::Refused { item, .. } => Ok(marks(&item.unwrap_or_default()) == after),
    }
}

fn set(marks: &BTreeSet<String>) -> AttributeValue {
    AttributeValue::Ss(marks.iter().cloned().collect())
}

fn marks(item: &Item) -> BTreeSet<String> {
    let marks = item.get(MARKS).and_then(|marks| marks.as_ss().ok());
    marks.into_iter().flatten().cloned().collect()
}
