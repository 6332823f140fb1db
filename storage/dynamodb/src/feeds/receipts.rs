//! The rows of the receipts that are expected.
//!
//! ```text
//! feeds  .expected.{part}, {deadline}:{subscription}:{key}   the deadline in 20 digits
//! ```
//!
//! The expected rows of all subscriptions are in [`PARTS`] partitions, in the order of their deadlines: a search reads
//! what is due, however many subscriptions there are.

use state_machine::feed::{FeedKey, FeedName};
use state_machine::{ReceiptRequest, Time};
use storage::receipts::ExpectedReceipt;

use super::rows::{self, FEED, ITEM, KEYS, NAME};
use super::transaction::{delete, remove_sequence, transact};
use crate::attributes::{number_of, text_of};
use crate::client::DynamoClient;
use crate::error::{CallError, Item, if_table};

/// Receipts in one page of a search.
pub(super) const PAGE_ROWS: usize = 100;

/// Receipts of a search that finds a page in each partition.
pub(super) const DECIDED_MAX: usize = PAGE_ROWS * PARTS as usize;

/// Items that one transaction removes: it has a hundred actions.
const REMOVED_MAX: usize = 100;

/// Partitions of expected receipts. A partition takes 1,000 write units a second, and an expected row needs four.
pub(super) const PARTS: u64 = 16;

/// The prefix of their partition keys, which no feed has.
const EXPECTED: &str = ".expected.";

/// Removes the subscriptions that have ended. DynamoDB has no order of partition keys, so this reads all sequences. Returns
/// whether one of them was written meanwhile, and is left to the next call.
pub(super) async fn remove_ended(
    client: &DynamoClient,
    now: Time,
) -> Result<(u64, bool), CallError> {
    let (mut ended, mut is_more, mut start) = (0, false, None);
    loop {
        let page = client.scan(&client.names.sequences, None, start, None).await;
        let (items, next) = if_table(page)?.unwrap_or_default();
        for item in &items {
            let feed = rows::feed_of(item, NAME);
            let is_over = |feed: &FeedName| feed.receipts_end().is_some_and(|end| end <= now);
            if let Some(feed) = feed.filter(is_over) {
                let is_removed = remove_all(client, &feed, number_of(item, KEYS)).await?;
                ended += u64::from(is_removed);
                is_more |= !is_removed;
            }
        }
        start = match next {
            Some(next) => Some(next),
            None => return Ok((ended, is_more)),
        };
    }
}

/// Removes a feed, its sequence last and only if it still counts as many keys: an ack may have written one meanwhile.
/// Returns whether it did.
async fn remove_all(
    client: &DynamoClient,
    feed: &FeedName,
    keys: Option<u64>,
) -> Result<bool, CallError> {
    let values = [(":first", "!".to_owned())];
    loop {
        let found = rows::query(client, feed, "#item >= :first", &values, None, REMOVED_MAX).await;
        let (items, _) = if_table(found)?.unwrap_or_default();
        if items.is_empty() {
            break;
        }
        let keys = items.into_iter().map(|mut item| {
            item.retain(|name, _| [FEED, ITEM].contains(&name.as_str()));
            delete(client, item)
        });
        transact(client, keys.collect()).await?;
    }
    match transact(client, vec![remove_sequence(client, feed, keys)]).await {
        Err(error) if error.refused_actions().is_some() => Ok(false),
        removed => removed.map(|()| true),
    }
}

pub(super) fn partition(part: u64) -> String {
    format!("{EXPECTED}{part:02}")
}

/// The partition of a receipt: keys are random, so any sum of their bytes spreads them.
fn part_of(key: &FeedKey) -> u64 {
    key.as_str().bytes().map(u64::from).sum::<u64>() % PARTS
}

pub(crate) fn encode(expected: &ExpectedReceipt) -> Item {
    let ExpectedReceipt { request: ReceiptRequest { subscription, key }, deadline } = expected;
    let item = format!("{:020}:{subscription}:{key}", deadline.0);
    rows::key_in(&partition(part_of(key)), &item)
}

/// None of another item.
pub(crate) fn decode(item: &Item) -> Option<ExpectedReceipt> {
    text_of(item, FEED)?.strip_prefix(EXPECTED)?;
    let (deadline, rest) = text_of(item, ITEM)?.split_once(':')?;
    let (subscription, key) = rest.split_once(':')?;
    let subscription = FeedName::from_store(subscription).ok()?;
    let (key, deadline) = (FeedKey::parse(key).ok()?, Time(deadline.parse().ok()?));
    Some(ExpectedReceipt { request: ReceiptRequest { subscription, key }, deadline })
}
