//! The marks of the nodes' keys: one item of the router table, which is no user agent.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::AttributeValue;

use super::attributes::{UAID, text};
use super::client::DynamoClient;
use super::error::{CallError, Item};
use super::router::RecordUpdate;

/// Its key: no uaid. As the item of health checks it has no `last_connect`, so that it is not in the index, and no
/// census counts it.
const KEYS: &str = "keys";

const MARKS: &str = "marks";

/// Reads them: one request, of one capacity unit.
pub(super) async fn read(client: &DynamoClient) -> Result<BTreeSet<String>, CallError> {
    let table = client.names.router();
    let request = client.sdk.get_item().table_name(table).key(UAID, text(KEYS));
    let read = client.call("GetItem", table, request.consistent_read(true).send()).await?;
    Ok(marks(&read.item.unwrap_or_default()))
}

/// Puts `after` in the place of `before`. Answers whether they are `after` now.
pub(super) async fn swap(
    client: &DynamoClient,
    before: BTreeSet<String>,
    after: BTreeSet<String>,
) -> Result<bool, CallError> {
    // Sets in DynamoDB are never empty: where there are no marks there is no attribute.
    let change = RecordUpdate::of_key(KEYS.to_owned());
    let change = match after.is_empty() {
        true => change.expression("REMOVE marks"),
        false => change.expression("SET marks = :after").with(":after", set(&after)),
    };
    let change = match before.is_empty() {
        true => change.only_if("attribute_not_exists(marks)"),
        false => change.only_if("marks = :before").with(":before", set(&before)),
    };
    let refused = match change.send(client).await {
        Ok(_before) => return Ok(true),
        Err(error) if error.is_condition_failed() => error,
        Err(error) => return Err(error),
    };
    // The answer to the first attempt may have been lost, and others may have wanted the same.
    let now = match refused.into_item() {
        Some(item) => marks(&item),
        None => read(client).await?,
    };
    Ok(now == after)
}

fn set(marks: &BTreeSet<String>) -> AttributeValue {
    AttributeValue::Ss(marks.iter().cloned().collect())
}

fn marks(item: &Item) -> BTreeSet<String> {
    let marks = item.get(MARKS).and_then(|marks| marks.as_ss().ok());
    marks.into_iter().flatten().cloned().collect()
}
