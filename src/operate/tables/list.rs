//! `kalends tables list`: the tables of the store, as text or as JSON.

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;
use storage::maintenance::TableStatus;

use super::table_text::{tables_text, with_months};
use crate::command::{Job, JobError, Report, StoreCommand};

#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// Print JSON: one object, or one on each line for feeds and broadcasts
    #[arg(long)]
    pub json: bool,
}

/// All tables of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tables {
    pub tables: Vec<TableStatus>,
}

impl Report for Tables {
    fn text(&self, _is_first: bool) -> String {
        tables_text(&self.tables)
    }

    fn json(&self) -> String {
        with_months(json!(self))
    }
}

impl StoreCommand for List {
    const NAME: &'static str = "tables list";
    const ABOUT: &'static str = "List the tables: state, rows, bytes, throughput";
    const HELP: &'static str = "\
DynamoDB counts rows and bytes about every six hours.

Examples:
  kalends tables list --data-dir /var/lib/kalends
  kalends tables list --json --config /etc/kalends/kalends.toml";
    const ONLY_READS: bool = true;
    type Report = Tables;

    fn is_json(&self) -> bool {
        self.json
    }

    async fn run(self, job: &Job<Tables>) -> Result<(), JobError> {
        let tables = job.step(|| job.context.store.tables()).await?;
        job.report(Tables { tables }).await
    }
}
