//! The table of nodes: the present one, those that router records name or that this process has called, and those that
//! call any of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use actors::observe::{BreakerState, PeerStatus};
use actors::{Directory, NodeDirectory};
use futures_util::StreamExt;
use futures_util::stream::iter;
use serde::{Deserialize, Serialize};
use state_machine::{ClockDifference, NodeId, Span};
use storage::maintenance::PREFLIGHT_UAID;

use crate::cluster::about::{AboutNode, CallingNode};
use crate::cluster::outbound::{NodeAccess, PeerAnswer, PeerIdentity};
use crate::command::{Context, Servers};
use crate::push::app::AppState;
use crate::settings::keys::Keys;
use crate::settings::{Role, StoreKind};
use crate::system::build::Build;
use crate::system::node_address::NodeAddress;
use crate::system::printable::count;

/// Nodes that are asked at once.
const ASKED_AT_ONCE: usize = 16;

/// Bytes of a reason that are shown.
const WHY_BYTES_MAX: usize = 200;

/// The nodes that a process knows.
#[derive(Debug, Default)]
pub struct NodeTable {
    /// The worst is first.
    pub rows: Vec<NodeRow>,
    /// Nodes that are not asked, because they are too many.
    pub left_out: usize,
    /// The most nodes that call an asked one and that it does not name. Another may name them.
    pub callers_left_out: usize,
}

/// A node, as this process sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRow {
    /// Its name in router records; of an endpoint node, its host with the port of its public API.
    pub node: String,
    /// As `--role` has it. None of a name that is no URL.
    pub role: Option<String>,
    /// User agents: in `kalends nodes` those whose records name it. On the operator's page those that are connected, and
    /// none of a node that has not answered.
    pub agents: Option<u64>,
    pub state: NodeState,
    /// Of this process, of a node that answers, and of one that calls.
    pub version: Option<String>,
    /// Time until a node behind an open breaker is tried again.
    pub probe_in_ms: Option<u64>,
    /// Notifications that wait to be sent to it; none if the process is not a server of a cluster.
    pub notifications: Option<usize>,
    /// How far its clock is ahead of that of the process that asks, in seconds; 0 within `cluster_clock_skew_s`. None of
    /// that process, and without an answer.
    pub clock_ahead_s: Option<i64>,
    /// Seconds since a node that calls did so.
    pub called_s_ago: Option<u64>,
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
    /// It calls a node that answers, and has no port to be asked at, or none that this process knows.
    Calls,
}

/// What a node answers to this process.
struct Answer {
    node: NodeId,
    state: NodeState,
    ahead: Option<ClockDifference>,
    about: Option<AboutNode>,
}

/// Asks the nodes that records name, with their numbers of agents, and those that this process has called: at most
/// `nodes_max` of them.
pub async fn of(named: &BTreeMap<NodeId, u64>, nodes_max: usize, context: &Context) -> NodeTable {
    let own = context.part::<AppState>().map(NodeRow::own);
    let directory = context.part::<Directory>();
    let called = directory.map(NodeDirectory::peers).unwrap_or_default();
    let called: BTreeMap<_, _> = called.iter().map(|peer| (&peer.node, peer)).collect();
    let is_other = |node: &&NodeId| own.as_ref().is_none_or(|own| own.node != node.as_str());
    let nodes: BTreeSet<_> = named.keys().chain(called.keys().copied()).filter(is_other).collect();
    let mut nodes: Vec<_> = nodes.into_iter().cloned().collect();
    // Those that did not answer before are among the ones that are asked.
    let answered =
        |node: &NodeId| called.get(node).is_none_or(|peer| peer.breaker == BreakerState::Closed);
    nodes.sort_by_key(|node| (answered(node), Reverse(named.get(node).copied())));
    let left_out = nodes.len().saturating_sub(nodes_max);
    nodes.truncate(nodes_max);
    let access = node_access(context);
    let answers = iter(nodes).map(|node| ask(node, access.as_ref(), context));
    let answers: Vec<_> = answers.buffered(ASKED_AT_ONCE).collect().await;

    let of_answer = |answer: &Answer| NodeRow::of(answer, called.get(&answer.node).copied());
    let mut rows: Vec<_> = own.into_iter().chain(answers.iter().map(of_answer)).collect();
    let callers = access.map(|access| access.callers.list(context.now())).unwrap_or_default();
    let skew = Span::from_secs(context.settings.cluster_clock_skew_s);
    let here = (ClockDifference::ZERO, skew);
    rows.extend(callers.iter().map(|caller| NodeRow::calling(caller, here)));
    for Answer { node, ahead, about, state } in &answers {
        let callers = about.iter().flat_map(|about| &about.callers);
        // The clock of the node that they call may differ by as much, too.
        let there = (ahead.unwrap_or_default(), Span(2 * skew.0));
        rows.extend(callers.map(|caller| NodeRow::calling(caller, there)));
        // What is wrong with the server has it too.
        if let (NodeState::Unreachable(_), Some(directory)) = (state, directory) {
            directory.probe(node);
        }
    }
    let about = answers.iter().filter_map(|answer| answer.about.as_ref());
    let callers_left_out = about.map(|about| about.callers_left_out).max().unwrap_or_default();
    NodeTable { rows: in_order(rows), left_out, callers_left_out }
}

