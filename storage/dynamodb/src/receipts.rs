//! Receipts of messages: read from their rows, and written before the rows are deleted.

use futures_util::{StreamExt, TryFutureExt, stream};
use state_machine::feed::FeedName;
use state_machine::{MessageKey, Month, Time, Uaid};
use storage::queue::Priority;
use storage::receipts::{Deletion, ExpectedReceipt, ExpiredReceipts, ReceiptTables, Settlement};
use storage::rules::receipts as rules;
use storage::store::{SettledMessages, StoreFuture};

use crate::Dynamo;
use crate::error::CallError;
use crate::month_rows::{MonthRows, RowIdentity};
use crate::{message_items, messages, tables};

impl ReceiptTables for Dynamo {
    fn expect_receipt(&self, expected: ExpectedReceipt, messages_max: u64) -> StoreFuture<bool> {
        self.run(Priority::Store, None, async move |client| {
            let expect = || rules::expect(&*client, &expected, messages_max);
            tables::ensure_if_missing(tables::ensure_feeds(&client), expect).await
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
                let rows = MonthRows::new(&client, uaid, month);
                let done = rows.with_table(|| settle(&rows, &messages)).await;
                let done = done.map_err(|error| error.after_writes(settled.deleted > 0))?;
                let SettledMessages { deleted, subscriptions } = done.unwrap_or_default();
                settled.deleted += deleted;
                settled.subscriptions.extend(subscriptions);
            }
            Ok::<_, CallError>(settled)
        })
    }
}

async fn settle(
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
