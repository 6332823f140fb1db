//! The output of `kalends nodes` as text.

use state_machine::ClockDifference;

use super::output::{NodeRow, NodeState};
use super::print::columns;
use crate::cluster::clock_sentences::distance;

pub(super) fn nodes_text(rows: &[NodeRow]) -> String {
    if rows.is_empty() {
        return "No router record names a node: no user agent is connected.\n".to_owned();
    }
    let table = rows.iter().map(|row| [row.node.clone(), row.agents.to_string(), state(row)]);
    let table = columns(Some(["NODE", "AGENTS", "STATE"]), table);
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

fn state(row: &NodeRow) -> String {
    let mut parts = vec![match &row.state {
        NodeState::ThisServer => "this server".to_owned(),
        NodeState::Answers => "answers".to_owned(),
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
            probe_in_ms: None,
            notifications: Some(0),
            clock_ahead_s: Some(0),
        };
        let down = NodeRow {
            probe_in_ms: Some(1200),
            notifications: Some(3),
            ..row("http://b:1", 17, NodeState::Unreachable("refused".to_owned()))
        };
        let ahead = |seconds| NodeRow {
            clock_ahead_s: Some(seconds),
            ..row("http://c:1", 1, NodeState::Answers)
        };
        let answers = row("http://a:1", 1203, NodeState::Answers);
        let text = nodes_text(&[answers, down, ahead(90), ahead(-1200)]);
        let lines: Vec<_> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(lines[1], "http://a:1 1203 answers");
        assert_eq!(
            lines[2],
            "http://b:1 17 does not answer: refused; the breaker is open, it is tried again in 2 s; \
             3 notifications wait for it"
        );
        assert_eq!(lines[3], "http://c:1 1 answers; its clock is 90 s ahead of this one");
        assert_eq!(lines[4], "http://c:1 1 answers; its clock is 20 min behind this one");
        assert!(lines[6].starts_with("The records of 17 agents"), "{text}");
    }
}
