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

use super::feed_items::{self, FEED, ITEM};
use crate::attributes::text_of;
use crate::error::Item;

/// Receipts in one page of a search.
pub(super) const PAGE_ROWS: usize = 100;

/// Receipts of a search that finds a page in each partition.
pub(super) const DECIDED_MAX: usize = PAGE_ROWS * PARTS as usize;

/// Partitions of expected receipts. A partition takes 1,000 write units a second, and an expected row needs four.
pub(super) const PARTS: u64 = 16;

/// The prefix of their partition keys, which no feed has.
const EXPECTED: &str = ".expected.";

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
    feed_items::key_in(&partition(part_of(key)), &item)
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
