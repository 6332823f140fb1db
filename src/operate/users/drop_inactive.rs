//! `users drop-inactive`: drops users that have not connected for months, with their channels and messages
//! (docs/sources.md#table-classes).

use std::ops::RangeInclusive;
use std::time::Duration;

use state_machine::Month;
use storage::StoreError;
use storage::inactive_users::{DropInactiveUsers, UserBatch};
use storage::maintenance::USERS_IN_A_BATCH;
use tokio::time::Instant;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::INACTIVE_MONTHS;
use crate::command::context::months_before;
use crate::command::{Job, JobError, NoReport, StoreCommand};
use crate::system::printable;

/// Months without a connection after which a user may be dropped.
const MONTHS: RangeInclusive<i64> = MONTHS_LEAST as i64..=600;

/// The least of them. No connection lives this long, so a user whose last connect is that old is not connected now.
const MONTHS_LEAST: u32 = 2;

/// Users that may be dropped a second.
const USERS_A_SECOND: RangeInclusive<i64> = 1..=100_000;

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropInactive {
    /// Drop users last seen this many months ago or earlier: with 2, in November, in September
    #[arg(long, value_name = "MONTHS", default_value_t = INACTIVE_MONTHS, value_parser = clap::value_parser!(u32).range(MONTHS))]
    pub months: u32,
    /// Maximum number of users dropped a second
    #[arg(long, value_name = "USERS", default_value_t = 100, value_parser = clap::value_parser!(u32).range(USERS_A_SECOND))]
    pub rate: u32,
    /// Count them, and drop none
    #[arg(long)]
    pub dry_run: bool,
    /// First month to search; by default that of the oldest table, and three months at least
    #[arg(long, value_name = "MONTH")]
    pub since: Option<Month>,
}

impl StoreCommand for DropInactive {
    const NAME: &'static str = "users drop-inactive";
    const ABOUT: &'static str = "Drop users that have not connected for months";
    const HELP: &'static str = "\
Counts the users first, then drops them with their channels and messages, no faster than --rate;
users that connect meanwhile are kept. Ctrl-C stops it between two batches, and it can be repeated.

Examples:
  kalends users drop-inactive --dry-run --data-dir /var/lib/kalends
  kalends users drop-inactive --months 6 --rate 50 --config /etc/kalends/kalends.toml
  kalends users drop-inactive --since 2025_01 --data-dir /var/lib/kalends";
    type Report = NoReport;

    fn is_within_bounds(&self) -> bool {
        MONTHS.contains(&i64::from(self.months)) && USERS_A_SECOND.contains(&i64::from(self.rate))
    }

    /// Counts the users, then drops them at the given rate.
    async fn run(self, job: &Job) -> Result<(), JobError> {
        let tables = job.step(|| job.context.store.months()).await?;
        let last = months_before(job.context.this_month(), self.months);
        let first = first_month(&self, last, tables.first().copied());
        if first > last {
            let why = format!(
                "--since {first} is too late: with --months {}, users seen after {last} are not inactive; give {last} or an \
                 earlier month",
                self.months
            );
            return Err(JobError::Refused(why));
        }
        let (store, now) = (&job.context.store, job.context.now());
        let users = || DropInactiveUsers::new(store.clone(), self.months, now, first);
        let found = count(users().dry_run(), job).await?;
        job.note(format!(
            "found {} last seen from {first} to {last}",
            printable::count(found, "user")
        ))
        .await?;
        if self.dry_run || found == 0 {
            return Ok(());
        }
        let mut dropped = 0;
        let ended = drop_all(users(), (found, self.rate), &mut dropped, job).await;
        let left = found.saturating_sub(dropped);
        let users = printable::count(dropped, "user");
        let tally = match ended {
            Ok(()) => format!("dropped {users}; {left} connected meanwhile and were kept"),
            Err(_) => format!("dropped {users}, {left} are left"),
        };
        // Also if the job was stopped.
        let noted = job.note(tally).await;
        ended.and(noted)
    }
}

/// Months that are searched at least.
const MONTHS_MIN: u32 = 3;

/// The first month to search: by default that of the oldest table, since an agent that is on it has
/// not connected later.
fn first_month(inactive: &DropInactive, last: Month, oldest_table: Option<Month>) -> Month {
    let earliest = months_before(last, MONTHS_MIN - 1);
    let oldest = oldest_table.map_or(earliest, |oldest| oldest.min(earliest));
    inactive.since.unwrap_or(oldest)
}

async fn count(mut users: DropInactiveUsers, job: &Job) -> Result<u64, JobError> {
    let mut found = 0;
    while let Some(batch) = next_batch(&mut users, job).await? {
        found += batch.found as u64;
        job.progress(&format!("looking for users last seen in {}", batch.month), found, None);
    }
    Ok(found)
}

async fn drop_all(
    mut users: DropInactiveUsers,
    (found, rate): (u64, u32),
    dropped: &mut u64,
    job: &Job,
) -> Result<(), JobError> {
    let time_of = |users: u64| Duration::from_secs(users) / rate;
    // The first batch too is dropped at the rate.
    let mut due = Instant::now() + time_of(found.min(USERS_IN_A_BATCH as u64));
    let mut seen = 0;
    loop {
        job.progress("dropping users", seen, Some(found));
        job.wait_until(due).await?;
        let began = Instant::now();
        let Some(batch) = next_batch(&mut users, job).await? else {
            return Ok(());
        };
        due = began + time_of(batch.found as u64);
        *dropped += batch.dropped as u64;
        seen += batch.found as u64;
    }
}

async fn next_batch(
    users: &mut DropInactiveUsers,
    job: &Job,
) -> Result<Option<UserBatch>, JobError> {
    let mut refusals = 0;
    loop {
        job.check_stopped()?;
        match users.next().await.transpose() {
            Err(StoreError::Busy) => job.backoff(&mut refusals).await?,
            batch => return Ok(batch?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn month(text: &str) -> Month {
        text.parse().unwrap()
    }

    fn first(months: u32, since: Option<&str>, oldest_table: Option<&str>) -> String {
        let inactive = DropInactive { months, rate: 1, dry_run: false, since: since.map(month) };
        let last = months_before(month("2026_11"), months);
        first_month(&inactive, last, oldest_table.map(month)).to_string()
    }

    #[test]
    fn the_search_begins_with_the_oldest_table_and_covers_three_months_at_least() {
        assert_eq!(first(2, None, Some("2026_08")), "2026_07");
        assert_eq!(first(2, None, Some("2025_01")), "2025_01");
        assert_eq!(first(12, None, Some("2026_08")), "2025_09");
        assert_eq!(first(2, None, None), "2026_07");
    }

    #[test]
    fn since_sets_the_first_month() {
        assert_eq!(first(2, Some("2020_05"), Some("2026_08")), "2020_05");
        assert_eq!(first(2, Some("2026_09"), Some("2026_08")), "2026_09");
    }
}
