//! `tables drop-old` and `tables drop`: drop message tables that are no longer needed.
//!
//! A table that agents are still on is kept unless `--force` is given. Its messages would be lost,
//! and its agents would get a new id and subscribe anew. `users drop-inactive` drops absent agents
//! first.

use state_machine::Month;

use super::census::{self, agents_are, naming};
use super::{JobError, Report};
use crate::operate::admin::commands::{Drop, DropOld};
use crate::operate::admin::job_context::months_before;

/// What `--force` does to the agents of a table.
const FATE: &str = "they get a new id when they connect, and subscribe anew";

/// Drops the tables of all months before the kept ones.
pub(super) async fn run(drop_old: &DropOld, report: &Report) -> Result<(), JobError> {
    let tables = report.step(|| report.context.store.tables()).await?;
    let months = report.step(|| report.context.store.months()).await?;
    if let Some(month) = report.frozen_month().await? {
        let note = format!(
            "rotation is off and {month} stays in use, so no table is old: nothing to drop; \
             `kalends tables drop MONTH --yes` drops one that is no longer needed"
        );
        return report.note(note).await;
    }
    let old = old_months(&months, report.context.this_month(), drop_old.keep);
    if old.is_empty() {
        let first = months_before(report.context.this_month(), drop_old.keep);
        return report.note(format!("no table is older than {first}: nothing to drop")).await;
    }
    let agents = census::count(&tables, report).await?;
    for month in old {
        match (naming(&agents, month), drop_old.force, drop_old.dry_run) {
            (count @ 1.., false, _) => report.note(kept(month, count)).await?,
            (count, _, true) => report.note(format!("would drop {}", with(month, count))).await?,
            (count, _, false) => drop_month(month, count, report).await?,
        }
    }
    Ok(())
}

/// The months whose tables are dropped: those before the kept ones, but never the newest.
pub(super) fn old_months(months: &[Month], this: Month, keep: u32) -> Vec<Month> {
    let (first_kept, newest) = (months_before(this, keep), months.iter().max());
    let is_old = |month: &&Month| **month < first_kept && Some(*month) != newest;
    months.iter().filter(is_old).copied().collect()
}

/// Drops one table if no server uses it and `--yes` is given.
pub(super) async fn drop_one(drop: &Drop, report: &Report) -> Result<(), JobError> {
    let month = drop.month;
    let months = report.step(|| report.context.store.months()).await?;
    if !months.contains(&month) {
        return report.note(format!("there is no table of {month}: nothing to drop")).await;
    }
    let frozen_month = report.frozen_month().await?;
    if let Some(reason) = in_use(month, frozen_month, report.context.this_month()) {
        return Err(JobError::Refused(format!("{month} stays: {reason}")));
    }
    let tables = report.step(|| report.context.store.tables()).await?;
    let count = naming(&census::count(&tables, report).await?, month);
    let refused = match (count, drop.force, drop.yes) {
        (1.., false, _) => kept(month, count),
        (_, _, false) => format!("this would drop {}; add --yes to do it", with(month, count)),
        (_, _, true) => return drop_month(month, count, report).await,
    };
    Err(JobError::Refused(refused))
}

/// Why the month's table is in use, if it is.
fn in_use(month: Month, frozen_month: Option<Month>, this: Month) -> Option<&'static str> {
    match frozen_month {
        Some(frozen) if frozen == month => {
            Some("rotation is off, and this table is the one in use")
        }
        None if month >= this.previous() => {
            Some("nodes use the tables of last, this and next month (rotation is on)")
        }
        _ => None,
    }
}

async fn drop_month(month: Month, count: u64, report: &Report) -> Result<(), JobError> {
    let was_there = report.step(|| report.context.store.drop_month(month)).await?;
    report
        .note(match was_there {
            true => format!("dropped {}", with(month, count)),
            false => format!("{month} was gone already"),
        })
        .await
}

fn with(month: Month, count: u64) -> String {
    match count {
        0 => format!("{month}, which no agent is on"),
        1 => format!("{month} with 1 agent on it: {FATE}"),
        _ => format!("{month} with {count} agents on it: {FATE}"),
    }
}

fn kept(month: Month, count: u64) -> String {
    let are = agents_are(count);
    format!(
        "kept {month}: {are} still on it; `kalends users drop-inactive` drops agents that stay away, \
         --force drops the table all the same ({FATE})"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn months(texts: &[&str]) -> Vec<Month> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn months_before_the_kept_ones_are_old() {
        let there = months(&["2025_12", "2026_09", "2026_10", "2026_11", "2026_12"]);
        let this = there[3];
        assert_eq!(old_months(&there, this, 1), months(&["2025_12", "2026_09"]));
        assert_eq!(old_months(&there, this, 2), months(&["2025_12"]));
        assert_eq!(old_months(&there, this, 11), months(&[]));
        assert_eq!(old_months(&there, this, 10), months(&["2025_12"]));
    }

    #[test]
    fn the_change_of_year_is_an_ordinary_month() {
        let there = months(&["2026_11", "2026_12", "2027_01"]);
        assert_eq!(old_months(&there, there[2], 1), months(&["2026_11"]));
    }

    #[test]
    fn the_newest_table_is_kept_at_any_age() {
        let there = months(&["2024_01", "2024_02"]);
        assert_eq!(old_months(&there, "2026_11".parse().unwrap(), 1), months(&["2024_01"]));
        assert_eq!(old_months(&there[..1], "2026_11".parse().unwrap(), 1), months(&[]));
        assert_eq!(old_months(&[], "2026_11".parse().unwrap(), 1), months(&[]));
    }
}
