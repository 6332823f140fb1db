//! Drops users: marks their records, deletes their rows in every month, and deletes their records.

use aws_sdk_dynamodb::types::{DeleteRequest, WriteRequest};
use state_machine::{Month, Uaid};
use storage::maintenance::{PREFLIGHT_UAID, ROWS_IN_A_STEP, USERS_IN_A_BATCH};

use crate::attributes::{UAID, text, text_of};
use crate::batch;
use crate::channels::CHANNELS_KEY;
use crate::client::DynamoClient;
use crate::error::{CallError, Item};
use crate::messages::write_rows;
use crate::month_table::with_table;
use crate::query::first_keys;
use crate::rows::SORT_KEY;

/// Items of one request of [`has_rows`]: more than a preflight writes in a month's table.
const ITEMS_MAX: i32 = 10;

/// Returns whether a user had rows.
pub(crate) async fn delete_rows(
    client: &DynamoClient,
    uaids: Vec<Uaid>,
    month: Month,
) -> Result<bool, CallError> {
    let users = uaids.into_iter().map(async |uaid| {
        let had = with_table(client, month, |table| delete_rows_of(client, uaid, table)).await;
        had.map(Option::unwrap_or_default)
    });
    let (some, done) = write_rows(client, users.collect()).await;
    done.map_err(|error| error.after_writes(some > 0))?;
    Ok(some > 0)
}

/// The channels are the first row: without them no message is stored.
async fn delete_rows_of(
    client: &DynamoClient,
    uaid: Uaid,
    table: String,
) -> Result<bool, CallError> {
    let keys = first_keys(client, uaid, &table, ROWS_IN_A_STEP as i32).await?;
    let (channels, messages): (Vec<_>, Vec<_>) =
        keys.iter().partition(|sort_key| *sort_key == CHANNELS_KEY);
    for sort_keys in [channels, messages] {
        let deletes = sort_keys.iter().map(|sort_key| delete_row(client, uaid, &table, sort_key));
        let (some, done) = write_rows(client, deletes.collect()).await;
        done.map_err(|error| error.after_writes(some > 0))?;
    }
    Ok(!keys.is_empty())
}

async fn delete_row(
    client: &DynamoClient,
    uaid: Uaid,
    table: &str,
    sort_key: &str,
) -> Result<bool, CallError> {
    let request = client.sdk.delete_item().table_name(table);
    let request = request.key(UAID, text(uaid.to_string())).key(SORT_KEY, text(sort_key));
    client.call("DeleteItem", table, request.send()).await.map(|_deleted| true)
}

/// Whether a month has a row of another user than that of preflight checks.
pub(crate) async fn has_rows(client: &DynamoClient, month: Month) -> Result<bool, CallError> {
    let preflight = PREFLIGHT_UAID.to_string();
    let is_of_agent = |item: &Item| text_of(item, UAID).is_some_and(|uaid| uaid != preflight);
    let mut start = None;
    loop {
        let page = with_table(client, month, async |table| {
            client.scan(&table, Some(UAID), start.clone(), Some(ITEMS_MAX)).await
        });
        let (items, next) = page.await?.unwrap_or_default();
        match next {
            _ if items.iter().any(is_of_agent) => return Ok(true),
            Some(next) => start = Some(next),
            None => return Ok(false),
        }
    }
}

/// Deletes records, one batch per request.
pub(crate) async fn delete_records(
    client: &DynamoClient,
    uaids: Vec<Uaid>,
) -> Result<(), CallError> {
    let mut some = false;
    for batch in uaids.chunks(USERS_IN_A_BATCH) {
        let deletes = batch.iter().map(|uaid| delete_request(*uaid)).collect();
        let done = batch::write(client, &client.names.router, deletes, &mut some).await;
        done.map_err(|error| error.after_writes(some))?;
    }
    Ok(())
}

fn delete_request(uaid: Uaid) -> WriteRequest {
    let delete = DeleteRequest::builder().key(UAID, text(uaid.to_string())).build();
    WriteRequest::builder().delete_request(delete.expect("it has a key")).build()
}
