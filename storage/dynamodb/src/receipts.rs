//! Receipts of messages: read from their rows, and written before the rows are deleted.

use futures_util::{StreamExt, stream};
use state_machine::feed::FeedName;
use state_machine::{MessageKey, Month, Uaid};
use storage::receipts::{Deletion, ExpectedReceipt, Settlement};
use storage::rules::receipts as rules;
use storage::store::SettledMessages;

use crate::client::DynamoClient;
use crate::error::CallError;
use crate::month_rows::{MonthRows, RowIdentity};
use crate::{message_items, messages};

/// Deletes messages, and writes or cancels their receipts.
pub(crate) async fn settle(
    client: &DynamoClient,
    uaid: Uaid,
    months: &[Month],
    deletions: Vec<Deletion>,
) -> Result<SettledMessages, CallError> {
    let (mut messages, mut others) = (Vec::new(), Vec::new());
    for (message, settlement) in deletions {
        match settlement {
            Some(settlement) => messages.push((message, settlement)),
            None => others.push(message),
        }
    }
    let mut settled = SettledMessages::default();
    if !others.is_empty() {
        settled.deleted = messages::delete(client, uaid, months, &others).await?;
    }
    for month in months {
        let rows = MonthRows::new(client, uaid, *month);
        let done = rows.with_table(|| settle_in(&rows, &messages)).await;
        let done = done.map_err(|error| error.after_writes(settled.deleted > 0))?;
        let SettledMessages { deleted, subscriptions } = done.unwrap_or_default();
        settled.deleted += deleted;
        settled.subscriptions.extend(subscriptions);
    }
    Ok(settled)
}

async fn settle_in(
    rows: &MonthRows<'_>,
    messages: &[(MessageKey, Settlement)],
) -> Result<SettledMessages, CallError> {
    let keys: Vec<_> = messages.iter().map(|(key, _)| key.clone()).collect();
    let found = messages::find(rows, &keys).await?;
    let at_once = rows.client.options.rows_in_flight_max.max(1);
    let decide = found.iter().map(|row| decide(rows, row, messages));
    let decide: Vec<_> = decide.collect();
    let decided: Vec<_> = stream::iter(decide).buffer_unordered(at_once).collect().await;
    let mut settled = SettledMessages::default();
    for decided in decided {
        settled.subscriptions.extend(decided?);
    }
    settled.subscriptions.sort();
    settled.subscriptions.dedup();
    let (deleted, done) = messages::delete_rows(rows, &found).await;
    done.map_err(|error| error.after_writes(true))?;
    Ok(SettledMessages { deleted, ..settled })
}

/// Writes or cancels the receipt that a row names. Returns its subscription if it has something to publish now.
async fn decide(
    rows: &MonthRows<'_>,
    row: &RowIdentity,
    messages: &[(MessageKey, Settlement)],
) -> Result<Option<FeedName>, CallError> {
    let item = rows.get(&row.sort_key).await?;
    let message = item.as_ref().and_then(message_items::decode);
    let settlement = message.as_ref().and_then(|message| {
        let is_it = |(key, _): &&(MessageKey, Settlement)| key.id == message.id;
        messages.iter().find(is_it).map(|(_, settlement)| *settlement)
    });
    let (Some(expected), Some(settlement)) =
        (message.as_ref().and_then(ExpectedReceipt::of), settlement)
    else {
        return Ok(None);
    };
    let is_new = rules::settle(rows.client, &expected, settlement).await?;
    Ok(is_new.then_some(expected.request.subscription))
}
