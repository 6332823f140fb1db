//! `kalends access list`: the tokens, and what their user agents use.

use actors::Access;
use actors::access::AccessCounts;
use clap::Args;
use indicatif::HumanBytes;
use serde::{Deserialize, Serialize};
use state_machine::access::{AccessGrant, AccessId};

use super::table;
use crate::command::text::{columns, to_json};
use crate::command::{Job, JobError, Report, StoreCommand};
use crate::system::clock::date;

/// Tokens in one report.
const ROWS_MAX: usize = 200;

#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessList {
    /// Print JSON: one object, or one on each line for feeds and broadcasts
    #[arg(long)]
    pub json: bool,
}

/// A batch of access tokens, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessRows(pub Vec<AccessRow>);

/// An access token in the list. The counts are known to the server that holds the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessRow {
    pub name: String,
    /// `valid`, `expired` or `revoked`.
    pub state: String,
    /// In seconds since 1970.
    pub created_s: u64,
    pub expires_s: Option<u64>,
    /// 0 is no limit.
    pub agents_max: u32,
    /// User agents that are connected now.
    pub connected: Option<u64>,
    /// Pushes to its user agents, and their size in bytes, since the server started.
    pub pushes: Option<u64>,
    pub bytes: Option<u64>,
}

impl Report for AccessRows {
    fn text(&self, is_first: bool) -> String {
        let or_dash = |count: Option<u64>| count.map_or("-".to_owned(), |count| count.to_string());
        let rows = self.0.iter().map(|row| {
            let agents_max = u64::from(row.agents_max);
            [
                row.name.clone(),
                row.state.clone(),
                date(row.created_s),
                row.expires_s.map_or("-".to_owned(), date),
                or_dash(Some(agents_max).filter(|max| *max > 0)),
                or_dash(row.connected),
                or_dash(row.pushes),
                row.bytes.map_or("-".to_owned(), |bytes| HumanBytes(bytes).to_string()),
            ]
        });
        let head =
            ["NAME", "STATE", "CREATED", "EXPIRES", "AGENTS MAX", "CONNECTED", "PUSHES", "SIZE"];
        columns(is_first.then_some(head), rows)
    }

    fn json(&self) -> String {
        self.0.iter().map(to_json).collect()
    }
}

impl StoreCommand for AccessList {
    const NAME: &'static str = "access list";
    const ABOUT: &'static str = "List the tokens and what their user agents use";
    const HELP: &'static str = "\
Connections, pushes and bytes are those of the running server since it started.

Examples:
  kalends access list --data-dir /var/lib/kalends
  kalends access list --json --data-dir /var/lib/kalends";
    const ONLY_READS: bool = true;
    type Report = AccessRows;

    fn is_json(&self) -> bool {
        self.json
    }

    /// Prints the tokens by name. Only the server that holds the store knows what they use.
    async fn run(self, job: &Job<AccessRows>) -> Result<(), JobError> {
        let (table, now) = (table::read(job).await?, job.context.now());
        let row = |(id, grant): (AccessId, &AccessGrant)| {
            let counts = job.context.part::<Access>().map(|access| access.counts(id));
            let AccessGrant { name, created_s, expires_s, agents_max, revoked_s, .. } =
                grant.clone();
            let state = match grant.has_ended(now) {
                _ if revoked_s.is_some() => "revoked",
                true => "expired",
                false => "valid",
            };
            let state = state.to_owned();
            let numbers = |count: fn(AccessCounts) -> u64| counts.map(count);
            AccessRow {
                name,
                state,
                created_s,
                expires_s,
                agents_max,
                connected: numbers(|counts| counts.connections),
                pushes: numbers(|counts| counts.pushes),
                bytes: numbers(|counts| counts.bytes),
            }
        };
        let mut rows: Vec<_> = table.iter().map(row).collect();
        rows.sort_by(|a, b| (&a.name, a.created_s).cmp(&(&b.name, b.created_s)));
        if rows.is_empty() {
            job.report(AccessRows(rows)).await?;
            return Ok(());
        }
        for rows in rows.chunks(ROWS_MAX) {
            job.report(AccessRows(rows.to_vec())).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_tokens_are_printed_in_columns() {
        let row = AccessRow {
            name: "alice".into(),
            state: "valid".into(),
            created_s: 1_700_000_000,
            expires_s: None,
            agents_max: 0,
            connected: Some(2),
            pushes: None,
            bytes: Some(2048),
        };
        let printed = AccessRows(vec![row]).text(true);
        assert!(printed.starts_with("NAME   STATE  CREATED "), "{printed}");
        let cells: Vec<_> = printed.lines().nth(1).unwrap().split("  ").map(str::trim).collect();
        let cells: Vec<_> = cells.into_iter().filter(|cell| !cell.is_empty()).collect();
        let date = "Tue, 14 Nov 2023 22:13:20 GMT";
        assert_eq!(cells, ["alice", "valid", date, "-", "-", "2", "-", "2.00 KiB"]);
    }
}
