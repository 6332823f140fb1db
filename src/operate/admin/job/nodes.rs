//! `nodes`: the nodes that router records name, each with its agents and whether it answers.

use std::collections::BTreeMap;

use actors::NodeDirectory;
use actors::observe::{BreakerState, PeerStatus};
use futures_util::StreamExt;
use futures_util::stream::iter;
use state_machine::{ClockDifference, NodeId};
use storage::maintenance::PREFLIGHT_UAID;

use super::{JobError, Report, census};
use crate::cluster::clock_sentences::sentences;
use crate::cluster::outbound::PeerIdentity;
use crate::operate::admin::job_context::Servers;
use crate::operate::admin::output::{NodeRow, NodeState, Output};

/// Nodes that are listed: those with the most agents.
const NODES_MAX: usize = 1000;

/// Nodes that are asked at once.
const ASKED_AT_ONCE: usize = 16;

pub(super) async fn run(report: &Report) -> Result<(), JobError> {
    let tables = report.step(|| report.context.store.tables()).await?;
    let mut agents = census::count(&tables, report).await?.nodes;
    let called = report.context.process.nodes.as_ref().map(NodeDirectory::peers);
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
    let rows = iter(listed).map(|(node, agents)| row(node, agents, &called, report));
    let (rows, clocks): (Vec<_>, Vec<_>) = rows.buffered(ASKED_AT_ONCE).unzip().await;
    report.emit(Output::Nodes(rows)).await?;
    if let Some(peers) = &report.context.process.peers {
        let comparison = peers.compare(clocks.into_iter().flatten().collect());
        for sentence in sentences(&comparison) {
            report.note(sentence).await?;
        }
    }
    match left_out {
        0 => Ok(()),
        _ => report.note(format!("{left_out} nodes with fewer agents are not listed")).await,
    }
}

async fn row(
    node: NodeId,
    agents: u64,
    called: &BTreeMap<NodeId, PeerStatus>,
    report: &Report,
) -> (NodeRow, Option<(NodeId, ClockDifference)>) {
    let status = called.get(&node);
    let probe_in_ms = status.and_then(|status| match status.breaker {
        BreakerState::Closed => None,
        BreakerState::Open { probe_in } => Some(probe_in.0),
        BreakerState::HalfOpen => Some(0),
    });
    let (state, ahead) = state(node.clone(), report).await;
    let row = NodeRow {
        node: node.as_str().to_owned(),
        agents,
        state,
        probe_in_ms,
        notifications: status.map(|status| status.notifications_pending),
        clock_ahead_s: ahead.map(ClockDifference::seconds),
    };
    (row, ahead.map(|ahead| (node, ahead)))
}

/// The state of a node, and how far its clock is ahead if it is another one that answers.
async fn state(node: NodeId, report: &Report) -> (NodeState, Option<ClockDifference>) {
    let context = &report.context;
    if context.process.nodes.as_ref().is_some_and(|nodes| nodes.own() == Some(&node)) {
        return (NodeState::ThisServer, None);
    }
    if context.servers == Servers::Stopped {
        let why = "no server runs on the data directory".to_owned();
        return (NodeState::Unreachable(why), None);
    }
    let Some(peers) = &context.process.peers else {
        return (NodeState::Unknown, None);
    };
    // No user agent has this uaid, so the notification changes nothing.
    let (identity, ahead) = peers.ask(node, PREFLIGHT_UAID, context.clock.clone()).await;
    match identity {
        PeerIdentity::ThisNode | PeerIdentity::OtherNode => (NodeState::Answers, ahead),
        PeerIdentity::Unreachable(why) => (NodeState::Unreachable(why), None),
    }
}
