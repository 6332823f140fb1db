//! What is asked beside the events, while a page is open: the store for the months, and the other nodes.

use std::collections::BTreeMap;

use actix_web::web::Data;
use state_machine::{Span, Time};

use super::page::AdminPage;
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

/// Asks the nodes that this one has called, if that is due.
pub(super) fn ask_nodes(page: &Data<AdminPage>, now: Time) {
    if page.node.role() == Role::All {
        return;
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
