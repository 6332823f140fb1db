//! `kalends nodes`: the nodes that router records name, each with its agents and whether it answers.

use std::collections::BTreeMap;

use actors::observe::{BreakerState, PeerStatus};
use actors::{Directory, NodeDirectory};
use futures_util::StreamExt;
use futures_util::stream::iter;
use state_machine::{ClockDifference, NodeId};
use storage::maintenance::PREFLIGHT_UAID;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::tables::census;
use crate::cluster::about::AboutNode;
use crate::cluster::outbound::{NodeAccess, PeerIdentity};
use crate::command::backend;
use crate::command::text::columns;
use crate::command::{
    Backend, CommandError, Context, Job as AnyJob, JobError, Report, Servers, StoreCommand,
};
use crate::push::judge::clocks::{distance, sentences};
use crate::settings::keys::Keys;
use crate::settings::{Settings, StoreKind};
use crate::system::build::Build;

/// Nodes that are listed: those with the most agents.
const NODES_MAX: usize = 1000;

/// Nodes that are asked at once.
pub const ASKED_AT_ONCE: usize = 16;

#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListNodes {
    /// Print JSON: one object, or one on each line for feeds and broadcasts
    #[arg(long)]
    pub json: bool,
}

/// The nodes that router records name, those with the most agents first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nodes {
    pub nodes: Vec<NodeRow>,
}

/// A node, as this process sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRow {
    /// Its name in router records.
    pub node: String,
    /// Records that name it.
    pub agents: u64,
    pub state: NodeState,
    /// Of this process, and of a node that answers.
    pub version: Option<String>,
    /// Time until a node behind an open breaker is tried again.
    pub probe_in_ms: Option<u64>,
    /// Notifications that wait to be sent to it; none if the process is not a server of a cluster.
    pub notifications: Option<usize>,
    /// How far its clock is ahead of that of the process that asks, in seconds; 0 within `cluster_clock_skew_s`. None of
    /// that process, and without an answer.
    pub clock_ahead_s: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    ThisServer,
    /// It answers, and shares the keys.
    Answers,
    /// It answers, closes its sessions and ends then.
    Drains,
    Unreachable(String),
    /// This process cannot ask it.
    Unknown,
}

impl Report for Nodes {
    fn text(&self, _is_first: bool) -> String {
        nodes_text(&self.nodes)
    }
}

impl StoreCommand for ListNodes {
    const NAME: &'static str = "nodes";
    const ABOUT: &'static str = "List the nodes that hold user agents, and whether they answer";
    const HELP: &'static str = "\
Reads every router record once, counts the agents on each node, and asks each node at its router port. With
a server on the data directory, it shows what that server sees: its breakers, and notifications that wait.
Without one, the command asks by itself, with the cluster_keys of keys.toml. The exit code is 1 if a node does
not answer.

Examples:
  kalends nodes --store dynamodb --data-dir /var/lib/kalends
  kalends nodes --json --config /etc/kalends/kalends.toml";
    type Report = Nodes;

    fn is_json(&self) -> bool {
        self.json
    }

    async fn reach(&self, settings: &Settings) -> Result<Backend, CommandError> {
        backend::reach_connections(settings).await
    }

    async fn run(self, job: &Job) -> Result<(), JobError> {
        let tables = job.step(|| job.context.store.tables()).await?;
        let mut agents = census::count(&tables, job).await?.nodes;
        let called = job.context.part::<Directory>().map(NodeDirectory::peers);
        let called: BTreeMap<_, _> =
            called.into_iter().flatten().map(|peer| (peer.node.clone(), peer)).collect();
        // A node without agents is listed if this process has called it.
        for node in called.keys() {
            agents.entry(node.clone()).or_default();
        }
        let mut listed: Vec<_> = agents.into_iter().collect();
        listed.sort_by_key(|(_, agents)| std::cmp::Reverse(*agents));
        let left_out = listed.len().saturating_sub(NODES_MAX);
        listed.truncate(NODES_MAX);
        let rows = iter(listed).map(|(node, agents)| row(node, agents, &called, job));
        let (rows, clocks): (Vec<_>, Vec<_>) = rows.buffered(ASKED_AT_ONCE).unzip().await;
        let is_silent = |row: &NodeRow| matches!(row.state, NodeState::Unreachable(_));
        let is_well = !rows.iter().any(is_silent);
        job.report(Nodes { nodes: rows }).await?;
        if let Some(peers) = node_access(&job.context) {
            let comparison = peers.compare(clocks.into_iter().flatten().collect());
            for sentence in sentences(&comparison) {
                job.note(sentence).await?;
            }
        }
        if left_out > 0 {
            job.note(format!("{left_out} nodes with fewer agents are not listed")).await?;
        }
        if is_well { Ok(()) } else { Err(JobError::Unwell) }
    }
}

type Job = AnyJob<Nodes>;

