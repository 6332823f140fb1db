//! Copies a month's rows unchanged to another month, also those of other software.

use state_machine::Month;
use storage::maintenance::CopyProgress;
use storage::store::{Cursor, StoreError};

use crate::acked_rows::CURRENT_TIMESTAMP;
use crate::attributes::{UAID, text_of};
use crate::channels::{self, CHANNELS_KEY};
use crate::client::DynamoClient;
use crate::error::Item;
use crate::messages::{Replaces, put, write_rows};
use crate::month_table::{required, with_table};
use crate::rows::{SORT_KEY, SortKey, id_of, is_ours, sort_key_of};
use crate::table_rows;
use crate::waiting::{self, WAITING_KEY};

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
    let start = after.as_ref().map(|after| table_rows::start(KEYS, after));
    let read = with_table(client, from, async |table| {
        client.scan(&table, None, start.clone(), Some(ROWS_MAX)).await
    });
    let (items, next) = required(from, read.await)?;
    let seen = items.len() as u64;
    let copies = items.into_iter().map(|item| copy_row(client, item, to));
    let (written, done) = write_rows(client, copies.collect()).await;
    done?;
    Ok(CopyProgress {
        seen,
        written: written as u64,
        next: next.and_then(|key| table_rows::cursor(KEYS, &key)),
    })
}

/// Returns whether something was written.
async fn copy_row(client: &DynamoClient, item: Item, to: Month) -> Result<bool, StoreError> {
    if sort_key_of(&item) == CHANNELS_KEY {
        return copy_channels(client, &item, to).await;
    }
    if sort_key_of(&item) == WAITING_KEY {
        return forget_counts(client, &item, to).await;
    }
    let is_topical = SortKey::parse(sort_key_of(&item)).is_some_and(|key| key.is_topical);
    // The id of a row of other software is random: a message of its topic in the other month is newer.
    let replaces = match is_topical && is_ours(&item) {
        true => Replaces::Older(id_of(&item)),
        false => Replaces::Nothing,
    };
    let copied = with_table(client, to, |table| put(client, table, item.clone(), &replaces));
    required(to, copied.await)
}

/// Adds the channels to the registered ones.
async fn copy_channels(client: &DynamoClient, item: &Item, to: Month) -> Result<bool, StoreError> {
    let Some(uaid) = text_of(item, UAID).and_then(|uaid| uaid.parse().ok()) else {
        return Ok(false);
    };
    if let Some(timestamp) = item.get(CURRENT_TIMESTAMP) {
        let copied = with_table(client, to, |table| {
            channels::set_acked(client, uaid, table, timestamp.clone())
        });
        required(to, copied.await)?;
    }
    let channels = channels::decode(item);
    let there = required(to, channels::read_there(client, uaid, to).await)?;
    if there.is_some_and(|there| there.is_superset(&channels)) {
        return Ok(false);
    }
    channels::add(client, uaid, to, &channels).await.map(|()| true)
}

/// The copied rows are not counted: the next store counts them.
async fn forget_counts(client: &DynamoClient, item: &Item, to: Month) -> Result<bool, StoreError> {
    let Some(uaid) = text_of(item, UAID).and_then(|uaid| uaid.parse().ok()) else {
        return Ok(false);
    };
    let forgotten =
        with_table(client, to, async |table| waiting::forget(client, uaid, &table).await);
    required(to, forgotten.await).map(|()| false)
}
