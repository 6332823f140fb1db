//! `kalends users repair`: sets records of connections in the future to the present, while no server is running
//! (docs/decisions/0044-repair-of-records-in-the-future.md).

use clap::Args;
use serde::{Deserialize, Serialize};
use storage::maintenance::{CopyProgress, RepairClock, Table};

use super::latest;
use crate::command::{Job, JobError, NoReport, StoreCommand};
use crate::operate::exclusive::{all_pages, refuse_servers};
use crate::system::printable::count;

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repair {
    /// Confirm that no server uses the tables, which DynamoDB does not show
    #[arg(long)]
    pub server_stopped: bool,
}

impl StoreCommand for Repair {
    const NAME: &'static str = "users repair";
    const ABOUT: &'static str =
        "Set records of connections in the future to now, while no server is running";
    const HELP: &'static str = "\
For records that a server with a clock ahead has written. Nothing is lost with them, but each connect of such an
agent costs a second write, and one that stays away is not found by `users drop-inactive`. Correct the clock
first, and stop all servers; agents reconnect. The exit code is 1 if a server is running.

Examples:
  kalends users repair --data-dir /var/lib/kalends
  kalends users repair --server-stopped --config /etc/kalends/kalends.toml";
    type Report = NoReport;

    async fn run(self, job: &Job) -> Result<(), JobError> {
        refuse_servers(job, self.server_stopped)?;
        let context = &job.context;
        let tables = job.step(|| context.store.tables()).await?;
        let router = tables.iter().find(|known| known.table == Table::Router);
        let (of, now) = (router.map(|router| router.items), context.now());
        let last_connect_shards = context.settings.last_connect_shards;
        let clock = RepairClock { now, latest: latest(now), last_connect_shards };
        let step = |after| context.store.repair_records(clock, after);
        let CopyProgress { seen, written, .. } =
            all_pages("reading records", of, step, job).await?;
        let seen = count(seen, "record");
        job.note(format!("{written} of {seen} in the future, set to now")).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::fixture::{DAY_MS, Fixture, NOW};

    /// The store of a fixture has empty pages, and pages of one row.
    #[tokio::test]
    async fn records_of_the_future_on_each_page_are_set_to_now() {
        let fixture = Fixture::with(&["2026_11"]).await;
        fixture.users_of(0..3, NOW).await;
        fixture.users_of(3..600, NOW + state_machine::Span(DAY_MS)).await;
        let notes = async || fixture.notes(Repair { server_stopped: true }).await;
        let says = |written: u64| [format!("{written} of 600 records in the future, set to now")];
        assert_eq!(notes().await, says(597));
        assert_eq!(notes().await, says(0));
    }
}
