//! Copies of a whole store: pages of tables, and items written as they are.
//!
//! What other software wrote is read as a server reads it: rows that an agent has acked to autopush are left out.

use aws_sdk_dynamodb::types::{PutRequest, Select, WriteRequest};
use state_machine::{Month, ReceiptRequest, Uaid};
use storage::copied_rows::{CopiedPage, CopiedRow, PAGE_ROWS_MAX};
use storage::feeds::{FeedKey, FeedState, Update};
use storage::maintenance::{PREFLIGHT_UAID, Table, USERS_IN_A_BATCH};
use storage::receipts::ExpectedReceipt;
use storage::record_row::RecordRow;
use storage::rules::feed_rows::KeyRow;
use storage::store::{Cursor, StoreError};

use crate::acked_rows::LastAcked;
use crate::attributes::{UAID, text, text_of};
use crate::batch;
use crate::client::DynamoClient;
use crate::error::{CallError, Item, if_table};
use crate::feeds::{expected_receipts, feed_items};
use crate::message_items::{self, CHANNELS_KEY, SORT_KEY, WAITING_KEY, sort_key_of};
use crate::month_rows::MonthRows;
use crate::month_table::{required, with_table};
use crate::{channels, key_fingerprints, notifications, registration, router};

pub(crate) async fn read(
    client: &DynamoClient,
    table: Table,
    after: Option<Cursor>,
) -> Result<CopiedPage, CallError> {
    let (name, keys) = (client.names.table(table), keys_of(table));
    let start = after.as_ref().map(|after| start(keys, after));
    let scan = || client.scan(&name, None, start.clone(), Some(PAGE_ROWS_MAX as i32));
    let scanned = match table {
        Table::Messages(_) => with_table(client, &name, scan).await?,
        _ => if_table(scan().await)?,
    };
    let Some((items, next)) = scanned else { return Ok(CopiedPage::default()) };
    let mut page =
        CopiedPage { next: next.and_then(|key| cursor(keys, &key)), ..CopiedPage::default() };
    match table {
        Table::Messages(month) => read_month(client, month, &items, &mut page).await?,
        _ => {
            for item in items.iter().filter(|item| is_data(item)) {
                let row = row_of(client, table, item)?;
                page.unreadable += u64::from(row.is_none());
                page.rows.extend(row);
            }
        }
    }
    Ok(page)
}

/// The items of a table, but those that belong to a server.
pub(crate) async fn count(client: &DynamoClient, table: Table) -> Result<u64, CallError> {
    let (name, keys) = (client.names.table(table), keys_of(table));
    let counted = match table {
        Table::Messages(_) => {
            with_table(client, &name, || count_items(client, &name, keys)).await?
        }
        _ => if_table(count_items(client, &name, keys).await)?,
    };
    Ok(counted.unwrap_or(0))
}

async fn count_items(client: &DynamoClient, table: &str, keys: &[&str]) -> Result<u64, CallError> {
    let is_data = "NOT #partition IN (:health, :keys, :preflight, :feed)";
    let scan = client.sdk.scan().table_name(table).consistent_read(true).select(Select::Count);
    let scan = scan
        .filter_expression(is_data)
        .expression_attribute_names("#partition", keys[0])
        .expression_attribute_values(":health", text(router::HEALTH))
        .expression_attribute_values(":keys", text(key_fingerprints::KEYS))
        .expression_attribute_values(":preflight", text(PREFLIGHT_UAID.to_string()))
        .expression_attribute_values(":feed", text(feed_items::PREFLIGHT_FEED));
    let scan = match keys {
        [_, SORT_KEY] => scan
            .filter_expression(format!("{is_data} AND #sort <> :waiting"))
            .expression_attribute_names("#sort", SORT_KEY)
            .expression_attribute_values(":waiting", text(WAITING_KEY)),
        _ => scan,
    };
    let (mut counted, mut start) = (0, None);
    loop {
        let request = scan.clone().set_exclusive_start_key(start);
        let page = client.call("Scan", table, request.send()).await?;
        counted += u64::from(page.count.unsigned_abs());
        start = page.last_evaluated_key;
        if start.is_none() {
            return Ok(counted);
        }
    }
}

/// Writes the items of the rows in batches.
pub(crate) async fn write(
    client: &DynamoClient,
    table: Table,
    rows: &[CopiedRow],
) -> Result<(), StoreError> {
    let items: Vec<_> = rows.iter().map(|row| item_of(client, row)).collect();
    let month = match table {
        Table::Messages(month) => Some(month),
        _ => None,
    };
    let name = client.names.table(table);
    let batches = items.chunks(USERS_IN_A_BATCH).map(|items| put_all(client, &name, month, items));
    let (written, done) = client.write_rows(batches.collect()).await;
    done.map_err(|error| match written {
        0 => error,
        _ => StoreError::Failed(error.to_string()),
    })
}

async fn put_all(
    client: &DynamoClient,
    name: &str,
    month: Option<Month>,
    items: &[Item],
) -> Result<bool, StoreError> {
    let put = async || {
        let puts = items.iter().map(|item| {
            let put = PutRequest::builder().set_item(Some(item.clone())).build();
            WriteRequest::builder().put_request(put.expect("it has an item")).build()
        });
        let mut some = false;
        let done = batch::write(client, name, puts.collect(), &mut some).await;
        done.map_err(|error| error.after_writes(some))
    };
    match month {
        Some(month) => required(month, with_table(client, name, put).await)?,
        None => put().await?,
    }
    Ok(true)
}

