//! Copies a month's rows unchanged to another month, also those of other software.

use state_machine::Month;
use storage::maintenance::CopyProgress;
use storage::store::{Cursor, StoreError};

use crate::acked_rows::CURRENT_TIMESTAMP;
use crate::attributes::{UAID, text_of};
use crate::client::DynamoClient;
use crate::error::Item;
use crate::message_items::{
    CHANNELS_KEY, SORT_KEY, SortKey, WAITING_KEY, id_of, is_ours, sort_key_of,
};
use crate::messages::{Replaces, put};
use crate::month_rows::MonthRows;
use crate::month_table::{required, with_table};
use crate::{channels, copied_rows};

/// Rows in one page.
const ROWS_MAX: i32 = 200;

const KEYS: &[&str] = &[UAID, SORT_KEY];

pub(crate) async fn copy(
    client: &DynamoClient,
    from: Month,
    to: Month,
    after: Option<Cursor>,
) -> Result<CopyProgress, StoreError> {
    if from == to {
        return Ok(CopyProgress::default());
    }
    let start = after.as_ref().map(|after| copied_rows::start(KEYS, after));
    let table = client.names.messages(from);
    let scan = || client.scan(&table, None, start.clone(), Some(ROWS_MAX));
    let read = with_table(client, &table, scan);
    let (items, next) = required(from, read.await)?;
    let seen = items.len() as u64;
    let copies = items.into_iter().map(|item| copy_row(client, item, to));
    let (written, done) = client.write_rows(copies.collect()).await;
    done?;
    Ok(CopyProgress {
        seen,
        written: written as u64,
        next: next.and_then(|key| copied_rows::cursor(KEYS, &key)),
    })
}

/// Returns whether something was written.
async fn copy_row(client: &DynamoClient, item: Item, to: Month) -> Result<bool, StoreError> {
    let uaid = || text_of(&item, UAID).and_then(|uaid| uaid.parse().ok());
    let rows = || uaid().map(|uaid| MonthRows::new(client, uaid, to));
    if sort_key_of(&item) == CHANNELS_KEY {
        let Some(rows) = rows() else { return Ok(false) };
        return copy_channels(&rows, &item).await;
    }
    if sort_key_of(&item) == WAITING_KEY {
        // The copied rows are not counted: the next store counts them.
        let Some(rows) = rows() else { return Ok(false) };
        return rows.required(|| rows.remove(WAITING_KEY)).await.map(|()| false);
    }
    let is_topical = SortKey::parse(sort_key_of(&item)).is_some_and(|key| key.is_topical);
    // The id of a row of other software is random: a message of its topic in the other month is newer.
    let replaces = match is_topical && is_ours(&item) {
        true => Replaces::Older(id_of(&item)),
        false => Replaces::Nothing,
    };
    let table = client.names.messages(to);
    let copied = with_table(client, &table, || put(client, &table, &item, &replaces));
    required(to, copied.await)
}

/// Adds the channels to the registered ones.
async fn copy_channels(rows: &MonthRows<'_>, item: &Item) -> Result<bool, StoreError> {
    if let Some(timestamp) = item.get(CURRENT_TIMESTAMP) {
        rows.required(|| channels::set_acked(rows, timestamp)).await?;
    }
    let channels = channels::decode(item);
    let there = channels::read_there(rows).await?;
    if there.is_some_and(|there| there.is_superset(&channels)) {
        return Ok(false);
    }
    channels::add(rows, &channels).await.map(|()| true)
}
