//! Receipts of messages: read from their rows, and written before the rows are deleted.

use futures_util::{StreamExt, TryFutureExt, stream};
use state_machine::feed::FeedName;
use state_machine::{MessageKey, Month, Time, Uaid};
use storage::queue::Priority;
use storage::receipts::{Deletion, ExpectedReceipt, ExpiredReceipts, ReceiptTables, Settlement};
use storage::rules::receipts as rules;
use storage::store::{SettledMessages, StoreFuture};

use crate::Dynamo;
use crate::attributes::{UAID, text};
use crate::client::DynamoClient;
use crate::error::{CallError, Item};
use crate::messages::{self, Row};
use crate::month_table::with_table;
use crate::rows::{self, SORT_KEY};
use crate::tables;

impl ReceiptTables for Dynamo {
    fn expect_receipt(&self, expected: ExpectedReceipt, messages_max: u64) -> StoreFuture<bool> {
        self.run(Priority::Store, None, async move |client| {
            expect(&client, &expected, messages_max).await
        })
    }

    fn cancel_receipt(&self, expected: ExpectedReceipt) -> StoreFuture<()> {
        self.call(async move |client| rules::cancel(&*client, &expected).await)
    }

    fn withdraw_message(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        message: MessageKey,
    ) -> StoreFuture<bool> {
        let withdrawn = match message.id.may_want_receipt() {
            true => self.settle(uaid, months, vec![(message, Some(Settlement::Withdrawn))]),
            false => self.delete(uaid, months, vec![message]),
        };
        Box::pin(withdrawn.map_ok(|settled| settled.deleted > 0))
    }

    fn expire_receipts(&self, now: Time) -> StoreFuture<ExpiredReceipts> {
        self.call(async move |client| rules::expire(&*client, now).await)
    }
}

impl Dynamo {
    /// Deletes messages, and writes or cancels their receipts.
    pub(crate) fn settle(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        deletions: Vec<Deletion>,
    ) -> StoreFuture<SettledMessages> {
        let (mut messages, mut others) = (Vec::new(), Vec::new());
        for (message, settlement) in deletions {
            match settlement {
                Some(settlement) => messages.push((message, settlement)),
                None => others.push(message),
            }
        }
        self.write(uaid, async move |client| {
            let mut settled = SettledMessages::default();
            if !others.is_empty() {
                settled.deleted = messages::delete(&client, uaid, &months, &others).await?;
            }
            for month in months {
                let done = with_table(&client, month, async |table| {
                    settle(&client, uaid, &table, &messages).await
                });
                let done = done.await.map_err(|error| error.after_writes(settled.deleted > 0))?;
                let SettledMessages { deleted, subscriptions } = done.unwrap_or_default();
                settled.deleted += deleted;
                settled.subscriptions.extend(subscriptions);
            }
            Ok::<_, CallError>(settled)
        })
    }
}

/// Expects a receipt, and creates the tables if they are missing.
async fn expect(
    client: &DynamoClient,
    expected: &ExpectedReceipt,
    messages_max: u64,
) -> Result<bool, CallError> {
    match rules::expect(client, expected, messages_max).await {
        Err(error) if error.is_table_missing() => {
            tables::ensure_feeds(client).await?;
            rules::expect(client, expected, messages_max).await
        }
        done => done,
    }
}

async fn settle(
    client: &DynamoClient,
    uaid: Uaid,
    table: &str,
    messages: &[(MessageKey, Settlement)],
) -> Result<SettledMessages, CallError> {
    let keys: Vec<_> = messages.iter().map(|(key, _)| key.clone()).collect();
    let found = messages::find(client, uaid, table, &keys).await?;
    let at_once = client.options.rows_in_flight_max.max(1);
    let decide = found.iter().map(|row| decide(client, uaid, table, row, messages));
    let decide: Vec<_> = decide.collect();
    let decided: Vec<_> = stream::iter(decide).buffer_unordered(at_once).collect().await;
    let mut settled = SettledMessages::default();
    for decided in decided {
        settled.subscriptions.extend(decided?);
    }
    settled.subscriptions.sort();
    settled.subscriptions.dedup();
    let (deleted, done) = messages::delete_rows(client, uaid, table, &found).await;
    done.map_err(|error| error.after_writes(true))?;
    Ok(SettledMessages { deleted, ..settled })
}

/// Writes or cancels the receipt that a row names. Returns its subscription if it has something to publish now.
async fn decide(
    client: &DynamoClient,
    uaid: Uaid,
    table: &str,
    row: &Row,
    messages: &[(MessageKey, Settlement)],
) -> Result<Option<FeedName>, CallError> {
    let key = [(UAID, uaid.to_string()), (SORT_KEY, row.sort_key.clone())];
    let key = key.map(|(name, value)| (name.to_owned(), text(value)));
    let item = client.get(table, Item::from(key)).await?;
    let message = item.as_ref().and_then(rows::decode);
    let settlement = message.as_ref().and_then(|message| {
        let is_it = |(key, _): &&(MessageKey, Settlement)| key.id == message.id;
        messages.iter().find(is_it).map(|(_, settlement)| *settlement)
    });
    let (Some(expected), Some(settlement)) =
        (message.as_ref().and_then(ExpectedReceipt::of), settlement)
    else {
        return Ok(None);
    };
    let is_new = rules::settle(client, &expected, settlement).await?;
    Ok(is_new.then_some(expected.request.subscription))
}

/// Expects the receipt no more that a row names, if it names one.
pub(crate) async fn cancel_row(client: &DynamoClient, item: &Item) -> Result<(), CallError> {
    match rows::decode(item).as_ref().and_then(ExpectedReceipt::of) {
        Some(expected) => rules::cancel(client, &expected).await,
        None => Ok(()),
    }
}
