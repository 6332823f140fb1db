//! Working with a month's table that may not be there.

use aws_sdk_dynamodb::types::TableStatus;
use state_machine::Month;
use tokio::time::sleep;

use super::client::DynamoClient;
use super::error::CallError;
use crate::store::StoreError;

/// Does something with a month's table, named as DynamoDB has it. None if there is no such table.
///
/// DynamoDB says of a table that is just being made what it says of one that does not exist. Taking
/// the one for the other would cost an agent its subscriptions, so the table itself is asked for; and
/// one that is coming is waited for, as long as for throttling.
pub(super) async fn with_table<T, F>(
    client: &DynamoClient,
    month: Month,
    mut operation: impl FnMut(String) -> F,
) -> Result<Option<T>, CallError>
where
    F: Future<Output = Result<T, CallError>>,
{
    let table = client.names.messages(month);
    let mut attempt = 1;
    loop {
        let error = match operation(table.clone()).await {
            Ok(done) => return Ok(Some(done)),
            Err(error) if error.is_table_missing() => error,
            Err(error) => return Err(error),
        };
        if is_gone(client, &table).await? {
            return Ok(None);
        }
        if attempt >= client.options.attempts_max {
            return Err(error);
        }
        sleep(client.pause_before(attempt)).await;
        attempt += 1;
    }
}

/// What is answered where a month's table must be there.
pub(super) fn required<T>(
    month: Month,
    done: Result<Option<T>, CallError>,
) -> Result<T, StoreError> {
    done?.ok_or(StoreError::NoSuchMonth(month))
}

/// Whether a table does not exist, or will not in a moment.
async fn is_gone(client: &DynamoClient, table: &str) -> Result<bool, CallError> {
    let request = client.sdk.describe_table().table_name(table).send();
    match client.call("DescribeTable", table, request).await {
        Ok(description) => {
            let status = description.table.and_then(|table| table.table_status);
            Ok(status == Some(TableStatus::Deleting))
        }
        Err(error) if error.is_table_missing() => Ok(true),
        Err(error) => Err(error),
    }
}
