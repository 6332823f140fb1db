//! Measures the time until all agents of a killed node have reconnected.

use std::collections::BTreeSet;
use std::time::Instant;

/// Tracks the node of each agent, and the agents that have to reconnect.
#[derive(Debug)]
pub(super) struct Reconnects {
    /// The connection node of each agent; `None` while the agent would not notice the end of the
    /// node.
    nodes: Vec<Option<usize>>,
    waits: Vec<Wait>,
    over: Vec<Reconnect>,
}

/// The time from the end of a node until its last agent reconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reconnect {
    pub(super) from: Instant,
    pub(super) until: Instant,
}

#[derive(Debug)]
struct Wait {
    since: Instant,
    left: BTreeSet<usize>,
}

impl Reconnects {
    pub(super) fn of(clients: usize) -> Self {
        Self { nodes: vec![None; clients], waits: Vec::new(), over: Vec::new() }
    }

    /// A connection node was killed.
    pub(super) fn node_killed(&mut self, node: usize, now: Instant) {
        let nodes = self.nodes.iter().enumerate();
        let left: BTreeSet<_> =
            nodes.filter(|(_, home)| **home == Some(node)).map(|(client, _)| client).collect();
        if !left.is_empty() {
            self.waits.push(Wait { since: now, left });
        }
    }

    /// The agent received the answer to its hello.
    pub(super) fn agent_connected(&mut self, client: usize, node: usize, now: Instant) {
        self.nodes[client] = Some(node);
        let over = &mut self.over;
        self.waits.retain_mut(|wait| {
            wait.left.remove(&client);
            if wait.left.is_empty() {
                over.push(Reconnect { from: wait.since, until: now });
            }
            !wait.left.is_empty()
        });
    }

    /// The agent disconnected, lost its connection or stopped reading.
    pub(super) fn agent_disconnected(&mut self, client: usize) {
        self.nodes[client] = None;
    }

    /// The completed intervals, one for each killed node.
    pub(super) fn over(&self) -> &[Reconnect] {
        &self.over
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_reconnect_interval_ends_when_the_last_agent_has_reconnected() {
        let mut reconnects = Reconnects::of(4);
        let now = Instant::now();
        for (client, node) in [(0, 1), (1, 1), (2, 0), (3, 1)] {
            reconnects.agent_connected(client, node, now);
        }
        reconnects.agent_disconnected(3);
        reconnects.node_killed(1, now);
        reconnects.node_killed(2, now);
        reconnects.agent_connected(2, 1, now + Duration::from_secs(1));
        reconnects.agent_connected(0, 0, now + Duration::from_secs(2));
        assert_eq!(reconnects.over(), []);
        let until = now + Duration::from_secs(3);
        reconnects.agent_connected(1, 1, until);
        assert_eq!(reconnects.over(), [Reconnect { from: now, until }]);
    }
}
