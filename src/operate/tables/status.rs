//! `kalends tables status`: counts the agents on each month, and shows what there is to do.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;
use state_machine::Month;
use storage::maintenance::TableStatus;

use super::advice::StoreState;
use super::census;
use super::table_text::{tables_text, with_months};
use crate::command::text::columns;
use crate::command::{Job, JobError, Report, StoreCommand};

#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetStatus {
    /// Print JSON: one object, or one on each line for feeds and broadcasts
    #[arg(long)]
    pub json: bool,
}

/// The state of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The present month by the clock of the process that holds the store.
    pub this_month: Month,
    /// Whether a new table is used each month.
    pub rotation: bool,
    pub tables: Vec<TableStatus>,
    /// Number of agents on each month. Programs read it under the name `clients`.
    #[serde(rename = "clients")]
    pub agents: BTreeMap<Month, u64>,
    /// Number of agents with an unfinished move away from each month.
    pub unfinished_moves: BTreeMap<Month, u64>,
    /// Number of records with a router type or recipient that is not served, which count as none.
    pub other_types: u64,
    /// Number of users whose drop was interrupted.
    pub unfinished_drops: u64,
    /// The months that `kalends tables drop-old` would drop.
    pub droppable: Vec<Month>,
    /// What the operator should do, in sentences.
    pub advice: Vec<String>,
}

impl Report for Status {
    fn text(&self, _is_first: bool) -> String {
        let Status { this_month, tables, agents, unfinished_moves, .. } = self;
        let rotation = if self.rotation { "on" } else { "off" };
        let mut text = tables_text(tables);
        text += &format!("\nIt is {this_month}, rotation is {rotation}\n\n");
        let months: BTreeSet<_> = agents.keys().chain(unfinished_moves.keys()).collect();
        if months.is_empty() {
            text += "There are no agents\n";
        } else {
            let count = |count: Option<&u64>| count.copied().unwrap_or(0).to_string();
            let rows = months.into_iter().map(|month| {
                [month.to_string(), count(agents.get(month)), count(unfinished_moves.get(month))]
            });
            text += &columns(Some(["MONTH", "AGENTS ON IT", "MOVING AWAY FROM IT"]), rows);
        }
        for advice in &self.advice {
            text += &format!("\n- {advice}");
        }
        text + "\n"
    }

    fn json(&self) -> String {
        with_months(json!(self))
    }
}

impl StoreCommand for GetStatus {
    const NAME: &'static str = "tables status";
    const ABOUT: &'static str = "Count the agents on each month, and show what there is to do";
    const HELP: &'static str = "\
Reads every router record once, to count which month agents are on.

Examples:
  kalends tables status --data-dir /var/lib/kalends
  kalends tables status --json --config /etc/kalends/kalends.toml";
    const ONLY_READS: bool = true;
    type Report = Status;

    fn is_json(&self) -> bool {
        self.json
    }

    async fn run(self, job: &Job<Status>) -> Result<(), JobError> {
        let tables = job.step(|| job.context.store.tables()).await?;
        let agents = census::count(&tables, job).await?;
        let frozen_month = job.frozen_month().await?;
        let (now, makes_tables) = (job.context.now(), job.context.settings.makes_tables());
        let state =
            StoreState { now, frozen_month, makes_tables, tables: &tables, agents: &agents };
        let status = Status {
            this_month: job.context.this_month(),
            rotation: frozen_month.is_none(),
            advice: state.advice(),
            droppable: state.droppable(),
            agents: agents.curmonth,
            unfinished_moves: agents.oldmonth,
            other_types: agents.other_types,
            unfinished_drops: agents.dropped,
            tables,
        };
        job.report(status).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use storage::maintenance::{Capacity, Table, Throughput};

    use super::*;
    use crate::operate::tables::list::Tables;

    fn month(text: &str) -> Month {
        text.parse().unwrap()
    }

    fn tables() -> Vec<TableStatus> {
        let row = |name: &str, table, capacity| {
            let (name, state) = (name.into(), "active".into());
            TableStatus { table, name, state, items: 12, bytes: 4096, capacity }
        };
        let units = Capacity::Provisioned(Throughput { read: 5, write: 6 });
        vec![
            row("router", Table::Router, Capacity::OnDemand),
            row("message_2026_11", Table::Messages(month("2026_11")), units),
        ]
    }

    fn status() -> Status {
        Status {
            this_month: month("2026_11"),
            rotation: true,
            tables: tables(),
            agents: BTreeMap::from([(month("2026_10"), 3), (month("2026_11"), 40)]),
            unfinished_moves: BTreeMap::from([(month("2026_09"), 1)]),
            other_types: 5,
            unfinished_drops: 2,
            droppable: vec![month("2026_08")],
            advice: vec!["do this".into(), "do that".into()],
        }
    }

    #[test]
    fn tables_are_printed_in_columns() {
        assert_eq!(
            Tables { tables: tables() }.text(true),
            "TABLE    NAME             STATE   ITEMS  SIZE      THROUGHPUT\n\
             router   router           active  12     4.00 KiB  on demand\n\
             2026_11  message_2026_11  active  12     4.00 KiB  5 reads, 6 writes/s\n"
        );
    }

    #[test]
    fn a_status_shows_the_agents_by_month_and_the_advice() {
        let printed = status().text(true);
        let expected = "\n\nIt is 2026_11, rotation is on\n\n\
             MONTH    AGENTS ON IT  MOVING AWAY FROM IT\n\
             2026_09  0             1\n\
             2026_10  3             0\n\
             2026_11  40            0\n\n\
             - do this\n- do that\n";
        assert!(printed.ends_with(expected), "{printed}");
    }

    #[test]
    fn json_is_one_object_with_exact_numbers() {
        let printed = Tables { tables: tables() }.json();
        assert_eq!(printed.lines().count(), 1);
        let printed: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(printed["tables"][0]["holds"], "router");
        assert!(printed["tables"][0].as_object().unwrap()["month"].is_null());
        assert_eq!(printed["tables"][0]["throughput"], "on_demand");
        assert_eq!(printed["tables"][1]["holds"], "messages");
        assert_eq!(printed["tables"][1]["month"], "2026_11");
        assert_eq!(printed["tables"][1]["bytes"], 4096);
        assert_eq!(printed["tables"][1]["throughput"]["provisioned"]["write"], 6);
        let printed: Value = serde_json::from_str(&status().json()).unwrap();
        assert_eq!(printed["clients"]["2026_10"], 3);
        assert_eq!(printed["unfinished_moves"]["2026_09"], 1);
        assert_eq!((&printed["other_types"], &printed["unfinished_drops"]), (&5.into(), &2.into()));
        assert_eq!(printed["droppable"][0], "2026_08");
        assert_eq!(printed["advice"][1], "do that");
    }
}
