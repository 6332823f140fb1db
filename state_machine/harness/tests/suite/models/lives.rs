//! The life cycle of nodes: they drain, crash, exit, and start again.

use state_machine::Span;

use super::action::{Action, NodeIndex};
use super::node::Pending;
use super::scenario::Scenario;
use super::world::World;

/// The state of a node's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Life {
    #[default]
    Up,
    /// The node rejects new connections and ends each session at a time of its own. Until then it
    /// serves them.
    Draining,
    /// The process does not exist, and requests to it fail.
    Gone,
}

impl Scenario {
    /// The choices of operators.
    pub(crate) fn lives(&self, world: &World, actions: &mut Vec<Action>) {
        for node in 0..self.nodes.len() {
            match world.nodes[node].life {
                Life::Up => actions.push(Action::Drains(node)),
                Life::Draining => {}
                Life::Gone => actions.push(Action::Starts(node)),
            }
        }
    }
}

impl World {
    /// The progress of nodes that needs no choice.
    pub(crate) fn lives_go_on(&self, actions: &mut Vec<Action>) {
        let is_there = |node: NodeIndex| self.nodes[node].life != Life::Gone;
        let notifications =
            self.notifications.iter().filter(|notification| is_there(notification.to));
        actions.extend(notifications.copied().map(Action::NotificationArrives));
        let shunned = self.shunned.iter().copied().filter(|node| is_there(*node));
        actions.extend(shunned.map(Action::Recovers));
        let is_draining = |node: NodeIndex| self.nodes[node].life == Life::Draining;
        let ends =
            self.connections.iter().filter(|(_, it)| is_draining(it.node) && !it.is_closed());
        actions.extend(ends.map(|(connection, _)| Action::SessionEnds(*connection)));
        let is_empty = |node: &NodeIndex| {
            self.nodes[*node].queue.is_empty()
                && self.connections.values().all(|connection| connection.node != *node)
        };
        let exits = (0..self.nodes.len()).filter(|node| is_draining(*node)).filter(is_empty);
        actions.extend(exits.map(Action::Exits));
    }

    /// A restart takes longer than one instant, so no two connections to one node have the same
    /// time.
    pub(crate) fn starts(&mut self, node: NodeIndex) {
        self.now = self.now + Span(1);
        self.nodes[node].life = Life::Up;
    }

    /// Whether the endpoints' breaker for this node is open.
    pub(crate) fn is_shunned(&self, node: NodeIndex) -> bool {
        self.shunned.contains(&node)
    }

    /// Whether a node has state that a crash would discard.
    pub(crate) fn may_crash(&self, at: NodeIndex) -> bool {
        let node = &self.nodes[at];
        let has_last_words = node.life == Life::Draining && !node.queue.is_empty();
        has_last_words || self.connections.values().any(|connection| connection.node == at)
    }

    /// The node's store queue is lost, or its writes are executed later.
    pub(crate) fn node_crashes(
        &mut self,
        scenario: &Scenario,
        node: NodeIndex,
        is_on_its_way: bool,
    ) {
        let was_draining = self.nodes[node].life == Life::Draining;
        let mut queue = std::mem::take(&mut self.nodes[node]).queue;
        self.is_record_astray |= queue.iter().any(Pending::has_registered);
        // Before any of its writes the store writes the registration that it kept.
        if let Some(record) = self.unwritten.take().filter(|_| !is_on_its_way) {
            self.store.records.insert(record.uaid, record);
            self.starts(node);
        }
        queue.retain(|pending| is_on_its_way && pending.outlives_its_node());
        self.nodes.last_mut().into_iter().for_each(|last| last.queue.append(&mut queue));
        if was_draining || scenario.freedom.nodes_stay_down {
            self.nodes[node].life = Life::Gone;
        }
        self.is_unnotified |= scenario.freedom.notifications_travel;
        self.connections.retain(|_, connection| connection.node != node);
        self.agent.connection =
            self.agent.connection.filter(|connection| self.connections.contains_key(connection));
    }
}
