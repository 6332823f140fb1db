//! `kalends store repair`: restores receipt subscriptions that a copy by an earlier build has lost.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::receipts::repair_receipts;
use crate::command::{Job, JobError, NoReport, StoreCommand};
use crate::operate::exclusive::refuse_servers;

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreRepair {
    /// Confirm that no server uses the tables, which DynamoDB does not show
    #[arg(long)]
    pub server_stopped: bool,
}

impl StoreCommand for StoreRepair {
    const NAME: &'static str = "store repair";
    const ABOUT: &'static str = "Restore receipt subscriptions that a copy by an earlier build has lost, while no server is running";
    const HELP: &'static str = "\
For a store that an earlier build has copied from SQLite, where URLs of receipts are answered 404. Each
sequence is made anew from the rows of its receipts, and its numbers continue above them. Receipts that later
ones have overwritten cannot be restored; the command prints their number. Stop all servers first. The exit
code is 1 if a server is running.

Examples:
  kalends store repair --data-dir /var/lib/kalends
  kalends store repair --server-stopped --config /etc/kalends/kalends.toml";
    type Report = NoReport;

    async fn run(self, job: &Job) -> Result<(), JobError> {
        refuse_servers(job, self.server_stopped)?;
        let note = match repair_receipts(job, &*job.context.store).await?.notes() {
            notes if notes.is_empty() => "no receipt subscription lacks its sequence".to_owned(),
            notes => notes.join("\n"),
        };
        job.note(note).await
    }
}
