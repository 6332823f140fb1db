//! `users drop-inactive`: drops users that have not connected for months, with their channels and messages
//! (docs/sources.md#table-classes).

use std::time::Duration;

use state_machine::Month;
use storage::StoreError;
use storage::inactive_users::{DropInactiveUsers, UserBatch};
use storage::maintenance::USERS_IN_A_BATCH;
use tokio::time::Instant;

use super::{JobError, Report};
use crate::operate::admin::commands::DropInactive;
use crate::operate::admin::job_context::months_before;

/// Months that are searched at least.
const MONTHS_MIN: u32 = 3;

/// Counts the users, then drops them at the given rate.
pub(super) async fn run(inactive: &DropInactive, report: &Report) -> Result<(), JobError> {
    let tables = report.step(|| report.context.store.months()).await?;
    let last = months_before(report.context.this_month(), inactive.months);
    let first = first_month(inactive, last, tables.first().copied());
    if first > last {
        let why = format!(
            "--since {first} is too late: with --months {}, users seen after {last} are not inactive; give {last} or an \
             earlier month",
            inactive.months
        );
        return Err(JobError::Refused(why));
    }
    let (store, now) = (&report.context.store, report.context.now());
    let users = || DropInactiveUsers::new(store.clone(), inactive.months, now, first);
    let found = count(users().dry_run(), report).await?;
    report.note(format!("found {found} users last seen from {first} to {last}")).await?;
    if inactive.dry_run || found == 0 {
        return Ok(());
    }
    let mut dropped = 0;
    let ended = drop_all(users(), (found, inactive.rate), &mut dropped, report).await;
    let left = found.saturating_sub(dropped);
    let tally = match ended {
        Ok(()) => format!("dropped {dropped} users; {left} connected meanwhile and were kept"),
        Err(_) => format!("dropped {dropped} users, {left} are left"),
    };
    // Also if the job was stopped.
    let noted = report.note(tally).await;
    ended.and(noted)
}

/// The first month to search: by default that of the oldest table, since an agent that is on it has
/// not connected later.
fn first_month(inactive: &DropInactive, last: Month, oldest_table: Option<Month>) -> Month {
    let earliest = months_before(last, MONTHS_MIN - 1);
    let oldest = oldest_table.map_or(earliest, |oldest| oldest.min(earliest));
    inactive.since.unwrap_or(oldest)
}

async fn count(mut users: DropInactiveUsers, report: &Report) -> Result<u64, JobError> {
    let mut found = 0;
    while let Some(batch) = next_batch(&mut users, report).await? {
        found += batch.found as u64;
        report.progress(&format!("looking for users last seen in {}", batch.month), found, None);
    }
    Ok(found)
}

async fn drop_all(
    mut users: DropInactiveUsers,
    (found, rate): (u64, u32),
    dropped: &mut u64,
    report: &Report,
) -> Result<(), JobError> {
    let time_of = |users: u64| Duration::from_secs(users) / rate;
    // The first batch too is dropped at the rate.
    let mut due = Instant::now() + time_of(found.min(USERS_IN_A_BATCH as u64));
    let mut seen = 0;
    loop {
        report.progress("dropping users", seen, Some(found));
        report.wait_until(due).await?;
        let began = Instant::now();
        let Some(batch) = next_batch(&mut users, report).await? else {
            return Ok(());
        };
        due = began + time_of(batch.found as u64);
        *dropped += batch.dropped as u64;
        seen += batch.found as u64;
    }
}

async fn next_batch(
    users: &mut DropInactiveUsers,
    report: &Report,
) -> Result<Option<UserBatch>, JobError> {
    let mut refusals = 0;
    loop {
        report.check_stopped()?;
        match users.next().await.transpose() {
            Err(StoreError::Busy) => report.backoff(&mut refusals).await?,
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
