//! Receipts as keys of their subscription's feed, and the rows of those that are expected.
//!
//! ```text
//! feeds  .expected.{part}, {deadline}:{subscription}:{key}   the deadline in 20 digits
//! ```
//!
//! The expected rows of all subscriptions are in [`PARTS`] partitions, in the order of their deadlines: a search reads
//! what is due, however many subscriptions there are. A message is counted in `keys` of the sequence when its receipt is
//! expected. The receipt is written in the transaction that removes the expected row.

use aws_sdk_dynamodb::types::TransactWriteItem;
use futures_util::StreamExt;
use futures_util::stream;
use state_machine::feed::{FeedKey, FeedName, FeedValue, Version};
use state_machine::{Receipt, ReceiptRequest, Time};

use super::super::attributes::text_of;
use super::super::client::DynamoClient;
use super::super::error::{CallError, Item, if_table};
use super::super::tables;
use super::rows::{self, FEED, ITEM, NAME};
use super::transact::{self, RetryBudget, Transacted, transact};
use super::write::{is_full, rows_of_change, stored_value};
use crate::receipts::{ExpectedReceipt, ExpiredReceipts};

/// A receipt subscription ends as a whole, and forgets no entry before.
const NONE_FORGOTTEN: Version = Version(0);

/// Receipts in one page of a search.
const PAGE_ROWS: usize = 100;

/// Items that one transaction removes: it has a hundred actions.
const REMOVED_MAX: usize = 100;

/// Partitions of expected receipts. A partition takes 1,000 write units a second, and an expected row needs four.
const PARTS: u64 = 16;

/// The prefix of their partition keys, which no feed has.
const EXPECTED: &str = ".expected.";

/// The index of the expected row in a transaction.
const EXPECTED_ROW: usize = 0;

/// Expects a receipt, and creates the tables if they are missing. False if the subscription is full.
pub(in super::super) async fn expect(
    client: &DynamoClient,
    expected: &ExpectedReceipt,
    messages_max: u64,
) -> Result<bool, CallError> {
    match add(client, expected, messages_max).await {
        Err(error) if error.is_table_missing() => {
            tables::ensure_feeds(client).await?;
            add(client, expected, messages_max).await
        }
        done => done,
    }
}

async fn add(
    client: &DynamoClient,
    expected: &ExpectedReceipt,
    messages_max: u64,
) -> Result<bool, CallError> {
    let feed = &expected.request.subscription;
    let mut budget = RetryBudget::new(client);
    loop {
        if rows::key_row(client, feed, &expected.request.key).await?.is_some() {
            return Ok(true);
        }
        let actions = vec![
            transact::put_if(client, encode(expected), None),
            transact::count_key(client, feed, messages_max, NONE_FORGOTTEN),
        ];
        let lost = match transact(client, actions).await? {
            Transacted::Done => return Ok(true),
            Transacted::Refused(lost) => lost,
        };
        match lost.refused_actions() {
            Some(refused) if refused.contains(&EXPECTED_ROW) => return Ok(true),
            _ if is_full(client, feed, messages_max).await? => return Ok(false),
            _ => budget.next_attempt(lost).await?,
        }
    }
}

/// Expects a receipt no more.
pub(in super::super) async fn cancel(
    client: &DynamoClient,
    expected: &ExpectedReceipt,
) -> Result<(), CallError> {
    let feed = &expected.request.subscription;
    let mut budget = RetryBudget::new(client);
    loop {
        let actions = vec![remove(client, expected), transact::uncount_keys(client, feed, 1)];
        match transact(client, actions).await? {
            Transacted::Done => return Ok(()),
            Transacted::Refused(lost) => match lost.refused_actions() {
                Some(refused) if refused.contains(&EXPECTED_ROW) => return Ok(()),
                _ => budget.next_attempt(lost).await?,
            },
        }
    }
}

/// Writes a receipt, unless one says already that the message was delivered. Returns whether it did. With `if_expected`
/// it is written only if no other receipt was.
pub(in super::super) async fn write(
    client: &DynamoClient,
    expected: &ExpectedReceipt,
    receipt: Receipt,
    if_expected: bool,
) -> Result<bool, CallError> {
    let ExpectedReceipt { request, .. } = expected;
    let (feed, key) = (&request.subscription, &request.key);
    let value = receipt.value();
    let mut budget = RetryBudget::new(client);
    let mut is_counted = true;
    loop {
        let row = rows::key_row(client, feed, key).await?;
        if let Some(row) = row
            && (if_expected || is_delivered(stored_value(client, feed, key, row).await?))
        {
            return Ok(false);
        }
        let mut actions = Vec::new();
        if row.is_none() {
            actions.push(match is_counted {
                true => remove(client, expected),
                // It was counted no more: cancelled, or its subscription has ended.
                false => transact::count_key(client, feed, u64::MAX, NONE_FORGOTTEN),
            });
        }
        let before = row.map_or(NONE_FORGOTTEN, |row| row.version);
        actions.extend(rows_of_change(client, feed, key, row, before, Some(&value)));
        let lost = match transact(client, actions).await? {
            Transacted::Done => return Ok(true),
            Transacted::Refused(lost) => lost,
        };
        let is_gone = lost.refused_actions().is_some_and(|refused| refused == [EXPECTED_ROW]);
        if row.is_none() && is_gone && is_counted {
            if if_expected {
                return Ok(false);
            }
            is_counted = false;
        }
        budget.next_attempt(lost).await?;
    }
}

