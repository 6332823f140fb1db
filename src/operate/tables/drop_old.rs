//! `kalends tables drop-old`: drops the tables of past months that no agent is on.

use std::ops::RangeInclusive;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::census::{self, naming};
use super::old::{drop_month, kept, old_months, with};
use crate::command::context::months_before;
use crate::command::{Job, JobError, NoReport, StoreCommand};

/// Months before the present one that can be kept.
const KEEP_MONTHS: RangeInclusive<i64> = 1..=600;

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropOld {
    /// Months before this one whose tables are kept
    #[arg(long, value_name = "MONTHS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(KEEP_MONTHS))]
    pub keep: u32,
    /// Show what would be dropped, and drop nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Drop tables that agents are still on: these get a new id when they connect
    #[arg(long)]
    pub force: bool,
}

impl StoreCommand for DropOld {
    const NAME: &'static str = "tables drop-old";
    const ABOUT: &'static str = "Drop the tables of past months that no agent is on";
    const HELP: &'static str = "\
A table that agents are still on is kept, with a note: run `kalends users drop-inactive` first. With
rotation = false nothing is dropped.

Examples:
  kalends tables drop-old --dry-run --data-dir /var/lib/kalends
  kalends tables drop-old --keep 2 --config /etc/kalends/kalends.toml";
    type Report = NoReport;

    fn is_within_bounds(&self) -> bool {
        KEEP_MONTHS.contains(&i64::from(self.keep))
    }

    /// Drops the tables of all months before the kept ones.
    async fn run(self, job: &Job) -> Result<(), JobError> {
        let tables = job.step(|| job.context.store.tables()).await?;
        let months = job.step(|| job.context.store.months()).await?;
        if let Some(month) = job.frozen_month().await? {
            let note = format!(
                "rotation is off and {month} stays in use, so no table is old: nothing to drop; \
                 `kalends tables drop MONTH --yes` drops one that is no longer needed"
            );
            return job.note(note).await;
        }
        let old = old_months(&months, job.context.this_month(), self.keep);
        if old.is_empty() {
            let first = months_before(job.context.this_month(), self.keep);
            return job.note(format!("no table is older than {first}: nothing to drop")).await;
        }
        let agents = census::count(&tables, job).await?;
        for month in old {
            match (naming(&agents, month), self.force, self.dry_run) {
                (count @ 1.., false, _) => job.note(kept(month, count)).await?,
                (count, _, true) => job.note(format!("would drop {}", with(month, count))).await?,
                (count, _, false) => drop_month(month, count, job).await?,
            }
        }
        Ok(())
    }
}
