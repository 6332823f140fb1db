//! `kalends tables drop`: drops one month's table.

use clap::Args;
use serde::{Deserialize, Serialize};
use state_machine::Month;

use super::census::{self, naming};
use super::old::{drop_month, kept, with};
use crate::command::{Job, JobError, NoReport, StoreCommand};

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drop {
    /// The month, such as 2026_09
    pub month: Month,
    /// Drop it; without this the command only shows what it would drop
    #[arg(long)]
    pub yes: bool,
    /// Drop it although agents are still on it: these get a new id when they connect
    #[arg(long)]
    pub force: bool,
}

impl StoreCommand for Drop {
    const NAME: &'static str = "tables drop";
    const ABOUT: &'static str = "Drop one month's table";
    const HELP: &'static str = "\
Refused for a table in use, and for one that agents are still on unless --force is given.

Example:
  kalends tables drop 2026_03 --yes --data-dir /var/lib/kalends";
    type Report = NoReport;

    /// Drops one table if no server uses it and `--yes` is given.
    async fn run(self, job: &Job) -> Result<(), JobError> {
        let month = self.month;
        let months = job.step(|| job.context.store.months()).await?;
        if !months.contains(&month) {
            return job.note(format!("there is no table of {month}: nothing to drop")).await;
        }
        let frozen_month = job.frozen_month().await?;
        if let Some(reason) = in_use(month, frozen_month, job.context.this_month()) {
            return Err(JobError::Refused(format!("{month} stays: {reason}")));
        }
        let tables = job.step(|| job.context.store.tables()).await?;
        let count = naming(&census::count(&tables, job).await?, month);
        let refused = match (count, self.force, self.yes) {
            (1.., false, _) => kept(month, count),
            (_, _, false) => format!("this would drop {}; add --yes to do it", with(month, count)),
            (_, _, true) => return drop_month(month, count, job).await,
        };
        Err(JobError::Refused(refused))
    }
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