fn is_delivered(stored: Option<Option<FeedValue>>) -> bool {
    let receipt = stored.flatten().as_ref().and_then(Receipt::parse);
    matches!(receipt, Some(Receipt::Delivered(_)))
}

/// Writes what has expired, and removes what has ended. The search reads the rows that are due, and all sequences.
pub(in super::super) async fn expire(
    client: &DynamoClient,
    now: Time,
) -> Result<ExpiredReceipts, CallError> {
    let mut expired = ExpiredReceipts::default();
    for part in 0..PARTS {
        expire_part(client, part, now, &mut expired).await?;
    }
    expired.ended = remove_ended(client, now).await?;
    Ok(expired)
}

/// Decides a page of one partition, and says whether there is more. A page in which nothing is left to decide is passed
/// over.
async fn expire_part(
    client: &DynamoClient,
    part: u64,
    now: Time,
    expired: &mut ExpiredReceipts,
) -> Result<(), CallError> {
    let values = [(":last", format!("{:020}", now.0 + 1))];
    let (partition, mut start) = (partition(part), None);
    loop {
        let found =
            rows::query_partition(client, &partition, "#item < :last", &values, start, PAGE_ROWS);
        let (items, next) = if_table(found.await)?.unwrap_or_default();
        let due = items.iter().filter_map(|item| {
            let due = decode(item);
            due.is_none().then(|| client.count_unreadable());
            due
        });
        let due: Vec<_> = due.collect();
        let decide = due.iter().map(|due| expire_one(client, due, now)).collect::<Vec<_>>();
        let at_once = client.options.rows_in_flight_max.max(1);
        let decided: Vec<_> = stream::iter(decide).buffered(at_once).collect().await;
        let before = expired.receipts;
        for (ExpectedReceipt { request, .. }, is_new) in due.iter().zip(decided) {
            if is_new? {
                expired.receipts += 1;
                if !expired.subscriptions.contains(&request.subscription) {
                    expired.subscriptions.push(request.subscription.clone());
                }
            }
        }
        if next.is_none() || expired.receipts > before {
            expired.is_more |= next.is_some();
            return Ok(());
        }
        start = next;
    }
}

/// Writes *expired*, or only removes the row if its subscription has ended. Returns whether it wrote the receipt.
async fn expire_one(
    client: &DynamoClient,
    due: &ExpectedReceipt,
    now: Time,
) -> Result<bool, CallError> {
    if due.request.subscription.receipts_end().is_some_and(|end| end <= now) {
        return transact(client, vec![remove(client, due)]).await.map(|_done| false);
    }
    write(client, due, Receipt::Expired, true).await
}

/// Removes the subscriptions that have ended. DynamoDB has no order of partition keys, so this reads all sequences.
async fn remove_ended(client: &DynamoClient, now: Time) -> Result<u64, CallError> {
    let (mut ended, mut start) = (0, None);
    loop {
        let page = client.scan(&client.names.sequences, None, start, None).await;
        let (items, next) = if_table(page)?.unwrap_or_default();
        let names = items.iter().filter_map(|item| rows::feed_of(item, NAME));
        for feed in names.filter(|feed| feed.receipts_end().is_some_and(|end| end <= now)) {
            remove_all(client, &feed).await?;
            ended += 1;
        }
        start = match next {
            Some(next) => Some(next),
            None => return Ok(ended),
        };
    }
}

/// Removes a feed, its sequence last.
async fn remove_all(client: &DynamoClient, feed: &FeedName) -> Result<(), CallError> {
    let values = [(":first", "!".to_owned())];
    loop {
        let found = rows::query(client, feed, "#item >= :first", &values, None, REMOVED_MAX).await;
        let (items, _) = if_table(found)?.unwrap_or_default();
        if items.is_empty() {
            break;
        }
        let keys = items.into_iter().map(|mut item| {
            item.retain(|name, _| [FEED, ITEM].contains(&name.as_str()));
            transact::delete(client, item)
        });
        transact(client, keys.collect()).await?;
    }
    transact(client, vec![transact::remove_sequence(client, feed)]).await.map(drop)
}

fn remove(client: &DynamoClient, expected: &ExpectedReceipt) -> TransactWriteItem {
    transact::delete_if_there(client, encode(expected))
}

fn partition(part: u64) -> String {
    format!("{EXPECTED}{part:02}")
}

/// The partition of a receipt: keys are random, so any sum of their bytes spreads them.
fn part_of(key: &FeedKey) -> u64 {
    key.as_str().bytes().map(u64::from).sum::<u64>() % PARTS
}

pub(in super::super) fn encode(expected: &ExpectedReceipt) -> Item {
    let ExpectedReceipt { request: ReceiptRequest { subscription, key }, deadline } = expected;
    let item = format!("{:020}:{subscription}:{key}", deadline.0);
    rows::key_in(&partition(part_of(key)), &item)
}

/// None of another item.
pub(in super::super) fn decode(item: &Item) -> Option<ExpectedReceipt> {
    text_of(item, FEED)?.strip_prefix(EXPECTED)?;
    let (deadline, rest) = text_of(item, ITEM)?.split_once(':')?;
    let (subscription, key) = rest.split_once(':')?;
    let subscription = FeedName::from_store(subscription).ok()?;
    let (key, deadline) = (FeedKey::parse(key).ok()?, Time(deadline.parse().ok()?));
    Some(ExpectedReceipt { request: ReceiptRequest { subscription, key }, deadline })
}
