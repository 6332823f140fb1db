//! The user agents that a page lists: those of the last pushes, and then others that are connected.

use actors::registry::FirstConnections;
use serde::Serialize;
use state_machine::Uaid;

use crate::operate::inspect::findings::outcome_text;
use crate::push::app::AppState;
use crate::push::begin_of;
use crate::push::push_history::PushRecord;

/// User agents that are listed.
const LISTED_MAX: usize = 20;

/// Pushes that are looked through.
const PUSHES_MAX: usize = 1000;

/// A row of the list of user agents.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct AgentRow {
    #[serde(skip)]
    uaid: Uaid,
    /// The beginning of its uaid: the whole one lets anybody connect as it.
    begin: String,
    /// None on an endpoint node: it holds no connections.
    is_connected: Option<bool>,
    last_push: Option<LastPush>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct LastPush {
    at_ms: u64,
    outcome: String,
}

impl AgentRow {
    fn new(uaid: Uaid, is_connected: Option<bool>, last_push: Option<LastPush>) -> Self {
        Self { uaid, begin: begin_of(uaid), is_connected, last_push }
    }
}

/// Empty parts if a registry has ended: the verdict says so.
pub(super) async fn list(node: &AppState) -> Vec<AgentRow> {
    let pushes = node.endpoints.as_ref();
    let pushes = pushes.map(|role| role.history.last(PUSHES_MAX, |_| true)).unwrap_or_default();
    let mut rows = of_pushes(&pushes);
    if let Some(role) = &node.connections {
        let wanted = rows.iter().map(|row| row.uaid).collect();
        let found = role.clients.registry.send(FirstConnections { wanted, max: LISTED_MAX }).await;
        add_connected(&mut rows, &found.unwrap_or_default());
    }
    rows
}

/// The user agent of the list whose uaid begins so.
pub(super) async fn named(node: &AppState, begin: &str) -> Option<Uaid> {
    list(node).await.into_iter().find(|row| row.begin == begin).map(|row| row.uaid)
}

/// A row for each user agent, with its newest push. The newest are first.
fn of_pushes(newest_first: &[PushRecord]) -> Vec<AgentRow> {
    let mut rows: Vec<AgentRow> = Vec::new();
    for push in newest_first {
        if rows.len() < LISTED_MAX && rows.iter().all(|row| row.uaid != push.uaid) {
            let outcome = outcome_text(push.outcome, push.reason);
            let last_push = Some(LastPush { at_ms: push.at.0, outcome });
            rows.push(AgentRow::new(push.uaid, None, last_push));
        }
    }
    rows
}

fn add_connected(rows: &mut Vec<AgentRow>, connected: &[Uaid]) {
    for row in &mut *rows {
        row.is_connected = Some(connected.contains(&row.uaid));
    }
    let is_listed = |uaid: &&Uaid| rows.iter().any(|row| row.uaid == **uaid);
    let others: Vec<_> = connected.iter().filter(|uaid| !is_listed(uaid)).copied().collect();
    let others = others.into_iter();
    rows.extend(others.map(|uaid| AgentRow::new(uaid, Some(true), None)));
    rows.truncate(LISTED_MAX);
}

#[cfg(test)]
mod tests {
    use state_machine::{Chid, Span, Time, Urgency};

    use super::*;

    fn uaid(number: u8) -> Uaid {
        Uaid([number; 16])
    }

    fn push(number: u8, at: u64, outcome: &'static str) -> PushRecord {
        PushRecord {
            at: Time(at),
            took: Span::ZERO,
            uaid: uaid(number),
            chid: Chid([1; 16]),
            id: None,
            ttl: Span::ZERO,
            urgency: Urgency::Normal,
            outcome,
            reason: None,
        }
    }

    #[test]
    fn each_user_agent_has_one_row_with_its_newest_push() {
        let mut rows = of_pushes(&[push(2, 9, "stored"), push(1, 8, "delivered"), push(2, 7, "x")]);
        add_connected(&mut rows, &[uaid(1), uaid(3)]);
        let told = |row: &AgentRow| {
            let push = row.last_push.as_ref().map(|push| (push.at_ms, push.outcome.clone()));
            (row.uaid, row.is_connected, push)
        };
        let text = |at, text: &str| Some((at, text.to_owned()));
        assert_eq!(
            rows.iter().map(told).collect::<Vec<_>>(),
            [
                (uaid(2), Some(false), text(9, "stored")),
                (uaid(1), Some(true), text(8, "delivered")),
                (uaid(3), Some(true), None),
            ]
        );
    }

    #[test]
    fn a_list_is_bounded() {
        let pushes: Vec<_> = (0..=250).map(|number| push(number, 1, "stored")).collect();
        let mut rows = of_pushes(&pushes);
        assert_eq!(rows.len(), LISTED_MAX);
        add_connected(&mut rows, &[uaid(251), uaid(0)]);
        assert_eq!((rows.len(), rows[0].is_connected), (LISTED_MAX, Some(true)));
        let connected: Vec<_> = (0..=250).map(uaid).collect();
        let mut rows = Vec::new();
        add_connected(&mut rows, &connected);
        assert_eq!(rows.len(), LISTED_MAX);
    }
}
