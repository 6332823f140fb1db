//! Notifications to a node: a message was stored, or the agent is connected elsewhere.
//!
//! The sender keeps a notification until the node answers, as the real directory of nodes does. A
//! notification may therefore arrive late, and it is lost only with its sender.

use harness::invariants::Promise;
use state_machine::connection::Event;
use state_machine::delivery::Route;
use state_machine::{ConnectionId, NodeId, Time};

use super::action::NodeIndex;
use super::mutation::Mutation;
use super::scenario::Scenario;
use super::world::World;

/// A notification that was not delivered yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Notification {
    pub(crate) to: NodeIndex,
    pub(crate) content: Content,
}

/// The content of a notification about the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Content {
    Stored,
    /// The sending node registered the agent at that time.
    ConnectedElsewhere(Time),
}

impl World {
    /// An endpoint has stored a message: it notifies the node in the record that it read last.
    pub(crate) fn nudges(
        &mut self,
        scenario: &Scenario,
        node: &NodeId,
        first_look: Option<&Route>,
        is_kept: bool,
    ) {
        let first_node = first_look.and_then(|route| route.node.as_ref());
        let node = match scenario.mutation {
            Some(Mutation::NudgeAstray) => first_node.unwrap_or(node),
            _ => node,
        };
        let Some(to) = scenario.node_named(node) else { return };
        let is_given_up = scenario.mutation == Some(Mutation::NudgeOnce) && self.is_shunned(to);
        self.is_nudge_lost |= !is_kept;
        if is_kept && !is_given_up {
            self.sends(scenario, Notification { to, content: Content::Stored });
        }
    }

    /// The node that registered the agent notifies the agent's previous node.
    pub(crate) fn notifies_node(
        &mut self,
        scenario: &Scenario,
        from: NodeIndex,
        node: &NodeId,
        connected_at: Time,
    ) {
        let to = match scenario.mutation {
            Some(Mutation::TellsItself) => Some(from),
            _ => scenario.node_named(node),
        };
        let since = match scenario.mutation {
            Some(Mutation::NoticeByClock) => scenario.clock(from, self.now),
            _ => connected_at,
        };
        let content = Content::ConnectedElsewhere(since);
        to.into_iter().for_each(|to| self.sends(scenario, Notification { to, content }));
    }

    fn sends(&mut self, scenario: &Scenario, notification: Notification) {
        if scenario.freedom.notifications_travel {
            self.notifications.insert(notification);
        } else {
            self.notification_arrives(scenario, notification);
        }
    }

    /// The connection that the registry finds will read the signal.
    pub(crate) fn notification_arrives(&mut self, scenario: &Scenario, notification: Notification) {
        self.notifications.remove(&notification);
        let Some(id) = self.found_here(notification.to) else { return };
        let is_reading = self.nodes[notification.to].is_reading(id);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match (notification.content, scenario.mutation) {
            (Content::Stored, Some(Mutation::NudgeDuringFetch)) if is_reading => {}
            (Content::Stored, _) => connection.is_nudged = true,
            (Content::ConnectedElsewhere(_), Some(Mutation::StampsNotCompared)) => {
                connection.elsewhere = Some(Time(u64::MAX));
            }
            (Content::ConnectedElsewhere(at), _) => {
                connection.elsewhere = connection.elsewhere.max(Some(at));
            }
        }
    }

    pub(crate) fn notification_lost(&mut self, scenario: &Scenario, notification: Notification) {
        self.notifications.remove(&notification);
        match notification.content {
            Content::Stored => self.is_nudge_lost = true,
            Content::ConnectedElsewhere(_) => {
                let connection = self
                    .found_here(notification.to)
                    .filter(|connection| self.agent.connection == Some(*connection));
                self.is_record_astray |=
                    connection.is_some_and(|connection| !self.leads_to(scenario, connection));
                self.is_unnotified = true;
            }
        }
    }

    /// A connection is notified that its agent is elsewhere. A connection that is later than the
    /// other one stays open.
    pub(crate) fn notified_elsewhere(
        &mut self,
        scenario: &Scenario,
        id: ConnectionId,
        since: Time,
    ) {
        let is_found = self.leads_to(scenario, id);
        let is_of_agent = self.agent.connection == Some(id);
        self.step(scenario, id, &Event::ConnectedElsewhere { connected_at: since });
        let Some(connection) =
            self.connections.get(&id).filter(|connection| connection.is_closed())
        else {
            return;
        };
        if connection.is_registered && is_found {
            let detail = "the record leads to a connection that is closed by word of an older one";
            self.breaks(Promise::FoundWhileConnected.broken(detail));
        } else if !connection.is_registered && is_of_agent {
            let detail =
                "the agent reconnects, and is closed by a notification of an older connection";
            self.breaks(Promise::ComesToRest.broken(detail));
        }
    }
}
