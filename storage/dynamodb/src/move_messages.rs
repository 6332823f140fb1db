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
use crate::message_items::{self, SortKey, WAITING_KEY};
use crate::messages::put_moved;
use crate::month_rows::{MonthRows, RowIdentity};

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
    let [from, to] = [from, to].map(|month| MonthRows::new(client, uaid, month));
    let mut mover = MessageMover { from, to, registered: None, wrote: AtomicBool::new(false) };
    let moved = mover.move_all().await;
    moved.map_err(|error| mover.refused(error))?;
    mover.forget_counts().await.map_err(|error| mover.refused(error))
}

struct MessageMover<'a> {
    from: MonthRows<'a>,
    to: MonthRows<'a>,
    /// The channels of the new month, read with the first row.
    registered: Option<BTreeSet<Chid>>,
    wrote: AtomicBool,
}

impl MessageMover<'_> {
    async fn move_all(&mut self) -> Result<(), StoreError> {
        let mut after = WAITING_KEY.to_owned();
        loop {
            let page = self.from.with_table(async || {
                without_acked(&self.from, self.from.after(&after, ROWS, None).await?).await
            });
            let page = page.await?.unwrap_or_default();
            if !page.items.is_empty() {
                self.read_registered().await?;
                let moves = page.items.into_iter().map(|item| self.move_row(item));
                self.from.client.write_rows(moves.collect()).await.1?;
            }
            let Some(next) = page.next else { return Ok(()) };
            after = next;
        }
    }

    /// The rows were written whatever waits: the next store counts them.
    async fn forget_counts(&self) -> Result<(), StoreError> {
        if self.to.client.options.waiting.is_none() || !self.wrote.load(Relaxed) {
            return Ok(());
        }
        for rows in [&self.from, &self.to] {
            rows.with_table(|| rows.remove(WAITING_KEY)).await?;
        }
        Ok(())
    }

    /// An item without channels means that all messages are of unregistered channels.
    async fn read_registered(&mut self) -> Result<(), StoreError> {
        if self.registered.is_none() {
            self.registered = Some(channels::read_there(&self.to).await?.unwrap_or_default());
        }
        Ok(())
    }

    async fn move_row(&self, item: Item) -> Result<bool, StoreError> {
        let Some(sort_key_parts) = SortKey::parse(message_items::sort_key_of(&item)) else {
            // The channel is unknown. The row is deleted with its month.
            self.from.client.count_unreadable();
            return Ok(false);
        };
        let row = RowIdentity::of(&item);
        if self.registered.as_ref().is_some_and(|chids| chids.contains(&sort_key_parts.chid)) {
            self.to.required(|| put_moved(&self.to, &item)).await?;
            self.wrote.store(true, Relaxed);
        }
        self.from.with_table(|| self.from.delete(&row)).await?;
        self.wrote.store(true, Relaxed);
        Ok(true)
    }

    /// `Busy` must mean that nothing was done.
    fn refused(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Busy if self.wrote.load(Relaxed) => StoreError::Failed(format!(
                "moving messages from {} to {}: the tables are throttled, after a part of it was done",
                self.from.month, self.to.month
            )),
            other => other,
        }
    }
}
