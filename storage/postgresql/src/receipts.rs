//! Receipts, in the same transaction as what becomes of their messages.

use futures_util::TryFutureExt;
use state_machine::{MessageKey, Month, Time, Uaid};
use storage::queue::Priority;
use storage::receipts::{Deletion, ExpectedReceipt, ExpiredReceipts, ReceiptTables, Settlement};
use storage::rules::receipts as rules;
use storage::store::{SettledMessages, StoreFuture};

use crate::client::transact;
use crate::feed_rows::Feeds;
use crate::{Postgres, messages};

impl ReceiptTables for Postgres {
    fn expect_receipt(&self, expected: ExpectedReceipt, messages_max: u64) -> StoreFuture<bool> {
        self.run(Priority::Store, None, async move |client| {
            transact!(client, |transaction| rules::expect(
                &Feeds::writing(&transaction),
                &expected,
                messages_max
            )
            .await)
        })
    }

    fn cancel_receipt(&self, expected: ExpectedReceipt) -> StoreFuture<()> {
        self.call(async move |client| {
            transact!(client, |transaction| rules::cancel(&Feeds::writing(&transaction), &expected)
                .await)
        })
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
        self.call(async move |client| {
            transact!(client, |transaction| rules::expire(&Feeds::writing(&transaction), now).await)
        })
    }
}

impl Postgres {
    /// Deletes messages, and writes or cancels their receipts.
    pub(crate) fn settle(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        deletions: Vec<Deletion>,
    ) -> StoreFuture<SettledMessages> {
        self.write(uaid, async move |client| {
            messages::settle(&client, uaid, &months, &deletions).await
        })
    }
}
