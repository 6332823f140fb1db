//! The rules of receipts ([`ReceiptTables`](crate::ReceiptTables)), which are keys of their subscription's feed.
//!
//! A message is counted in `keys` of the sequence when its receipt is expected, so that its receipt is not counted again.

use futures_util::StreamExt;
use futures_util::stream;
use state_machine::feed::{FeedName, Version};
use state_machine::{Receipt, ReceiptRequest, Time};

use super::feed_rows::{
    Attempts, Committed, ExpectedChange, FeedChange, FeedRows, Refused, SequenceChange,
};
use super::feeds::{read_sequence, waiting};
use crate::receipts::{ExpectedReceipt, ExpiredReceipts, Settlement};

/// A receipt subscription ends as a whole, and forgets no entry before.
const NONE_FORGOTTEN: Version = Version(0);

/// Expects a receipt; false if the subscription is full. Calls `key` and `commit`, and `sequence` if that is refused.
pub async fn expect<R: FeedRows>(
    rows: &R,
    expected: &ExpectedReceipt,
    messages_max: u64,
) -> Result<bool, R::Error> {
    let ReceiptRequest { subscription: feed, key } = &expected.request;
    let mut attempts = Attempts::new();
    loop {
        if rows.key(feed, key).await?.is_some() {
            return Ok(true);
        }
        let sequence =
            SequenceChange::CountKey { keys_max: messages_max, forgotten: NONE_FORGOTTEN };
        let expected = ExpectedChange::Add(expected);
        match rows.commit(FeedChange { feed, expected, keys: Vec::new(), sequence }).await? {
            Committed::Done | Committed::Refused(Refused { expected: true, .. }) => {
                return Ok(true);
            }
            Committed::Refused(_) if read_sequence(rows, feed).await?.keys >= messages_max => {
                return Ok(false);
            }
            Committed::Refused(refused) => rows.next_attempt(&mut attempts, refused.lost).await?,
        }
    }
}

/// Expects a receipt no more. One that is decided stays. Calls `commit`.
pub async fn cancel<R: FeedRows>(rows: &R, expected: &ExpectedReceipt) -> Result<(), R::Error> {
    let feed = &expected.request.subscription;
    let mut attempts = Attempts::new();
    loop {
        let (expected, sequence) =
            (ExpectedChange::Remove(expected), SequenceChange::UncountKeys(1));
        match rows.commit(FeedChange { feed, expected, keys: Vec::new(), sequence }).await? {
            Committed::Done | Committed::Refused(Refused { expected: true, .. }) => return Ok(()),
            Committed::Refused(refused) => rows.next_attempt(&mut attempts, refused.lost).await?,
        }
    }
}

/// Decides the receipt of a message before its row is deleted. Returns whether one was written. Calls what [`write`] or
/// [`cancel`] calls.
pub async fn settle<R: FeedRows>(
    rows: &R,
    expected: &ExpectedReceipt,
    settlement: Settlement,
) -> Result<bool, R::Error> {
    match settlement {
        Settlement::Acked(code) => write(rows, expected, Receipt::Delivered(code)).await,
        Settlement::Withdrawn => cancel(rows, expected).await.map(|()| false),
    }
}

/// Decides receipts in the order of their subscriptions, in which feeds are locked. Returns the subscriptions that have
/// something to publish now. Calls what [`settle`] calls.
pub async fn settle_all<R: FeedRows>(
    rows: &R,
    mut receipts: Vec<(ExpectedReceipt, Settlement)>,
) -> Result<Vec<FeedName>, R::Error> {
    let mut written = Vec::new();
    receipts
        .sort_by(|(one, _), (other, _)| one.request.subscription.cmp(&other.request.subscription));
    for (expected, settlement) in receipts {
        if settle(rows, &expected, settlement).await? {
            written.push(expected.request.subscription);
        }
    }
    written.dedup();
    Ok(written)
}

