//! `kalends refusals`: the last requests that a running server refused.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use indicatif::HumanDuration;
use serde::{Deserialize, Serialize};
use state_machine::Span;

use crate::command::backend;
use crate::command::text::columns;
use crate::command::{Backend, CommandError, Job as AnyJob, JobError, Report, StoreCommand};
use crate::push::refusals::{REFUSALS_MAX, Refusal, Refusals};
use crate::settings::Settings;

#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListRefusals {
    /// Print JSON: one object, or one on each line for feeds and broadcasts
    #[arg(long)]
    pub json: bool,
}

/// Different refusals, the last one first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalList {
    pub at_ms: u64,
    pub refusals: Vec<Refusal>,
}

impl Report for RefusalList {
    fn text(&self, _is_first: bool) -> String {
        if self.refusals.is_empty() {
            return "no request was refused since the start of the server\n".to_owned();
        }
        let head = ["last", "count", "status", "errno", "request", "id", "message"];
        let rows = self.refusals.iter().map(|refusal| {
            let since = Span(self.at_ms.saturating_sub(refusal.last_ms));
            let route = refusal.route.as_deref().unwrap_or("no such path");
            [
                format!("{} ago", HumanDuration(Duration::from_millis(since.0))),
                refusal.count.to_string(),
                refusal.status.to_string(),
                refusal.errno.to_string(),
                format!("{} {route}", refusal.method),
                refusal.request.clone(),
                refusal.message.clone(),
            ]
        });
        columns(Some(head), rows)
    }
}

impl StoreCommand for ListRefusals {
    const NAME: &'static str = "refusals";
    const ABOUT: &'static str = "List the last requests that a running server refused";
    const HELP: &'static str = "\
Shows what the server on the data directory has answered with an error since its start, the last first:
the status, the errno, the sentence of the answer, how often, and the request id of the last one. Equal
refusals are one line, and the server keeps 100 lines. A path that none of the server's routes has is not
shown, nor any part of a payload or token. `kalends inspect` shows those of one endpoint. Each node of a
cluster has its own.

Examples:
  kalends refusals --data-dir /var/lib/kalends
  kalends refusals --json --config /etc/kalends/kalends.toml";
    const ONLY_READS: bool = true;
    type Report = RefusalList;

    fn is_json(&self) -> bool {
        self.json
    }

    async fn reach(&self, settings: &Settings) -> Result<Backend, CommandError> {
        backend::reach_connections(settings).await
    }

    async fn run(self, job: &Job) -> Result<(), JobError> {
        let refusals = job.context.part::<Arc<Refusals>>().ok_or_else(|| {
            JobError::refused(
                "no server runs on this data directory: refusals are in the memory of a running server",
            )
        })?;
        let refusals = refusals.last(REFUSALS_MAX, |_| true);
        job.report(RefusalList { at_ms: job.context.now().0, refusals }).await
    }
}

type Job = AnyJob<RefusalList>;
