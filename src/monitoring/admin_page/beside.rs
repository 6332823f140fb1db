//! What is asked beside the events, while a page is open: the store for the months, and the other nodes.

use actix_web::web::Data;
use actors::observe::{BreakerState, PeerStatus};
use actors::{Directory, NodeDirectory};
use futures_util::{StreamExt, stream};
use state_machine::{ClockDifference, NodeId, Span, Time};
use storage::maintenance::PREFLIGHT_UAID;

use super::asked::{MonthCount, NodeRow, State};
use super::page::AdminPage;
use crate::cluster::about::AboutNode;
use crate::cluster::outbound::{NodeAccess, PeerAnswer, PeerIdentity};
use crate::operate::nodes::{ASKED_AT_ONCE, node_access};
use crate::operate::tables::status::{GetStatus, Status};
use crate::system::build::Build;

/// Time between two counts of the agents by month.
const COUNT_EVERY: Span = Span::from_secs(600);

/// Time between two rounds to the other nodes.
const ASK_EVERY: Span = Span::from_secs(10);

/// Other nodes that are asked and shown. `kalends nodes` has all.
const NODES_MAX: usize = 100;

/// Bytes of a reason that are shown.
const WHY_BYTES_MAX: usize = 200;

/// Counts the agents by month, if that is due and the store is on this machine.
pub(super) fn count_months(page: &Data<AdminPage>, now: Time) {
    let Some(round) =
        page.counts_months.then(|| page.live.months.begin(now, COUNT_EVERY)).flatten()
    else {
        return;
    };
    let page = Data::clone(page);
    actix_web::rt::spawn(async move {
        let (reports, _) = page.perform(GetStatus::default()).await.unwrap_or_default();
        for Status { agents, unfinished_moves: leaving, .. } in reports {
            *page.live.months.last() = Some(MonthCount { at: now.0, agents, leaving });
        }
        drop(round);
    });
}

/// Asks the nodes that this one has called, if that is due.
pub(super) fn ask_nodes(page: &Data<AdminPage>, now: Time) {
    let Some(access) = node_access(&page.jobs) else { return };
    let Some(round) = page.live.nodes.begin(now, ASK_EVERY) else { return };
    let page = Data::clone(page);
    actix_web::rt::spawn(async move {
        let peers = page.node.nodes().map(NodeDirectory::peers).unwrap_or_default();
        let is_called = |peer: &PeerStatus| peer.breaker == BreakerState::Closed;
        let nodes = peers.into_iter().map(|peer| (is_called(&peer), peer.node));
        let mut nodes: Vec<_> = nodes.collect();
        // Those that did not answer before are among the ones that are asked.
        nodes.sort_unstable();
        nodes.truncate(NODES_MAX);
        let nodes = nodes.into_iter().map(|(_, node)| node);
        let rows = stream::iter(nodes).map(|node| ask(node, &access, &page));
        let mut rows: Vec<_> = rows.buffer_unordered(ASKED_AT_ONCE).collect().await;
        rows.push(this_node(&page));
        rows.sort_by_key(NodeRow::place);
        *page.live.nodes.last() = rows;
        drop(round);
    });
}

async fn ask(node: NodeId, access: &NodeAccess, page: &AdminPage) -> NodeRow {
    let clock = page.jobs.clock.clone();
    let PeerAnswer { identity, ahead, about } =
        access.ask(node.clone(), PREFLIGHT_UAID, clock).await;
    let why = match identity {
        PeerIdentity::Unreachable(mut why) => {
            why.truncate(why.floor_char_boundary(WHY_BYTES_MAX));
            Some(why)
        }
        PeerIdentity::ThisNode | PeerIdentity::OtherNode => None,
    };
    let drains = about.as_ref().is_some_and(|about| about.drains);
    let agents = about.as_ref().map(|about| about.agents);
    NodeRow {
        node: node.as_str().to_owned(),
        // Only these are called.
        role: "connection",
        version: about.map(|AboutNode { version, .. }| version),
        state: match why {
            Some(_) => State::Silent,
            None if drains => State::Drains,
            None => State::Serves,
        },
        clock_ahead_s: ahead.filter(|_| why.is_none()).map(ClockDifference::seconds),
        why,
        agents,
        is_this: false,
    }
}

fn this_node(page: &AdminPage) -> NodeRow {
    let own = page.jobs.part::<Directory>().and_then(Directory::own);
    let name = page.identity.node.as_ref().map(|(_, name)| name.clone());
    let connections = &page.node.connections;
    let agents = connections.as_ref().map(|role| role.clients.counters.identified());
    NodeRow {
        node: own.map_or(name.unwrap_or_default(), |own| own.as_str().to_owned()),
        role: page.role(),
        version: Some(Build::TEXT.to_owned()),
        state: if page.node.common.is_draining() { State::Drains } else { State::Serves },
        why: None,
        agents,
        clock_ahead_s: None,
        is_this: true,
    }
}