/// Writes a receipt, unless one says already that the message was delivered. Returns whether one waits to be published now,
/// also that of a call before, whose caller may not know. *Expired* is written in place of no other. Calls `key`, `value` if there is one, and `commit`; `sequence` if it is not expected.
pub async fn write<R: FeedRows>(
    rows: &R,
    expected: &ExpectedReceipt,
    receipt: Receipt,
) -> Result<bool, R::Error> {
    let ReceiptRequest { subscription: feed, key } = &expected.request;
    let value = receipt.value();
    let (mut attempts, mut is_counted) = (Attempts::new(), true);
    loop {
        let before = rows.key(feed, key).await?;
        if let Some(row) = before {
            if receipt == Receipt::Expired {
                return stop_expecting(rows, expected).await;
            }
            let there = rows.value(feed, key, row).await?.flatten();
            if let Some(Receipt::Delivered(_)) = there.as_ref().and_then(Receipt::parse) {
                return Ok(row.number.is_none());
            }
        }
        let (expect, sequence) = match before {
            Some(_) => (ExpectedChange::None, SequenceChange::None),
            None if is_counted => (ExpectedChange::Remove(expected), SequenceChange::None),
            // It was counted no more when it was cancelled. A subscription that has ended meanwhile is not made again.
            None => (ExpectedChange::None, SequenceChange::RecountKey),
        };
        let change = waiting(feed, key, before, version_of(receipt), Some(&value), sequence);
        let refused = match rows.commit(FeedChange { expected: expect, ..change }).await? {
            Committed::Done => return Ok(true),
            Committed::Refused(refused) => refused,
        };
        // An ended subscription has no receipts.
        let is_ended = refused.keys.is_empty()
            && (receipt == Receipt::Expired || rows.sequence(feed).await?.is_none());
        if is_ended {
            return Ok(false);
        }
        if refused.expected && refused.keys.is_empty() {
            is_counted = false;
        } else {
            rows.next_attempt(&mut attempts, refused.lost).await?;
        }
    }
}

/// The version of a receipt that waits; its publication adds one. Each value has versions of its own. So a call that read a
/// receipt before its subscription was removed does not replace another one, which was written after that.
fn version_of(receipt: Receipt) -> Version {
    match receipt {
        Receipt::Expired => NONE_FORGOTTEN.next(),
        Receipt::Delivered(code) => Version(2 * u64::from(code.number())),
    }
}

/// Expects a receipt no more, whose message counts on. Returns that no receipt was written.
async fn stop_expecting<R: FeedRows>(
    rows: &R,
    expected: &ExpectedReceipt,
) -> Result<bool, R::Error> {
    let feed = &expected.request.subscription;
    let (expected, sequence) = (ExpectedChange::Remove(expected), SequenceChange::None);
    rows.commit(FeedChange { feed, expected, keys: Vec::new(), sequence }).await.map(|_done| false)
}

/// Writes what has expired, and removes what has ended. Calls `receipts_due` for each page, those of [`write`] for each
/// receipt, and `remove_ended`.
pub async fn expire<R: FeedRows>(rows: &R, now: Time) -> Result<ExpiredReceipts, R::Error> {
    let mut expired = ExpiredReceipts::default();
    let (mut after, mut seen) = (None, 0);
    loop {
        let (due, next) = rows.receipts_due(now, after).await?;
        let decide = due.iter().map(|due| expire_one(rows, due, now)).collect::<Vec<_>>();
        let decided = stream::iter(decide).buffered(rows.concurrent()).collect::<Vec<_>>();
        for (ExpectedReceipt { request, .. }, is_new) in due.iter().zip(decided.await) {
            if is_new? {
                expired.receipts += 1;
                if !expired.subscriptions.contains(&request.subscription) {
                    expired.subscriptions.push(request.subscription.clone());
                }
            }
        }
        seen += due.len();
        expired.is_more = next.is_some();
        if next.is_none() || seen >= R::BOUNDS.receipts {
            break;
        }
        after = next;
    }
    let (ended, is_more) = rows.remove_ended(now).await?;
    Ok(ExpiredReceipts { ended, is_more: expired.is_more || is_more, ..expired })
}

/// Writes *expired*; of a subscription that has ended, it only is expected no more. Returns whether it wrote the receipt.
async fn expire_one<R: FeedRows>(
    rows: &R,
    due: &ExpectedReceipt,
    now: Time,
) -> Result<bool, R::Error> {
    match due.request.subscription.receipts_end().is_some_and(|end| end <= now) {
        true => stop_expecting(rows, due).await,
        false => write(rows, due, Receipt::Expired).await,
    }
}