impl NodeTable {
    /// Clauses of the nodes that have no row.
    pub fn lacks(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.left_out > 0 {
            all.push(format!(
                "not listed: {} with fewer agents",
                count(self.left_out as u64, "node")
            ));
        }
        if self.callers_left_out > 0 {
            let callers = count(self.callers_left_out as u64, "caller");
            all.push(format!("not listed: {callers} of a listed node"));
        }
        all
    }
}

/// Leaves one row of each node: that of its own answer, or of its last call.
fn in_order(mut rows: Vec<NodeRow>) -> Vec<NodeRow> {
    rows.sort_by(|a, b| (&a.node, a.called_s_ago).cmp(&(&b.node, b.called_s_ago)));
    rows.dedup_by(|later, first| later.node == first.node);
    rows.sort_by_cached_key(NodeRow::place);
    rows
}

/// Requests to other nodes. None if there can be none: a command calls nodes only of a store that several may use.
pub fn node_access(context: &Context) -> Option<NodeAccess> {
    let settings = &context.settings;
    match context.part::<NodeAccess>() {
        Some(access) => Some(access.clone()),
        None if context.is_in_server() || settings.store == StoreKind::Embedded => None,
        None => NodeAccess::of(&Keys::load(&settings.data_dir).ok()?, settings),
    }
}

async fn ask(node: NodeId, access: Option<&NodeAccess>, context: &Context) -> Answer {
    let (ahead, about) = (None, None);
    if context.servers == Servers::Stopped {
        let why = "no server runs on the data directory".to_owned();
        return Answer { node, state: NodeState::Unreachable(why), ahead, about };
    }
    let Some(access) = access else {
        return Answer { node, state: NodeState::Unknown, ahead, about };
    };
    // No user agent has this uaid, so the notification changes nothing.
    let answer = access.ask(node.clone(), PREFLIGHT_UAID, context.clock.clone()).await;
    let PeerAnswer { identity, ahead, about } = answer;
    let drains = about.as_ref().is_some_and(|about| about.drains);
    let (state, ahead) = match identity {
        PeerIdentity::Unreachable(mut why) => {
            why.truncate(why.floor_char_boundary(WHY_BYTES_MAX));
            (NodeState::Unreachable(why), None)
        }
        PeerIdentity::ThisNode | PeerIdentity::OtherNode if drains => (NodeState::Drains, ahead),
        PeerIdentity::ThisNode | PeerIdentity::OtherNode => (NodeState::Answers, ahead),
    };
    Answer { node, state, ahead, about }
}

impl NodeRow {
    /// Without what is not known of each node.
    pub(super) fn new(node: &str, state: NodeState) -> Self {
        Self {
            node: node.to_owned(),
            role: None,
            agents: None,
            state,
            version: None,
            probe_in_ms: None,
            notifications: None,
            clock_ahead_s: None,
            called_s_ago: None,
        }
    }

    fn own(node: &AppState) -> Self {
        let clients = node.connections.as_ref().map(|role| &role.clients);
        Self {
            role: Some(node.role().name().to_owned()),
            agents: clients.map(|clients| clients.counters.identified()),
            version: Some(Build::TEXT.to_owned()),
            ..Self::new(&node.common.name, NodeState::ThisServer)
        }
    }

    fn of(Answer { node, state, ahead, about }: &Answer, called: Option<&PeerStatus>) -> Self {
        // Connection nodes alone have a router port, and so a URL.
        let is_url = NodeAddress::parse(node).is_ok();
        Self {
            role: is_url.then(|| Role::Connection.name().to_owned()),
            agents: about.as_ref().map(|about| about.agents),
            version: about.as_ref().map(|about| about.version.clone()),
            probe_in_ms: called.and_then(|peer| match peer.breaker {
                BreakerState::Closed => None,
                BreakerState::Open { probe_in } => Some(probe_in.0),
                BreakerState::HalfOpen => Some(0),
            }),
            notifications: called.map(|peer| peer.notifications_pending),
            clock_ahead_s: ahead.map(ClockDifference::seconds),
            ..Self::new(node.as_str(), state.clone())
        }
    }

