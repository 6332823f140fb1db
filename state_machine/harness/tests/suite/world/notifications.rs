//! Notifications between nodes about an agent that moved, and the connection that is live as a
//! result.

use std::collections::BTreeMap;

use state_machine::connection::{CloseReason, Effect, Event};
use state_machine::store::{RegisterResult, StoreAnswer};
use state_machine::{NodeBinding, NodeId, RouterRecord, Time, Uaid};

use super::op::How;
use super::{SyntaxError, World};

/// A notification from one node to another: an agent is connected elsewhere since a time.
#[derive(Debug, Clone)]
pub(crate) struct Notification {
    pub(crate) to: NodeId,
    pub(crate) uaid: Uaid,
    pub(crate) connected_at: Time,
}

/// The notifications between nodes, and those that must have arrived.
#[derive(Debug, Default)]
pub(crate) struct Post {
    /// Notifications on their way. Any event may overtake them, for any time.
    pub(crate) notifications: Vec<Notification>,
    /// The last move of an agent away from each node.
    moves: BTreeMap<(NodeId, Uaid), Move>,
    /// Whether an operation to clear a node was not executed.
    pub(crate) is_clear_lost: bool,
}

#[derive(Debug)]
struct Move {
    at: Time,
    is_notified: bool,
}

impl Post {
    /// Records that the record led to one node and leads to another now.
    pub(crate) fn moved(&mut self, before: &RouterRecord, record: &RouterRecord) {
        let left = before.node.as_ref().filter(|left| record.node.as_ref() != Some(*left));
        if let (Some(left), Some(_)) = (left, &record.node) {
            let moved = Move { at: record.connected_at, is_notified: false };
            self.moves.insert((left.clone(), record.uaid), moved);
        }
    }

    /// Whether a node never received the notification of the last move away from it.
    fn is_ignorant(&self, node: &NodeId, uaid: Uaid) -> bool {
        self.moves.get(&(node.clone(), uaid)).is_some_and(|moved| !moved.is_notified)
    }
}

impl World {
    /// A notification arrives, is lost, or arrives and is repeated because its answer is lost.
    pub(super) fn notification_arrives(&mut self, notification: usize, how: How) {
        let notification = match how {
            How::AckReplyLost => self.post.notifications[notification].clone(),
            How::Well | How::Early | How::NotDone | How::NoSpace => {
                self.post.notifications.remove(notification)
            }
        };
        if how.is_undone() {
            return;
        }
        let Notification { to, uaid, connected_at } = notification;
        if let Some(connection) = self.find(&to, uaid) {
            self.connections[connection].mail.push_back(Event::ConnectedElsewhere { connected_at });
        }
        let moved = self.post.moves.get_mut(&(to, uaid));
        if let Some(moved) = moved.filter(|moved| moved.at <= connected_at) {
            moved.is_notified = true;
        }
    }

    /// Records the registration of a connection, and how the connection ended.
    pub(super) fn watch(
        &mut self,
        connection: usize,
        event: &Event,
        effects: &[Effect],
    ) -> Result<(), SyntaxError> {
        let registered = match event {
            Event::StoreAnswered { answer: Ok(StoreAnswer::Registered(outcome)), .. } => {
                Some(outcome)
            }
            _ => None,
        };
        if let Some(RegisterResult::Registered(record, _)) = registered {
            self.connections[connection].registered =
                record.binding().map(|binding| (record.uaid, binding));
        }
        self.connections[connection].is_shut_down |=
            effects.last() == Some(&Effect::Close(CloseReason::Shutdown));
        let is_notified = registered.is_some() || matches!(event, Event::ConnectedElsewhere { .. });
        if is_notified && effects.last() == Some(&Effect::Close(CloseReason::Replaced)) {
            return self.is_not_the_last(connection);
        }
        Ok(())
    }

    /// A connection must not close in favour of another node while the record leads to it.
    fn is_not_the_last(&self, connection: usize) -> Result<(), SyntaxError> {
        match &self.connections[connection].registered {
            Some((uaid, binding)) if self.binding(*uaid).as_ref() == Some(binding) => {
                Err(format!("line {connection} gave way, and the record leads to it"))
            }
            _ => Ok(()),
        }
    }

    /// Checks, with nothing in progress, that of the registered connections only the one that the
    /// record leads to is live. On its node that is the latest, even if an older one that has ended
    /// was the last to write.
    pub(super) fn only_the_last_is_live(&self) -> Result<(), SyntaxError> {
        let Some(uaid) = self.agent.uaid else { return Ok(()) };
        let binding = self.binding(uaid);
        for node in &self.nodes {
            let node = &node.config.node;
            let found = self.find(node, uaid).map(|connection| &self.connections[connection]);
            let registered = found.and_then(|connection| connection.registered.as_ref());
            let own = registered.filter(|(whose, _)| *whose == uaid);
            let is_last = binding.as_ref().is_some_and(|binding| binding.node == *node);
            if own.is_some() && !is_last && !self.post.is_ignorant(node, uaid) {
                return Err(format!("{own:?} is live, and the record leads to {binding:?}"));
            }
        }
        self.no_record_leads_to_a_connection_that_was_shut_down(uaid)
    }

    fn no_record_leads_to_a_connection_that_was_shut_down(
        &self,
        uaid: Uaid,
    ) -> Result<(), SyntaxError> {
        let binding = self.binding(uaid).map(|binding| (uaid, binding));
        let mut shut_down = self.connections.iter().filter(|connection| connection.is_shut_down);
        let is_left =
            binding.is_some() && shut_down.any(|connection| connection.registered == binding);
        if is_left && !self.post.is_clear_lost {
            return Err(format!("the record leads to {binding:?}, which was shut down"));
        }
        Ok(())
    }

    fn binding(&self, uaid: Uaid) -> Option<NodeBinding> {
        self.store.records.get(&uaid)?.binding()
    }
}
