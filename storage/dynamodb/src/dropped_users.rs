//! Drops users: marks their records, deletes their rows in every month, and deletes their records.

use state_machine::{Month, Uaid};
use storage::maintenance::{DROPPED, PREFLIGHT_UAID, ROWS_IN_A_STEP};

use crate::attributes::{UAID, text, text_of};
use crate::client::DynamoClient;
use crate::error::{CallError, Item, applied};
use crate::message_items::CHANNELS_KEY;
use crate::month_rows::MonthRows;
use crate::month_table::with_table;
use crate::router::ROUTER_TYPE;

/// Items of one request of [`has_rows`]: more than a preflight writes in a month's table.
const ITEMS_MAX: i32 = 10;

/// Returns whether a user had rows.
pub(crate) async fn delete_rows(
    client: &DynamoClient,
    uaids: Vec<Uaid>,
    month: Month,
) -> Result<bool, CallError> {
    let users = uaids.into_iter().map(async |uaid| {
        let rows = MonthRows::new(client, uaid, month);
        rows.with_table(|| delete_first_rows(&rows)).await.map(Option::unwrap_or_default)
    });
    let (some, done) = client.write_rows(users.collect()).await;
    done.map_err(|error| error.after_writes(some > 0))?;
    Ok(some > 0)
}

/// The channels are the first row: without them no message is stored.
async fn delete_first_rows(rows: &MonthRows<'_>) -> Result<bool, CallError> {
    let keys = rows.first_keys(ROWS_IN_A_STEP as i32).await?;
    let (channels, messages): (Vec<_>, Vec<_>) =
        keys.iter().partition(|sort_key| *sort_key == CHANNELS_KEY);
    for sort_keys in [channels, messages] {
        let deletes =
            sort_keys.iter().map(async |sort_key| rows.remove(sort_key).await.map(|()| true));
        let (some, done) = rows.client.write_rows(deletes.collect()).await;
        done.map_err(|error| error.after_writes(some > 0))?;
    }
    Ok(!keys.is_empty())
}

/// Whether a month has a row of another user than that of preflight checks.
pub(crate) async fn has_rows(client: &DynamoClient, month: Month) -> Result<bool, CallError> {
    let preflight = PREFLIGHT_UAID.to_string();
    let is_of_agent = |item: &Item| text_of(item, UAID).is_some_and(|uaid| uaid != preflight);
    let (table, mut start) = (client.names.messages(month), None);
    loop {
        let scan = || client.scan(&table, Some(UAID), start.clone(), Some(ITEMS_MAX));
        let (items, next) = with_table(client, &table, scan).await?.unwrap_or_default();
        match next {
            _ if items.iter().any(is_of_agent) => return Ok(true),
            Some(next) => start = Some(next),
            None => return Ok(false),
        }
    }
}

/// Deletes the records that are marked. A batch of requests would have no conditions.
pub(crate) async fn delete_records(
    client: &DynamoClient,
    uaids: Vec<Uaid>,
) -> Result<(), CallError> {
    let deletes = uaids.into_iter().map(async |uaid| {
        let table = &client.names.router;
        let request = client.sdk.delete_item().table_name(table).key(UAID, text(uaid.to_string()));
        let request = request
            .condition_expression(format!("{ROUTER_TYPE} = :dropped"))
            .expression_attribute_values(":dropped", text(DROPPED));
        applied(client.call("DeleteItem", table, request.send()).await)
    });
    let (some, done) = client.write_rows(deletes.collect()).await;
    done.map_err(|error| error.after_writes(some > 0))
}