/// The attributes of a table's key.
fn keys_of(table: Table) -> &'static [&'static str] {
    match table {
        Table::Router => &[UAID],
        Table::Notifications => &[UAID, notifications::CHID],
        Table::Sequences => &[feed_items::NAME],
        Table::Feeds => &[feed_items::FEED, feed_items::ITEM],
        Table::Messages(_) => &[UAID, SORT_KEY],
    }
}

/// No partition key has a space; a sort key may be one.
pub(crate) fn cursor(keys: &[&str], key: &Item) -> Option<Cursor> {
    let parts: Option<Vec<_>> = keys.iter().map(|name| text_of(key, name)).collect();
    parts.map(|parts| Cursor::new(parts.join(" ")))
}

/// The reverse of [`cursor`].
pub(crate) fn start(keys: &[&str], cursor: &Cursor) -> Item {
    let parts = cursor.as_str().splitn(keys.len(), ' ');
    keys.iter().zip(parts).map(|(name, part)| ((*name).to_owned(), text(part))).collect()
}

/// Not the items of health checks, key fingerprints and preflight checks.
fn is_data(item: &Item) -> bool {
    let preflight = PREFLIGHT_UAID.to_string();
    match text_of(item, UAID) {
        Some(router::HEALTH | key_fingerprints::KEYS) => false,
        Some(uaid) => uaid != preflight,
        None => !feed_items::is_preflight(item),
    }
}

/// None for an item that cannot be decoded.
fn row_of(
    client: &DynamoClient,
    table: Table,
    item: &Item,
) -> Result<Option<CopiedRow>, CallError> {
    let uaid = || Uaid::parse(text_of(item, UAID)?).ok();
    Ok(match table {
        Table::Router => match uaid() {
            Some(uaid) => {
                router::months(client, item)?;
                let row = router::readable_row(client, uaid, item, None)?;
                row.curmonth.map(|_month| CopiedRow::Record(RecordRow { node: None, ..row }))
            }
            None => None,
        },
        Table::Notifications => {
            uaid().and_then(|uaid| Some(CopiedRow::Version(uaid, notifications::decode(item)?)))
        }
        Table::Sequences => feed_items::feed_of(item, feed_items::NAME).and_then(|name| {
            let sequence = feed_items::decode_sequence(item)?.sequence;
            Some(CopiedRow::Sequence(FeedState { name, sequence }))
        }),
        Table::Feeds => feed_row_of(item),
        Table::Messages(_) => None,
    })
}

/// An item of the feeds' table of any kind.
fn feed_row_of(item: &Item) -> Option<CopiedRow> {
    if let Some(ExpectedReceipt { request, deadline }) = expected_receipts::decode(item) {
        let ReceiptRequest { subscription: feed, key } = request;
        return Some(CopiedRow::ExpectedReceipt { feed, key, deadline });
    }
    let feed = feed_items::feed_of(item, feed_items::FEED)?;
    if let Some(key) = text_of(item, feed_items::ITEM)?.strip_prefix("k:") {
        let KeyRow { version, number } = feed_items::decode_key(item)?;
        return Some(CopiedRow::Key { feed, key: FeedKey::parse(key).ok()?, version, number });
    }
    if let Some(key) = feed_items::pending_at(item) {
        let (version, value) = feed_items::decode_value(item)?;
        return Some(CopiedRow::Value { feed, key, version, number: None, value });
    }
    let Update { feed_sync_id, key, version, value } = feed_items::decode_numbered(item)?;
    Some(CopiedRow::Value { feed, key, version, number: Some(feed_sync_id), value })
}

/// Adds the channels and messages among the items of a month.
async fn read_month(
    client: &DynamoClient,
    month: Month,
    items: &[Item],
    page: &mut CopiedPage,
) -> Result<(), CallError> {
    let items: Vec<_> = items.iter().filter(|item| is_data(item)).cloned().collect();
    for of_agent in items.chunk_by(|one, next| text_of(one, UAID) == text_of(next, UAID)) {
        let uaid = text_of(&of_agent[0], UAID).and_then(|uaid| Uaid::parse(uaid).ok());
        let Some(uaid) = uaid else {
            page.unreadable += of_agent.len() as u64;
            continue;
        };
        let last_acked = LastAcked::of(&MonthRows::new(client, uaid, month), of_agent).await?;
        for item in of_agent {
            match sort_key_of(item) {
                WAITING_KEY => {}
                _ if last_acked.includes(item) => page.acked += 1,
                CHANNELS_KEY => page.rows.push(CopiedRow::Channels(uaid, channels::decode(item))),
                _ => match message_items::decode(item) {
                    Some(message) => page.rows.push(CopiedRow::Message(uaid, message)),
                    None => page.unreadable += 1,
                },
            }
        }
    }
    Ok(())
}

fn item_of(client: &DynamoClient, row: &CopiedRow) -> Item {
    match row {
        CopiedRow::Record(record) => registration::item(client, record),
        CopiedRow::Version(uaid, version) => notifications::encode(*uaid, version),
        CopiedRow::Sequence(feed) => feed_items::encode_sequence(feed),
        CopiedRow::Key { feed, key, version, number } => {
            feed_items::encode_key(feed, key, KeyRow { version: *version, number: *number })
        }
        CopiedRow::Value { feed, key, version, number, value } => {
            feed_items::encode_value(feed, key, *version, *number, value.as_ref())
        }
        CopiedRow::ExpectedReceipt { feed, key, deadline } => {
            let request = ReceiptRequest { subscription: feed.clone(), key: key.clone() };
            expected_receipts::encode(&ExpectedReceipt { request, deadline: *deadline })
        }
        CopiedRow::Channels(uaid, chids) => channels::encode(*uaid, chids),
        CopiedRow::Message(uaid, message) => message_items::encode(*uaid, message),
    }
}
