//! Copying a month's rows to another as they are, those of other software too.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use state_machine::Month;

use super::attributes::{UAID, text, text_of};
use super::carry;
use super::channels::{self, CHANNELS_KEY};
use super::error::{CallError, Item};
use super::link::Link;
use super::messages::{Replaces, all, put};
use super::month_table::{required, with_table};
use super::rows::{Place, SORT_KEY, sort_key_of};
use crate::contract::{Cursor, StoreError};
use crate::upkeep::Copied;

/// Rows that one call copies.
const ROWS_MAX: i32 = 200;

/// Copies some rows.
pub(super) async fn copy(
    link: &Link,
    from: Month,
    to: Month,
    after: Option<Cursor>,
) -> Result<Copied, StoreError> {
    if from == to {
        return Ok(Copied::default());
    }
    let start = after.as_ref().map(key_of).transpose()?;
    let read = with_table(link, from, |table| scan(link, table, start.clone())).await;
    let (items, next) = required(from, read)?;
    let seen = items.len() as u64;
    let written = AtomicU64::new(0);
    let copies = items.into_iter().map(async |item| {
        if copy_row(link, item, to).await? {
            written.fetch_add(1, Relaxed);
        }
        Ok::<_, StoreError>(())
    });
    all(link, copies.collect()).await?;
    Ok(Copied { seen, written: written.load(Relaxed), next })
}

async fn scan(
    link: &Link,
    table: String,
    start: Option<Item>,
) -> Result<(Vec<Item>, Option<Cursor>), CallError> {
    let request = link
        .client
        .scan()
        .table_name(&table)
        .consistent_read(true)
        .set_exclusive_start_key(start)
        .limit(ROWS_MAX);
    let page = link.call("Scan", &table, request.send()).await?;
    let next = page.last_evaluated_key.as_ref().and_then(cursor_of);
    Ok((page.items.unwrap_or_default(), next))
}

/// Answers whether something was written.
async fn copy_row(link: &Link, item: Item, to: Month) -> Result<bool, StoreError> {
    if sort_key_of(&item) == CHANNELS_KEY {
        return copy_channels(link, &item, to).await;
    }
    let replaces = match Place::parse(sort_key_of(&item)) {
        Some(place) if place.is_topical => carry::replaces(&item, &place),
        _ => Replaces::Nothing,
    };
    let copied = with_table(link, to, |table| put(link, table, item.clone(), &replaces));
    required(to, copied.await)
}

/// Channels are added to those that are there.
async fn copy_channels(link: &Link, item: &Item, to: Month) -> Result<bool, StoreError> {
    let Some(uaid) = text_of(item, UAID).and_then(|uaid| uaid.parse().ok()) else {
        return Ok(false);
    };
    let channels = channels::decode(item);
    let there = required(to, channels::read_there(link, uaid, to).await)?;
    if there.is_some_and(|there| there.is_superset(&channels)) {
        return Ok(false);
    }
    channels::add(link, uaid, to, &channels).await.map(|()| true)
}

/// A uaid has no space, and a sort key may be one.
fn cursor_of(key: &Item) -> Option<Cursor> {
    Some(Cursor::new(format!("{} {}", text_of(key, UAID)?, text_of(key, SORT_KEY)?)))
}

fn key_of(cursor: &Cursor) -> Result<Item, StoreError> {
    let nowhere = || StoreError::Failed("copying goes on nowhere".to_owned());
    let (uaid, sort_key) = cursor.as_str().split_once(' ').ok_or_else(nowhere)?;
    Ok(Item::from([(UAID.to_owned(), text(uaid)), (SORT_KEY.to_owned(), text(sort_key))]))
}
