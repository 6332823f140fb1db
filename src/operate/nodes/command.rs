//! `kalends nodes`: the table of nodes, with the user agents that router records have of each.

use clap::Args;
use serde::{Deserialize, Serialize};
use state_machine::{ClockDifference, NodeId};

use super::table;
use super::table::{NodeRow, NodeState, node_access};
use crate::command::backend;
use crate::command::text::columns;
use crate::command::{Backend, CommandError, Job as AnyJob, JobError, Report, StoreCommand};
use crate::operate::tables::census;
use crate::push::judge::clocks::{distance, sentences};
use crate::settings::{Role, Settings};
use crate::system::printable::count;

/// Nodes that are asked: those with the most agents.
const NODES_MAX: usize = 1000;

#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListNodes {
    /// Print JSON: one object, or one on each line for feeds and broadcasts
    #[arg(long)]
    pub json: bool,
}

/// The nodes, the worst first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nodes {
    pub nodes: Vec<NodeRow>,
}

impl Report for Nodes {
    fn text(&self, _is_first: bool) -> String {
        nodes_text(&self.nodes)
    }
}

impl StoreCommand for ListNodes {
    const NAME: &'static str = "nodes";
    const ABOUT: &'static str = "List the nodes of a cluster, and whether they answer";
    const HELP: &'static str = "\
Reads every router record once, counts the agents on each node, and asks each connection node at its router
port, also for the nodes that call it: so endpoint nodes are listed. With a server on the data directory, it
shows what that server sees: itself, its breakers, and notifications that wait. Without one, the command asks
by itself, with the cluster_keys of keys.toml. The worst node is first. The exit code is 1 if a node does not
answer.

Examples:
  kalends nodes --store dynamodb --data-dir /var/lib/kalends
  kalends nodes --json --config /etc/kalends/kalends.toml";
    const ONLY_READS: bool = true;
    type Report = Nodes;

    fn is_json(&self) -> bool {
        self.json
    }

    async fn reach(&self, settings: &Settings) -> Result<Backend, CommandError> {
        backend::reach_connections(settings).await
    }

    async fn run(self, job: &Job) -> Result<(), JobError> {
        let tables = job.step(|| job.context.store.tables()).await?;
        let named = census::count(&tables, job).await?.nodes;
        let mut table = table::of(&named, NODES_MAX, &job.context).await;
        for row in &mut table.rows {
            row.agents = Some(named.get(&NodeId::new(&row.node)).copied().unwrap_or(0));
        }
        let (lacks, is_well) = (table.lacks(), !table.rows.iter().any(NodeRow::is_silent));
        let clocks = table.rows.iter().filter_map(NodeRow::clock).collect();
        job.report(Nodes { nodes: table.rows }).await?;
        if let Some(access) = node_access(&job.context) {
            for sentence in sentences(&access.compare(clocks)) {
                job.note(sentence).await?;
            }
        }
        for clause in lacks {
            job.note(clause).await?;
        }
        if is_well { Ok(()) } else { Err(JobError::Unwell) }
    }
}

type Job = AnyJob<Nodes>;

fn nodes_text(rows: &[NodeRow]) -> String {
    let cells = |row: &NodeRow| {
        let text = |value: Option<String>| value.unwrap_or("-".to_owned());
        let agents = row.agents.map(|agents| agents.to_string());
        let (role, version) = (row.role.clone(), row.version.clone());
        [row.node.clone(), text(role), text(agents), text(version), state_text(row)]
    };
    let head = Some(["NODE", "ROLE", "AGENTS", "VERSION", "STATE"]);
    match rows {
        [] => advice(rows),
        _ => [columns(head, rows.iter().map(cells)), advice(rows)].join(""),
    }
}

/// What follows from the table.
fn advice(rows: &[NodeRow]) -> String {
    let agents = |is_counted: fn(&NodeRow) -> bool| -> u64 {
        rows.iter().filter(|row| is_counted(row)).filter_map(|row| row.agents).sum()
    };
    if agents(|_| true) == 0 {
        let is_single = |row: &NodeRow| row.role.as_deref() == Some(Role::All.name());
        return match rows.iter().any(is_single) {
            true => "\nNo user agent is connected.\n".to_owned(),
            false => "\nNo router record names a node: another connection node is listed once a user agent has \
                      connected to it.\n"
                .to_owned(),
        };
    }
    match agents(NodeRow::is_silent) {
        0 => String::new(),
        stranded => format!(
            "\nUser agents whose record names a node that does not answer: {stranded}. Pushes to them are stored until \
             they connect again.\n"
        ),
    }
}

