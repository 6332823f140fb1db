//! Receipts as rows of their subscription's feed.
//!
//! ```text
//! feeds  feed, w:{deadline}:{key}   a receipt that is expected, its deadline in 20 digits
//! ```
//!
//! A message is counted in `keys` of the sequence when its receipt is expected. The receipt itself is a key of the feed,
//! written in the transaction that removes the expected row.

use aws_sdk_dynamodb::types::TransactWriteItem;
use state_machine::feed::{FeedKey, FeedName, Version};
use state_machine::{Receipt, ReceiptRequest, Time};

use super::super::attributes::text_of;
use super::super::client::DynamoClient;
use super::super::error::{CallError, Item, if_table};
use super::super::tables;
use super::fetch;
use super::rows::{self, FEED, ITEM};
use super::transact::{self, RetryBudget, Transacted, transact};
use super::write::{is_full, rows_of_change, stored_value};
use crate::receipts::{ExpectedReceipt, ExpiredReceipts};

/// A receipt subscription ends as a whole, and forgets no entry before.
const NONE_FORGOTTEN: Version = Version(0);

/// Receipts in one page of a search.
const PAGE_ROWS: usize = 100;

/// Items that one transaction removes: it has a hundred actions.
const REMOVED_MAX: usize = 100;

/// Subscriptions of one search.
const SUBSCRIPTIONS_MAX: usize = 10_000;

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

/// Writes a receipt, unless it is there already. Returns whether it did. With `if_expected` it is written only if no
/// other receipt was.
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
            && (if_expected
                || stored_value(client, feed, key, row).await? == Some(Some(value.clone())))
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

/// Writes what has expired, and removes what has ended. The search reads all sequences, and the rows that are due.
pub(in super::super) async fn expire(
    client: &DynamoClient,
    now: Time,
) -> Result<ExpiredReceipts, CallError> {
    let mut expired = ExpiredReceipts::default();
    let before = FeedName::receipts(Time(0), 0);
    let feeds = fetch::list(client, Some(&before), SUBSCRIPTIONS_MAX).await?;
    for feed in feeds.into_iter().map(|feed| feed.name) {
        let Some(end) = feed.receipts_end() else { continue };
        if end <= now {
            remove_all(client, &feed).await?;
            expired.ended += 1;
            continue;
        }
        let decided = expire_in(client, &feed, now).await?;
        expired.receipts += decided;
        if decided > 0 {
            expired.subscriptions.push(feed);
        }
    }
    Ok(expired)
}

/// Returns how many receipts were written.
async fn expire_in(client: &DynamoClient, feed: &FeedName, now: Time) -> Result<u64, CallError> {
    let condition = "#item BETWEEN :first AND :last";
    let values = [(":first", EXPECTED.to_owned()), (":last", sort_key(now.0 + 1, ""))];
    let (mut start, mut written) = (None, 0);
    loop {
        let (items, next) = rows::query(client, feed, condition, &values, start, PAGE_ROWS).await?;
        for item in &items {
            match decode(item) {
                Some(expected) => {
                    let is_new = write(client, &expected, Receipt::Expired, true).await?;
                    written += u64::from(is_new);
                }
                None => client.count_unreadable(),
            }
        }
        start = match next {
            Some(next) => Some(next),
            None => return Ok(written),
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
    let ExpectedReceipt { request, deadline } = expected;
    let item = sort_key(deadline.0, request.key.as_str());
    transact::delete_if_there(client, rows::row_key(&request.subscription, &item))
}

/// The prefix of the sort keys.
const EXPECTED: &str = "w:";

fn sort_key(deadline: u64, key: &str) -> String {
    format!("{EXPECTED}{deadline:020}:{key}")
}

pub(in super::super) fn encode(expected: &ExpectedReceipt) -> Item {
    let ExpectedReceipt { request, deadline } = expected;
    rows::row_key(&request.subscription, &sort_key(deadline.0, request.key.as_str()))
}

/// None of another item.
pub(in super::super) fn decode(item: &Item) -> Option<ExpectedReceipt> {
    let subscription = rows::feed_of(item, FEED)?;
    let sort_key = text_of(item, ITEM)?.strip_prefix(EXPECTED)?;
    let (deadline, key) = sort_key.split_once(':')?;
    let key = FeedKey::parse(key).ok()?;
    let deadline = Time(deadline.parse().ok()?);
    Some(ExpectedReceipt { request: ReceiptRequest { subscription, key }, deadline })
}
