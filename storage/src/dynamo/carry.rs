//! Carrying a user agent's messages from one month to another.
//!
//! Rows are carried as they are, those of other software too: same sort key, same attributes. Each is
//! written to the new month before it is deleted in the old one, so a crash leaves it in one of them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use state_machine::{Chid, Month, Uaid};

use super::channels::{self, CHANNELS_KEY};
use super::error::{CallError, Item};
use super::link::Link;
use super::messages::{Replaces, Row, all, delete_row, put};
use super::month_table::{required, with_table};
use super::query::rows_after;
use super::rows::{self, Place};
use crate::contract::StoreError;

/// Rows that are read together.
const ROWS: i32 = 100;

/// Copies what waits in `from` to `to`, and deletes it in `from`.
pub(super) async fn carry(
    link: &Link,
    uaid: Uaid,
    from: Month,
    to: Month,
) -> Result<(), StoreError> {
    if from == to {
        return Ok(());
    }
    let mut carrier =
        Carrier { link, uaid, from, to, registered: None, wrote: AtomicBool::new(false) };
    let carried = carrier.carry_all().await;
    carried.map_err(|error| carrier.refused(error))
}

struct Carrier<'a> {
    link: &'a Link,
    uaid: Uaid,
    from: Month,
    to: Month,
    /// The channels of the new month, once a row was there to carry.
    registered: Option<BTreeSet<Chid>>,
    /// Whether something was written.
    wrote: AtomicBool,
}

impl Carrier<'_> {
    async fn carry_all(&mut self) -> Result<(), StoreError> {
        let mut after = CHANNELS_KEY.to_owned();
        loop {
            let batch = with_table(self.link, self.from, async |table| {
                rows_after(self.link, self.uaid, &table, &after, ROWS, None).await
            });
            let batch = batch.await?.unwrap_or_default();
            if !batch.items.is_empty() {
                self.read_registered().await?;
                let rows = batch.items.into_iter().map(|item| self.carry_row(item));
                all(self.link, rows.collect()).await?;
            }
            let Some(next) = batch.next else { return Ok(()) };
            after = next;
        }
    }

    /// None are registered where nothing ever was: then what waits is of channels that were given up.
    async fn read_registered(&mut self) -> Result<(), StoreError> {
        if self.registered.is_none() {
            let read = channels::read_there(self.link, self.uaid, self.to).await;
            self.registered = Some(required(self.to, read)?.unwrap_or_default());
        }
        Ok(())
    }

    async fn carry_row(&self, item: Item) -> Result<(), StoreError> {
        let Some(place) = Place::parse(rows::sort_key_of(&item)) else {
            // Nobody can tell whose it is. It goes with its month.
            self.link.count_unreadable();
            return Ok(());
        };
        let row = Row::of(&item);
        if self.registered.as_ref().is_some_and(|chids| chids.contains(&place.chid)) {
            let replaces = replaces(&item, &place);
            let copied = with_table(self.link, self.to, |table| {
                put(self.link, table, item.clone(), &replaces)
            });
            required(self.to, copied.await)?;
            self.wrote.store(true, Relaxed);
        }
        self.delete(&row).await?;
        self.wrote.store(true, Relaxed);
        Ok(())
    }

    async fn delete(&self, row: &Row) -> Result<(), CallError> {
        let deleted = with_table(self.link, self.from, async |table| {
            delete_row(self.link, self.uaid, &table, row).await
        });
        deleted.await.map(|_deleted| ())
    }

    /// Busy means that nothing was done.
    fn refused(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Busy if self.wrote.load(Relaxed) => StoreError::Failed(format!(
                "carrying messages from {} to {}: the tables are throttled, after a part of it was done",
                self.from, self.to
            )),
            other => other,
        }
    }
}

/// What is in the new month already is newer than a row of others, whose id says nothing.
pub(super) fn replaces(item: &Item, place: &Place) -> Replaces {
    match (place.is_topical, rows::is_ours(item)) {
        (false, _) => Replaces::Itself,
        (true, true) => Replaces::Older(rows::id_of(item)),
        (true, false) => Replaces::Nothing,
    }
}
