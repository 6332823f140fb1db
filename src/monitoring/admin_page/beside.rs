//! What is asked beside the events, while a page is open: the store for the months, and the other nodes.

use std::collections::BTreeMap;

use actix_web::web::Data;
use actors::NodeDirectory;
use actors::observe::BreakerState;
use state_machine::{NodeId, Span, Time};

use super::page::{AdminPage, KnownNode};
use crate::operate::nodes::table;
use crate::operate::tables::status::GetStatus;
use crate::settings::Role;

/// Time between two counts of the agents by month.
const COUNT_EVERY: Span = Span::from_secs(600);

/// Time between two rounds to the other nodes.
const ASK_EVERY: Span = Span::from_secs(10);

/// Other nodes that are asked and shown. `kalends nodes` has all.
const NODES_MAX: usize = 100;

/// Counts the agents by month, if that is due and the store is on this machine.
pub(super) fn count_months(page: &Data<AdminPage>, now: Time) {
    let Some(round) =
        page.counts_months.then(|| page.live.months.begin(now, COUNT_EVERY)).flatten()
    else {
        return;
    };
    let page = Data::clone(page);
    actix_web::rt::spawn(async move {
        // The server keeps what it has counted. Without that the page shows the count before.
        let _ = page.perform(GetStatus::default()).await;
        drop(round);
    });
}

/// What calls have shown of the nodes: findings follow from it.
fn known(nodes: &dyn NodeDirectory) -> Vec<KnownNode> {
    let clocks = nodes.clocks();
    let differs = |node: &NodeId| clocks.differing().any(|clock| clock.node.as_ref() == Some(node));
    let silent = |breaker| breaker != BreakerState::Closed;
    let known = nodes.peers().into_iter().map(|peer| {
        let differs = differs(&peer.node);
        (peer.node, silent(peer.breaker), differs)
    });
    let mut known: Vec<_> = known.collect();
    known.sort_unstable();
    known
}

/// Asks the nodes that this one has called, if that is due or if they have changed: the table has what the findings name.
pub(super) fn ask_nodes(page: &Data<AdminPage>, now: Time) {
    if page.node.role() == Role::All {
        return;
    }
    let known = page.node.nodes().map(known).unwrap_or_default();
    if *page.live.nodes_known.lock() != known {
        *page.live.nodes_known.lock() = known;
        page.live.nodes.renew(now);
    }
    let Some(round) = page.live.nodes.begin(now, ASK_EVERY) else { return };
    let page = Data::clone(page);
    actix_web::rt::spawn(async move {
        let mut table = table::of(&BTreeMap::new(), NODES_MAX, &page.jobs).await;
        let mut shown = page.live.nodes.last();
        // A node that does not answer had the user agents of its last answer.
        for row in table.rows.iter_mut().filter(|row| row.agents.is_none()) {
            let before = shown.rows.iter().find(|before| before.node == row.node);
            row.agents = before.and_then(|before| before.agents);
        }
        *shown = table;
        drop((shown, round));
    });
}
