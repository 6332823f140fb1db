//! Receipts, in the router's file with the feeds that they are published in.
//!
//! A message is in the file of its month. The router's file is committed first, so that a row that is gone has left its
//! receipt (`write_connections`).

use std::sync::Arc;

use futures_util::TryFutureExt;
use state_machine::{MessageKey, Month, Time, Uaid};
use storage::data_dir::FileKey;
use storage::receipts::{Deletion, ExpectedReceipt, ExpiredReceipts, ReceiptTables, withdrawal};
use storage::rules::finished;
use storage::rules::receipts as rules;
use storage::store::{SettledMessages, StoreFuture};

use crate::error::WriterError;
use crate::router_file::RouterFile;
use crate::write_connections::WriteConnections;
use crate::writer::Target;
use crate::{Embedded, messages};

impl ReceiptTables for Embedded {
    fn expect_receipt(&self, expected: ExpectedReceipt, messages_max: u64) -> StoreFuture<bool> {
        let space = Arc::clone(&self.space);
        self.writer.submit(None, Target::File(FileKey::Router), move |files| {
            space.admit()?;
            files.write(FileKey::Router, |conn| {
                finished(rules::expect(&RouterFile(conn), &expected, messages_max))
            })
        })
    }

    fn cancel_receipt(&self, expected: ExpectedReceipt) -> StoreFuture<()> {
        self.write(None, FileKey::Router, move |conn| {
            finished(rules::cancel(&RouterFile(conn), &expected))
        })
    }

    fn withdraw_message(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        message: MessageKey,
    ) -> StoreFuture<bool> {
        let withdrawn = self.settle(uaid, months, vec![withdrawal(message)]);
        Box::pin(withdrawn.map_ok(|settled| settled.deleted > 0))
    }

    fn expire_receipts(&self, now: Time) -> StoreFuture<ExpiredReceipts> {
        self.write(None, FileKey::Router, move |conn| {
            finished(rules::expire(&RouterFile(conn), now))
        })
    }
}

impl Embedded {
    /// Deletes messages, and writes or cancels their receipts.
    pub(crate) fn settle(
        &self,
        uaid: Uaid,
        months: Vec<Month>,
        deletions: Vec<Deletion>,
    ) -> StoreFuture<SettledMessages> {
        if deletions.iter().all(|(_message, settlement)| settlement.is_none()) {
            let messages = deletions.into_iter().map(|(message, _none)| message);
            return self.delete(uaid, months, messages.collect());
        }
        self.writer.submit(Some(uaid), Target::ManyFiles, move |files| {
            settle(files, uaid, &months, &deletions)
        })
    }
}

fn settle(
    files: &mut WriteConnections,
    uaid: Uaid,
    months: &[Month],
    messages: &[Deletion],
) -> Result<SettledMessages, WriterError> {
    let mut settled = SettledMessages::default();
    let mut receipts = Vec::new();
    for month in months {
        let done = files.write_if_there(*month, |conn| messages::settle(conn, uaid, messages))?;
        let (deleted, of_month) = done.unwrap_or_default();
        settled.deleted += deleted;
        receipts.extend(of_month);
    }
    if !receipts.is_empty() {
        settled.subscriptions = files.write_receipts(|conn| {
            finished(rules::settle_all(&RouterFile(conn), receipts.clone()))
        })?;
    }
    Ok(settled)
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;
    use state_machine::feed::{FeedKey, FeedName};
    use state_machine::{AckCode, Receipt, ReceiptRequest};
    use storage::copied_rows::CopiedRow;
    use storage::sql::feeds::SqlFeeds;

    use super::*;
    use crate::copied_rows;
    use crate::schema::ROUTER;

    const DECIDED_MAX: usize = RouterFile::COMMIT.receipts;

    /// No rule leaves such rows, but a copy of a damaged store may.
    #[test]
    fn what_is_expected_beside_a_receipt_holds_up_no_other() {
        let mut conn = Connection::open_in_memory().unwrap();
        ROUTER.create(&mut conn, "in memory".as_ref()).unwrap();
        let subscription = FeedName::receipts(Time(u64::MAX), 7);
        let expected = |number: usize| {
            let key = FeedKey::parse(&format!("{number:03}")).unwrap();
            let request = ReceiptRequest { subscription: subscription.clone(), key };
            ExpectedReceipt { request, deadline: Time(number as u64) }
        };
        for number in 0..=DECIDED_MAX {
            assert!(finished(rules::expect(&RouterFile(&conn), &expected(number), 1000)).unwrap());
        }
        let delivered = Receipt::Delivered(AckCode::Delivered);
        for number in 0..DECIDED_MAX {
            assert!(
                finished(rules::write(&RouterFile(&conn), &expected(number), delivered)).unwrap()
            );
            let ExpectedReceipt { request, deadline } = expected(number);
            let (feed, key) = (request.subscription, request.key);
            copied_rows::write(&conn, &CopiedRow::ExpectedReceipt { feed, key, deadline }).unwrap();
        }
        let first = finished(rules::expire(&RouterFile(&conn), Time(1000))).unwrap();
        assert_eq!((first.receipts, first.is_more), (0, true));
        let second = finished(rules::expire(&RouterFile(&conn), Time(1000))).unwrap();
        assert_eq!((second.receipts, second.is_more), (1, false));
    }
}
