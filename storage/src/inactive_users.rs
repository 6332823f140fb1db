//! Dropping the users that stay away, a batch for every call (seed 001, `drop_old_users`).

use std::sync::Arc;

use state_machine::{Month, Time};

use crate::maintenance::{MonthRange, StoreAdmin};
use crate::store::{Cursor, StoreError};

/// Finds users that have not connected for months, and drops them.
///
/// Nothing runs ahead of the caller: what [`DropInactiveUsers::next`] was not called for is neither
/// looked for nor dropped. The caller waits between two calls as it sees fit; what a batch costs
/// is to be told from [`UserBatch::found`] and [`UserBatch::dropped`].
///
/// It can be stopped at any time and begun again: users are found by what their records say.
pub struct DropInactiveUsers {
    store: Arc<dyn StoreAdmin>,
    /// The month that is being looked through; none when all were.
    month: Option<Month>,
    /// The last one to look through.
    last: Month,
    after: Option<Cursor>,
    dry_run: bool,
}

/// What one call has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserBatch {
    /// The month of last connections that was looked through.
    pub month: Month,
    /// Users found in it, at most [`USERS_IN_A_BATCH`](crate::maintenance::USERS_IN_A_BATCH); may be none.
    pub found: usize,
    /// Of which so many were dropped: the others came back or were dropped by somebody else.
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

    /// Finds users, and drops none.
    #[must_use]
    pub fn dry_run(self) -> Self {
        Self { dry_run: true, ..self }
    }

    /// The months that are still to be looked through, the present one included.
    pub fn months_left(&self) -> usize {
        self.months().count()
    }

    /// Finds at most one batch of users and drops them; none when all months were looked through.
    /// After an error, call it again: it takes up the same users.
    pub async fn next(&mut self) -> Option<Result<UserBatch, StoreError>> {
        let month = self.month?;
        Some(self.batch(month).await)
    }

    async fn batch(&mut self, month: Month) -> Result<UserBatch, StoreError> {
        let seen = MonthRange { first: month, last: month };
        let page = self.store.inactive_users(seen, self.after.clone()).await?;
        let found = page.users.len();
        let dropped = match found {
            0 => 0,
            _ if self.dry_run => 0,
            _ => self.store.drop_inactive(page.users).await?,
        };
        self.go_on_at(page.next);
        Ok(UserBatch { month, found, dropped })
    }

    fn go_on_at(&mut self, next: Option<Cursor>) {
        if next.is_none() {
            self.month = self.months().nth(1);
        }
        self.after = next;
    }

    fn months(&self) -> impl Iterator<Item = Month> + use<> {
        let last = self.last;
        std::iter::successors(self.month, move |month| (*month < last).then(|| month.next()))
    }
}
