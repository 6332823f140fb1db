//! Requests that write several items. What DynamoDB did not process of one is sent again after a pause.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::WriteRequest;
use tokio::time::sleep;

use crate::client::DynamoClient;
use crate::error::CallError;

/// Writes at most 25 items of one table, and sets `some` once one is written.
pub(crate) async fn write(
    client: &DynamoClient,
    table: &str,
    writes: Vec<WriteRequest>,
    some: &mut bool,
) -> Result<(), CallError> {
    let mut left = HashMap::from([(table.to_owned(), writes)]);
    for attempt in 1..=client.options.attempts_max.max(1) {
        let asked = left.values().map(Vec::len).sum::<usize>();
        let request = client.sdk.batch_write_item().set_request_items(Some(left));
        let answer = client.call(BATCH, table, request.send()).await?;
        left = answer.unprocessed_items.unwrap_or_default();
        left.retain(|_table, writes| !writes.is_empty());
        *some |= left.values().map(Vec::len).sum::<usize>() < asked;
        if left.is_empty() {
            return Ok(());
        }
        sleep(client.pause_before(attempt)).await;
    }
    Err(CallError::throttled(BATCH, table))
}

const BATCH: &str = "BatchWriteItem";