    /// A caller of a node whose clock is this far ahead. Clocks that differ by at most `skew` agree.
    fn calling(caller: &CallingNode, (ahead, skew): (ClockDifference, Span)) -> Self {
        let ahead_s = ahead.seconds().saturating_add(caller.clock_ahead_s);
        let agrees = ahead_s.unsigned_abs() <= skew.0 / 1000;
        Self {
            role: Some(caller.role.clone()),
            version: Some(caller.version.clone()),
            clock_ahead_s: Some(if agrees { 0 } else { ahead_s }),
            called_s_ago: Some(caller.called_s_ago),
            ..Self::new(&caller.name, NodeState::Calls)
        }
    }

    /// Its clock, if it is known.
    pub fn clock(&self) -> Option<(NodeId, ClockDifference)> {
        let ahead = ClockDifference(self.clock_ahead_s?.saturating_mul(1000));
        Some((NodeId::new(&self.node), ahead))
    }

    pub fn is_silent(&self) -> bool {
        matches!(self.state, NodeState::Unreachable(_))
    }

    /// The worst is first, and then this node and those with the most user agents.
    fn place(&self) -> (u8, bool, bool, Reverse<Option<u64>>, String) {
        let state = match self.state {
            NodeState::Unreachable(_) => 0,
            NodeState::Drains => 1,
            NodeState::ThisServer | NodeState::Answers | NodeState::Unknown | NodeState::Calls => 2,
        };
        let is_right = self.clock_ahead_s.is_none_or(|ahead| ahead == 0);
        let is_other = self.state != NodeState::ThisServer;
        (state, is_right, is_other, Reverse(self.agents), self.node.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_node_is_first_and_this_one_before_its_equals() {
        let row = |node: &str, state, clock_ahead_s| NodeRow {
            clock_ahead_s,
            ..NodeRow::new(node, state)
        };
        let rows = vec![
            row("a", NodeState::Answers, Some(0)),
            NodeRow { agents: Some(7), ..row("f", NodeState::Answers, Some(0)) },
            row("d", NodeState::ThisServer, None),
            row("c", NodeState::Calls, Some(90)),
            row("b", NodeState::Drains, Some(0)),
            row("e", NodeState::Unreachable("refused".to_owned()), None),
        ];
        let order: String = in_order(rows).into_iter().map(|row| row.node).collect();
        assert_eq!(order, "ebcdfa");
    }

    #[test]
    fn nodes_without_a_row_are_counted() {
        let lacks = |left_out, callers_left_out| {
            NodeTable { left_out, callers_left_out, ..NodeTable::default() }.lacks()
        };
        assert_eq!(lacks(0, 0), [""; 0]);
        assert_eq!(
            lacks(3, 14),
            ["not listed: 3 nodes with fewer agents", "not listed: 14 callers of a listed node"]
        );
    }

    #[test]
    fn a_node_is_listed_once_as_it_answers_or_called_last() {
        let calling = |name: &str, called_s_ago, clock_ahead_s| CallingNode {
            name: name.to_owned(),
            role: "endpoint".to_owned(),
            version: "1.2.3".to_owned(),
            called_s_ago,
            clock_ahead_s,
        };
        let skew = Span::from_secs(60);
        let (here, ahead) =
            ((ClockDifference::ZERO, skew), (ClockDifference(90_000), Span(2 * skew.0)));
        let shown = |of: &CallingNode, clock| NodeRow::calling(of, clock).clock_ahead_s;
        for (ahead_s, clock, expected) in
            [(60, here, 0), (61, here, 61), (-61, here, -61), (-50, ahead, 0), (31, ahead, 121)]
        {
            assert_eq!(shown(&calling("e:1", 1, ahead_s), clock), Some(expected), "{ahead_s}");
        }
        let rows = vec![
            NodeRow::calling(&calling("e:1", 40, 0), ahead),
            NodeRow::calling(&calling("this:1", 3, 0), here),
            NodeRow::calling(&calling("e:1", 20, -1200), ahead),
            NodeRow::calling(&calling("http://a:1", 1, 0), here),
            NodeRow::new("http://a:1", NodeState::Answers),
            NodeRow::new("this:1", NodeState::ThisServer),
        ];
        let rows = in_order(rows);
        let states = rows.iter().map(|row| (&*row.node, &row.state)).collect::<Vec<_>>();
        assert_eq!(
            states,
            [
                ("e:1", &NodeState::Calls),
                ("this:1", &NodeState::ThisServer),
                ("http://a:1", &NodeState::Answers)
            ]
        );
        assert_eq!((rows[0].called_s_ago, rows[0].clock_ahead_s), (Some(20), Some(-1110)));
        assert_eq!(rows[0].role.as_deref(), Some("endpoint"));
        assert_eq!(rows[0].version.as_deref(), Some("1.2.3"));
    }
}
