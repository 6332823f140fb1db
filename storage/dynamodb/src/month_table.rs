//! Operations on a month's table that may be missing.

use aws_sdk_dynamodb::types::TableStatus;
use state_machine::Month;
use storage::store::StoreError;
use tokio::time::sleep;

use crate::client::DynamoClient;
use crate::error::CallError;
use crate::tables;

/// Runs an operation on a month's table. None if there is no such table.
///
/// DynamoDB has one error for a missing table and for one that is being created. To confuse the two
/// would cost an agent its subscriptions. So the table is described, and one that is being created
/// is waited for, as long as for throttling.
pub(crate) async fn with_table<T, F>(
    client: &DynamoClient,
    table: &str,
    mut operation: impl FnMut() -> F,
) -> Result<Option<T>, CallError>
where
    F: Future<Output = Result<T, CallError>>,
{
    let mut attempt = 1;
    loop {
        let error = match operation().await {
            Ok(done) => return Ok(Some(done)),
            Err(error) if error.is_table_missing() => error,
            Err(error) => return Err(error),
        };
        let described = tables::describe(client, table).await?;
        if described.is_none_or(|table| table.table_status == Some(TableStatus::Deleting)) {
            return Ok(None);
        }
        if attempt >= client.options.attempts_max {
            return Err(error);
        }
        sleep(client.pause_before(attempt)).await;
        attempt += 1;
    }
}

/// The result if a month's table must exist.
pub(crate) fn required<T>(
    month: Month,
    done: Result<Option<T>, CallError>,
) -> Result<T, StoreError> {
    done?.ok_or(StoreError::NoSuchMonth(month))
}
