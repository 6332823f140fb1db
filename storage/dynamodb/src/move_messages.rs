//! Moves a user agent's messages from one month to another.
//!
//! Rows are moved unchanged, also those of other software. Each is written to the new month before
//! it is deleted in the old one, so that a crash leaves it in at least one of them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use state_machine::{Chid, Month, Uaid};
use storage::store::StoreError;

use crate::acked_rows::without_acked;
use crate::channels;
use crate::client::DynamoClient;
use crate::error::Item;
use crate::messages::{Row, delete_row, put_moved, write_rows};
use crate::month_table::{required, with_table};
use crate::query::rows_after;
use crate::rows::{self, SortKey};
use crate::waiting::{self, WAITING_KEY};

/// Rows in one page.
const ROWS: i32 = 100;

pub(crate) async fn run(
    client: &DynamoClient,
    uaid: Uaid,
    from: Month,
    to: Month,
) -> Result<(), StoreError> {
    if from == to {
        return Ok(());
    }
    let mut mover =
        MessageMover { client, uaid, from, to, registered: None, wrote: AtomicBool::new(false) };
    let moved = mover.move_all().await;
    moved.map_err(|error| mover.refused(error))?;
    mover.forget_counts().await.map_err(|error| mover.refused(error))
}

struct MessageMover<'a> {
    client: &'a DynamoClient,
    uaid: Uaid,
    from: Month,
    to: Month,
    /// The channels of the new month, read with the first row.
    registered: Option<BTreeSet<Chid>>,
    wrote: AtomicBool,
}

impl MessageMover<'_> {
    async fn move_all(&mut self) -> Result<(), StoreError> {
        let mut after = WAITING_KEY.to_owned();
        loop {
            let row_page = with_table(self.client, self.from, async |table| {
                let row_page =
                    rows_after(self.client, self.uaid, &table, &after, ROWS, None).await?;
                without_acked(self.client, self.uaid, &table, row_page).await
            });
            let row_page = row_page.await?.unwrap_or_default();
            if !row_page.items.is_empty() {
                self.read_registered().await?;
                let rows = row_page.items.into_iter().map(|item| self.move_row(item));
                write_rows(self.client, rows.collect()).await.1?;
            }
            let Some(next) = row_page.next else { return Ok(()) };
            after = next;
        }
    }

    /// The rows were written whatever waits: the next store counts them.
    async fn forget_counts(&self) -> Result<(), StoreError> {
        if self.client.options.waiting.is_none() || !self.wrote.load(Relaxed) {
            return Ok(());
        }
        for month in [self.from, self.to] {
            let forgotten = with_table(self.client, month, async |table| {
                waiting::forget(self.client, self.uaid, &table).await
            });
            forgotten.await?;
        }
        Ok(())
    }

    /// An item without channels means that all messages are of unregistered channels.
    async fn read_registered(&mut self) -> Result<(), StoreError> {
        if self.registered.is_none() {
            let read = channels::read_there(self.client, self.uaid, self.to).await;
            self.registered = Some(required(self.to, read)?.unwrap_or_default());
        }
        Ok(())
    }

    async fn move_row(&self, item: Item) -> Result<bool, StoreError> {
        let Some(sort_key_parts) = SortKey::parse(rows::sort_key_of(&item)) else {
            // The channel is unknown. The row is deleted with its month.
            self.client.count_unreadable();
            return Ok(false);
        };
        let row = Row::of(&item);
        if self.registered.as_ref().is_some_and(|chids| chids.contains(&sort_key_parts.chid)) {
            let copied = with_table(self.client, self.to, async |table| {
                put_moved(self.client, &table, &item).await
            });
            required(self.to, copied.await)?;
            self.wrote.store(true, Relaxed);
        }
        let deleted = with_table(self.client, self.from, async |table| {
            delete_row(self.client, self.uaid, &table, &row).await
        });
        deleted.await?;
        self.wrote.store(true, Relaxed);
        Ok(true)
    }

    /// `Busy` must mean that nothing was done.
    fn refused(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Busy if self.wrote.load(Relaxed) => StoreError::Failed(format!(
                "moving messages from {} to {}: the tables are throttled, after a part of it was done",
                self.from, self.to
            )),
            other => other,
        }
    }
}
