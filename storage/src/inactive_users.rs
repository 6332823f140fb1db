//! Drops users with their rows (docs/sources.md#table-classes).
//!
//! 1. [`StoreAdmin::mark_dropped`] marks the record. From then on no agent connects with that uaid, and no push to it is
//!    accepted.
//! 2. [`delete_rows`] deletes channels and messages in every month that has a table.
//! 3. [`StoreAdmin::delete_uaids`] deletes the record, if it still is the marked one.
//!
//! After an interruption the marked record is found again like any other, so that the next run completes the drop.

use std::sync::Arc;

use futures_util::future::join_all;
use state_machine::{Month, Time, Uaid};

use crate::maintenance::{InactiveUser, MonthRange, StoreAdmin};
use crate::store::{Cursor, StoreError};

/// Finds users that have not connected for months, and drops them.
///
/// Each call of [`DropInactiveUsers::next`] finds and drops one batch, and nothing runs between
/// calls. The caller paces them by [`UserBatch::found`] and [`UserBatch::dropped`]. It may stop at
/// any time and start again.
pub struct DropInactiveUsers {
    store: Arc<dyn StoreAdmin>,
    /// The month that is being scanned; none at the end.
    month: Option<Month>,
    last: Month,
    after: Option<Cursor>,
    dry_run: bool,
}

/// The result of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserBatch {
    /// The month of last connections that was scanned.
    pub month: Month,
    /// Users found in it, 0 to [`USERS_IN_A_BATCH`](crate::maintenance::USERS_IN_A_BATCH).
    pub found: usize,
    /// Users dropped of those: the others reconnected, or another process dropped them.
    pub dropped: usize,
}

impl DropInactiveUsers {
    /// Users whose last connection was `months_ago` months before the month of `now`, or earlier,
    /// back to `oldest`: with 2, in December, those last seen in October or before.
    pub fn new(store: Arc<dyn StoreAdmin>, months_ago: u32, now: Time, oldest: Month) -> Self {
        let last = (0..months_ago).fold(Month::of(now), |month, _| month.previous());
        let month = (oldest <= last).then_some(oldest);
        Self { store, month, last, after: None, dry_run: false }
    }

    /// Counts users without dropping them.
    #[must_use]
    pub fn dry_run(self) -> Self {
        Self { dry_run: true, ..self }
    }

    /// The number of months that remain to be scanned, the present one included.
    pub fn months_left(&self) -> usize {
        self.months().count()
    }

    /// Finds and drops at most one batch of users; none when all months were scanned. After an
    /// error the next call repeats the batch.
    pub async fn next(&mut self) -> Option<Result<UserBatch, StoreError>> {
        Some(self.batch(self.month?).await)
    }

    async fn batch(&mut self, month: Month) -> Result<UserBatch, StoreError> {
        let seen = MonthRange { first: month, last: month };
        let page = self.store.inactive_users(seen, self.after.clone()).await?;
        let found = page.users.len();
        let dropped = match found {
            0 => 0,
            _ if self.dry_run => 0,
            _ => drop_unchanged(&*self.store, page.users).await?,
        };
        if page.next.is_none() {
            self.month = self.months().nth(1);
        }
        self.after = page.next;
        Ok(UserBatch { month, found, dropped })
    }

    fn months(&self) -> impl Iterator<Item = Month> + use<> {
        let last = self.last;
        std::iter::successors(self.month, move |month| (*month < last).then(|| month.next()))
    }
}

/// Drops users whose `last_connect` is unchanged. Returns the number of dropped users.
async fn drop_unchanged(
    store: &dyn StoreAdmin,
    users: Vec<InactiveUser>,
) -> Result<usize, StoreError> {
    let marks = users.iter().map(|user| store.mark_dropped(user.uaid, Some(user.last_connect)));
    // All of them, also if one fails: none is under way when the call is answered.
    let marked = join_all(marks.collect::<Vec<_>>()).await;
    let marked = marked.into_iter().collect::<Result<Vec<_>, _>>()?;
    let uaids: Vec<_> = marked.into_iter().flatten().map(|user| user.uaid).collect();
    if !uaids.is_empty() {
        delete_rows(store, &uaids).await?;
        store.delete_uaids(uaids.clone()).await?;
    }
    Ok(uaids.len())
}

/// Deletes all rows of at most [`USERS_IN_A_BATCH`](crate::maintenance::USERS_IN_A_BATCH) users, in every month that has
/// a table. Returns whether there were any.
pub async fn delete_rows(store: &dyn StoreAdmin, uaids: &[Uaid]) -> Result<bool, StoreError> {
    let mut were_there = false;
    for month in store.months().await? {
        while store.delete_rows(uaids.to_vec(), month).await? {
            were_there = true;
        }
    }
    for uaid in uaids {
        were_there |= delete_versions(store, *uaid).await?;
    }
    Ok(were_there)
}

/// Deletes the SimplePush versions of a user. Returns whether there were any.
async fn delete_versions(store: &dyn StoreAdmin, uaid: Uaid) -> Result<bool, StoreError> {
    let mut were_there = false;
    loop {
        let page = store.fetch_notifications(uaid, None, VERSIONS_IN_A_PAGE).await?;
        if page.is_empty() {
            return Ok(were_there);
        }
        were_there = true;
        for notification in page {
            store.delete_notification(uaid, notification.chid, None).await?;
        }
    }
}

/// SimplePush versions that a drop reads at once.
const VERSIONS_IN_A_PAGE: usize = 100;
