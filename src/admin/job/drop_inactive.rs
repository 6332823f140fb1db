//! `users drop-inactive`: users that were not seen for months (seed 001, `drop_old_users`).

use state_machine::Month;
use storage::StoreError;
use storage::inactive_users::{DropInactiveUsers, UserBatch};
use storage::maintenance::USERS_IN_A_BATCH;

use super::{JobError, Pace, Report};
use crate::admin::job_context::{JobContext, months_before};
use crate::admin::request::DropInactive;

/// Months that are looked at in any case.
const MONTHS_MIN: u32 = 3;

/// Counts them, then drops them at the rate that was asked for.
pub(super) async fn run(
    asked: &DropInactive,
    context: &JobContext,
    report: &mut Report,
) -> Result<(), JobError> {
    let tables = report.step(|| context.store.months()).await?;
    let last = months_before(context.this_month(), asked.months);
    let first = first_month(asked, last, tables.first().copied());
    if first > last {
        let why = format!("--since must not be later than {last}: newer users are not stale");
        return Err(JobError::Refused(why));
    }
    let users =
        || DropInactiveUsers::new(context.store.clone(), asked.months, context.now(), first);
    let found = count(users().dry_run(), report).await?;
    report.note(format!("found {found} users last seen from {first} to {last}")).await?;
    if asked.dry_run || found == 0 {
        return Ok(());
    }
    let mut dropped = 0;
    let ended = drop_all(users(), (found, asked.rate), &mut dropped, report).await;
    // What was done is told in any case, if anybody still listens.
    let told = report.note(tally(found, dropped, ended.is_ok())).await;
    ended.and(told)
}

fn tally(found: u64, dropped: u64, is_done: bool) -> String {
    let left = found.saturating_sub(dropped);
    match is_done {
        true => format!("dropped {dropped} users; {left} had come back meanwhile and were kept"),
        false => format!("dropped {dropped} users, {left} are left"),
    }
}

/// Where to begin to look. Unless it is said, that is the month of the oldest table: a client that
/// is on it has not been seen since.
fn first_month(asked: &DropInactive, last: Month, oldest_table: Option<Month>) -> Month {
    let earliest = months_before(last, MONTHS_MIN - 1);
    let oldest = oldest_table.map_or(earliest, |oldest| oldest.min(earliest));
    asked.since.map_or(oldest, |since| since.0)
}

async fn count(mut users: DropInactiveUsers, report: &mut Report) -> Result<u64, JobError> {
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
    report: &mut Report,
) -> Result<(), JobError> {
    let first =
        usize::try_from(found).map_or(USERS_IN_A_BATCH, |found| found.min(USERS_IN_A_BATCH));
    let (mut pace, mut seen) = (Pace::new(rate, first), 0);
    loop {
        report.progress("dropping users", seen, Some(found));
        report.wait_until(pace.free_at()).await?;
        let Some(batch) = next_batch(&mut users, report).await? else {
            return Ok(());
        };
        pace.done(batch.found);
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
    use crate::admin::request::MonthName;

    fn month(text: &str) -> Month {
        text.parse().unwrap()
    }

    fn first(months: u32, since: Option<&str>, oldest_table: Option<&str>) -> String {
        let since = since.map(|text| MonthName(month(text)));
        let asked = DropInactive { months, rate: 1, dry_run: false, since };
        let last = months_before(month("2026_11"), months);
        first_month(&asked, last, oldest_table.map(month)).to_string()
    }

    #[test]
    fn it_looks_back_to_the_oldest_table_and_at_three_months_at_least() {
        assert_eq!(first(2, None, Some("2026_08")), "2026_07");
        assert_eq!(first(2, None, Some("2025_01")), "2025_01");
        assert_eq!(first(12, None, Some("2026_08")), "2025_09");
        assert_eq!(first(2, None, None), "2026_07");
    }

    #[test]
    fn it_looks_from_where_it_is_told_to() {
        assert_eq!(first(2, Some("2020_05"), Some("2026_08")), "2020_05");
        assert_eq!(first(2, Some("2026_09"), Some("2026_08")), "2026_09");
    }
}