fn state_text(row: &NodeRow) -> String {
    let mut parts = vec![match &row.state {
        NodeState::ThisServer => "this server".to_owned(),
        NodeState::Answers => "answers".to_owned(),
        NodeState::Drains => "drains, and stops then".to_owned(),
        NodeState::Calls => {
            format!("calls, last {} s ago", row.called_s_ago.unwrap_or_default())
        }
        NodeState::Unreachable(why) => format!("does not answer: {why}"),
        NodeState::Unknown => {
            "unknown: keys.toml of this data directory has no cluster_keys to ask it with"
                .to_owned()
        }
    }];
    if let Some(ms) = row.probe_in_ms {
        parts.push(format!("the breaker is open, it is tried again in {} s", ms.div_ceil(1000)));
    }
    if let Some(waiting) = row.notifications.filter(|waiting| *waiting > 0) {
        parts.push(format!("waiting for it: {}", count(waiting as u64, "notification")));
    }
    if let Some((_, ahead)) = row.clock().filter(|(_, ahead)| *ahead != ClockDifference::ZERO) {
        parts.push(format!("its clock is {} this one", distance(ahead)));
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::fixture::Fixture;

    fn row(node: &str, agents: u64, state: NodeState) -> NodeRow {
        NodeRow {
            role: Some("connection".to_owned()),
            agents: Some(agents),
            version: Some("0.1.0".to_owned()),
            notifications: Some(0),
            clock_ahead_s: Some(0),
            ..NodeRow::new(node, state)
        }
    }

    /// The lines, in which the columns are apart by one blank.
    fn lines(rows: &[NodeRow]) -> Vec<String> {
        let text = nodes_text(rows);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        text.lines().map(words).collect()
    }

    #[tokio::test]
    async fn a_store_that_fails_is_told_without_work_that_stays() {
        let fixture = Fixture::with(&[]).await;
        fixture.context.store.close().await.unwrap();
        fixture.refused(ListNodes::default(), "the store failed: ").await;
    }

    #[test]
    fn a_node_that_is_down_is_told_with_its_breaker_and_its_agents() {
        let down = NodeRow {
            version: None,
            probe_in_ms: Some(1200),
            notifications: Some(3),
            ..row("http://b:1", 17, NodeState::Unreachable("refused".to_owned()))
        };
        let ahead = |seconds| NodeRow {
            clock_ahead_s: Some(seconds),
            ..row("http://c:1", 1, NodeState::Answers)
        };
        let calls = NodeRow {
            role: Some("endpoint".to_owned()),
            called_s_ago: Some(20),
            ..row("e:1", 0, NodeState::Calls)
        };
        let answers = row("http://a:1", 1203, NodeState::Answers);
        let drains = row("http://d:1", 2, NodeState::Drains);
        let stopped = NodeRow { role: None, ..row("local", 0, NodeState::Unknown) };
        let lines = lines(&[answers, down, ahead(90), ahead(-1200), drains, calls, stopped]);
        assert_eq!(lines[0], "NODE ROLE AGENTS VERSION STATE");
        assert_eq!(lines[1], "http://a:1 connection 1203 0.1.0 answers");
        assert_eq!(
            lines[2],
            "http://b:1 connection 17 - does not answer: refused; the breaker is open, it is tried again in 2 s; \
             waiting for it: 3 notifications"
        );
        assert_eq!(
            lines[3],
            "http://c:1 connection 1 0.1.0 answers; its clock is 90 s ahead of this one"
        );
        assert_eq!(
            lines[4],
            "http://c:1 connection 1 0.1.0 answers; its clock is 20 min behind this one"
        );
        assert_eq!(lines[5], "http://d:1 connection 2 0.1.0 drains, and stops then");
        assert_eq!(lines[6], "e:1 endpoint 0 0.1.0 calls, last 20 s ago");
        assert!(lines[7].starts_with("local - 0 0.1.0 unknown: "), "{}", lines[7]);
        assert!(lines[9].contains("does not answer: 17. Pushes"), "{}", lines[9]);
    }

    #[test]
    fn without_user_agents_it_is_explained_which_nodes_are_listed() {
        const OTHERS: &str = "No router record names a node: another connection node is listed once a user agent has \
                              connected to it.";
        let this = |role: &str| NodeRow {
            role: Some(role.to_owned()),
            ..row("this", 0, NodeState::ThisServer)
        };
        assert_eq!(lines(&[]), ["", OTHERS]);
        assert_eq!(
            lines(&[this("endpoint")])[1..],
            ["this endpoint 0 0.1.0 this server", "", OTHERS]
        );
        assert_eq!(lines(&[this("all")])[2..], ["", "No user agent is connected."]);
        let used = NodeRow { agents: Some(1), ..this("connection") };
        assert_eq!(lines(&[used])[1..], ["this connection 1 0.1.0 this server"]);
    }
}