/// Requests to other nodes. None if there can be none: a command calls nodes only of a store that several may use.
pub fn node_access(context: &Context) -> Option<NodeAccess> {
    let settings = &context.settings;
    match context.part::<NodeAccess>() {
        Some(access) => Some(access.clone()),
        None if context.is_in_server() || settings.store == StoreKind::Embedded => None,
        None => NodeAccess::of(&Keys::load(&settings.data_dir).ok()?, settings),
    }
}

async fn row(
    node: NodeId,
    agents: u64,
    called: &BTreeMap<NodeId, PeerStatus>,
    job: &Job,
) -> (NodeRow, Option<(NodeId, ClockDifference)>) {
    let status = called.get(&node);
    let probe_in_ms = status.and_then(|status| match status.breaker {
        BreakerState::Closed => None,
        BreakerState::Open { probe_in } => Some(probe_in.0),
        BreakerState::HalfOpen => Some(0),
    });
    let (state, version, ahead) = state(node.clone(), job).await;
    let row = NodeRow {
        node: node.as_str().to_owned(),
        agents,
        state,
        version,
        probe_in_ms,
        notifications: status.map(|status| status.notifications_pending),
        clock_ahead_s: ahead.map(ClockDifference::seconds),
    };
    (row, ahead.map(|ahead| (node, ahead)))
}

/// The state of a node and its version, and how far its clock is ahead if it is another one that answers.
async fn state(node: NodeId, job: &Job) -> (NodeState, Option<String>, Option<ClockDifference>) {
    let context = &job.context;
    if context.part::<Directory>().is_some_and(|nodes| nodes.own() == Some(&node)) {
        return (NodeState::ThisServer, Some(Build::TEXT.to_owned()), None);
    }
    if context.servers == Servers::Stopped {
        let why = "no server runs on the data directory".to_owned();
        return (NodeState::Unreachable(why), None, None);
    }
    let Some(peers) = node_access(context) else {
        return (NodeState::Unknown, None, None);
    };
    // No user agent has this uaid, so the notification changes nothing.
    let answer = peers.ask(node, PREFLIGHT_UAID, context.clock.clone()).await;
    match (answer.identity, answer.about) {
        (PeerIdentity::Unreachable(why), _) => (NodeState::Unreachable(why), None, None),
        (_, Some(AboutNode { version, drains: true, .. })) => {
            (NodeState::Drains, Some(version), answer.ahead)
        }
        (_, about) => (NodeState::Answers, about.map(|about| about.version), answer.ahead),
    }
}

fn nodes_text(rows: &[NodeRow]) -> String {
    if rows.is_empty() {
        return "No router record names a node: no user agent is connected.\n".to_owned();
    }
    let cells = |row: &NodeRow| {
        let version = row.version.clone().unwrap_or("-".to_owned());
        [row.node.clone(), row.agents.to_string(), version, state_text(row)]
    };
    let table = columns(Some(["NODE", "AGENTS", "VERSION", "STATE"]), rows.iter().map(cells));
    let down = rows.iter().filter(|row| matches!(row.state, NodeState::Unreachable(_)));
    let stranded: u64 = down.map(|row| row.agents).sum();
    let advice = match stranded {
        0 => String::new(),
        _ => format!(
            "\nThe records of {stranded} agents name a node that does not answer: pushes to them are stored until they \
             connect again.\n"
        ),
    };
    table + &advice
}

fn state_text(row: &NodeRow) -> String {
    let mut parts = vec![match &row.state {
        NodeState::ThisServer => "this server".to_owned(),
        NodeState::Answers => "answers".to_owned(),
        NodeState::Drains => "drains, and stops then".to_owned(),
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
        parts.push(format!("{waiting} notifications wait for it"));
    }
    if let Some(seconds) = row.clock_ahead_s.filter(|seconds| *seconds != 0) {
        let ahead = ClockDifference(seconds.saturating_mul(1000));
        parts.push(format!("its clock is {} this one", distance(ahead)));
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_down_is_told_with_its_breaker_and_its_agents() {
        let row = |node: &str, agents, state| NodeRow {
            node: node.to_owned(),
            agents,
            state,
            version: Some("0.1.0".to_owned()),
            probe_in_ms: None,
            notifications: Some(0),
            clock_ahead_s: Some(0),
        };
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
        let answers = row("http://a:1", 1203, NodeState::Answers);
        let drains = row("http://d:1", 2, NodeState::Drains);
        let text = nodes_text(&[answers, down, ahead(90), ahead(-1200), drains]);
        let lines: Vec<_> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(lines[1], "http://a:1 1203 0.1.0 answers");
        assert_eq!(
            lines[2],
            "http://b:1 17 - does not answer: refused; the breaker is open, it is tried again in 2 s; \
             3 notifications wait for it"
        );
        assert_eq!(lines[3], "http://c:1 1 0.1.0 answers; its clock is 90 s ahead of this one");
        assert_eq!(lines[4], "http://c:1 1 0.1.0 answers; its clock is 20 min behind this one");
        assert_eq!(lines[5], "http://d:1 2 0.1.0 drains, and stops then");
        assert!(lines[7].starts_with("The records of 17 agents"), "{text}");
    }
}
