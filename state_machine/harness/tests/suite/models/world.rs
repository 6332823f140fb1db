//! The state of a model: the real machines, and the smallest environment that they need.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use harness::invariants::{Broken, DeliveryModel, Invariant, Promise};
use state_machine::broadcast::Versions;
use state_machine::connection::{Event, PhaseName};
use state_machine::delivery::Outcome;
use state_machine::store::StoreOp;
use state_machine::wire::{AckUpdate, ClientMessage};
use state_machine::{
    Chid, ConnectionId, Message, MessageId, MessageKey, Month, RouterRecord, Time, Uaid, Urgency,
};

use super::action::{Action, Fault, NodeIndex, Which};
use super::endpoint::Push;
use super::lives::Life;
use super::node::{ClientConnection, Done, Node};
use super::notifications::Notification;
use super::scenario::{Bounds, DECEMBER, Scenario, channel, outlasts_clocks, uaid};
use super::store::Store;
use crate::search::Diary;

/// A state of the model: store, nodes, connections, endpoints and the agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) store: Store,
    /// The nodes, and after them a pseudo-node with the writes that crashed nodes had sent to the
    /// store.
    pub(crate) nodes: Vec<Node>,
    /// The record on disk, while the only process keeps a registration in memory.
    pub(crate) unwritten: Option<RouterRecord>,
    /// Connections that may still act or receive something.
    pub(crate) connections: BTreeMap<ConnectionId, ClientConnection>,
    pub(crate) pushes: Vec<Push>,
    pub(crate) agent: Agent,
    pub(crate) ledger: DeliveryModel,
    /// The actions that may still happen.
    pub(crate) left: Bounds,
    /// Whether a notification of a stored message was lost, so that only the next one or the
    /// recheck finds the message.
    pub(crate) is_nudge_lost: bool,
    /// Messages whose push a connection has answered busy.
    pub(crate) busy: BTreeSet<(ConnectionId, MessageId)>,
    /// Notifications that have not reached their nodes.
    pub(crate) notifications: BTreeSet<Notification>,
    /// Whether a node may never be notified that its agent is elsewhere.
    pub(crate) is_unnotified: bool,
    /// Whether an abandoned connection was the last to register, and the newer one is not notified.
    /// That may happen if clocks differ, or two connections have the same time.
    pub(crate) is_record_astray: bool,
    /// Nodes whose breaker in the endpoints is open, because one did not answer.
    pub(crate) shunned: BTreeSet<NodeIndex>,
    /// The broken rule; no action follows it.
    pub(crate) broken: Option<Fall>,
    pub(crate) diary: Diary,
}

/// The user agent, with the messages it received and acked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Agent {
    pub(crate) uaid: Uaid,
    /// The agent's current connection.
    pub(crate) connection: Option<ConnectionId>,
    pub(crate) is_greeted: bool,
    pub(crate) channels: BTreeSet<Chid>,
    /// The agent's minimal urgency on this connection.
    pub(crate) min_urgency: Urgency,
    /// Messages without an ack, and the connections on which they were received.
    pub(crate) unacked: BTreeSet<(ConnectionId, MessageId)>,
    /// Acked messages whose acks are not settled.
    pub(crate) acked: BTreeSet<MessageId>,
    /// Messages that are deleted durably, unless an endpoint stores them again: their acks must be
    /// settled.
    pub(crate) deleted: BTreeSet<MessageId>,
    /// Connections so far; each gets the next number.
    connects: u64,
}

/// A broken rule or promise, with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Fall {
    Rule(Broken<Invariant>),
    Promise(Broken<Promise>),
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            uaid: uaid(),
            connection: None,
            is_greeted: false,
            channels: BTreeSet::new(),
            min_urgency: Urgency::VeryLow,
            unacked: BTreeSet::new(),
            acked: BTreeSet::new(),
            deleted: BTreeSet::new(),
            connects: 0,
        }
    }
}

impl fmt::Display for Fall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(broken) => broken.fmt(f),
            Self::Promise(broken) => broken.fmt(f),
        }
    }
}

impl World {
    /// An agent that is away, with one channel and no push.
    pub(crate) fn new(messages: usize, record: RouterRecord) -> Self {
        let mut store = Store::default();
        let (uaid, month, channels) = (record.uaid, record.curmonth, BTreeSet::from([channel(1)]));
        store.execute(&StoreOp::AddChannels { uaid, month, channels: channels.clone() });
        store.records.insert(uaid, record);
        Self {
            now: DECEMBER,
            store,
            nodes: vec![Node::default()],
            unwritten: None,
            connections: BTreeMap::new(),
            pushes: vec![Push::Waiting; messages],
            agent: Agent { uaid, channels, ..Agent::default() },
            ledger: DeliveryModel::default(),
            left: Bounds::default(),
            is_nudge_lost: false,
            busy: BTreeSet::new(),
            notifications: BTreeSet::new(),
            is_unnotified: false,
            is_record_astray: false,
            shunned: BTreeSet::new(),
            broken: None,
            diary: Diary::default(),
        }
    }

    /// A message that was pushed and stored in the initial world.
    pub(crate) fn waits(&mut self, messages: &[Message], which: Which) {
        let months: Vec<Month> =
            self.store.records.values().map(|record| record.curmonth).collect();
        for month in months {
            self.store.store(self.agent.uaid, month, messages[which].clone());
        }
        if outlasts_clocks(&messages[which]) {
            self.ledger.accepted(&messages[which]);
        }
        self.pushes[which] = Push::Over(Outcome::Stored);
    }

    pub(crate) fn happens(&mut self, scenario: &Scenario, action: &Action) {
        self.diary.note(|| format!("{action:?}"));
        if let Some(left) = action.bound(&mut self.left) {
            *left -= 1;
        }
        match action {
            Action::Connects(node) => self.connects(scenario, *node),
            Action::HangsUp => self.hangs_up(scenario),
            Action::Registers => {
                self.say(scenario, ClientMessage::Register { chid: channel(2), key: None });
            }
            Action::Unregisters => {
                let chid = channel(2);
                self.agent.channels.remove(&chid);
                self.ledger.given_up(chid);
                self.say(scenario, ClientMessage::Unregister { chid });
            }
            Action::SetsUrgency(min) => {
                self.agent.min_urgency = *min;
                self.say(scenario, ClientMessage::Urgency { min: *min });
            }
            Action::Acks(connection, which) => {
                self.ledger.acked(&scenario.messages[*which]);
                self.acks(scenario, *connection, &scenario.messages[*which].key());
            }
            Action::Pushes(which) => self.push_begins(scenario, *which),
            Action::EndpointGoesOn(which) => self.endpoint_goes_on(scenario, *which),
            Action::EndpointGetsAnswer(which) => self.endpoint_gets_answer(scenario, *which),
            Action::TakesPush(connection) => self.takes_push(scenario, *connection),
            Action::TakesNotices(connection) => self.takes_notices(scenario, *connection),
            Action::StoreExecutes(connection, op) => {
                self.store_executes(scenario, *connection, *op);
            }
            Action::StoreAnswers(connection, op) => self.store_answers(scenario, *connection, *op),
            Action::Deadline(connection) | Action::IdleDeadline(connection) => {
                self.deadline_passes(scenario, *connection);
            }
            Action::NotificationArrives(notification) => {
                self.notification_arrives(scenario, *notification);
            }
            Action::Drains(node) => self.nodes[*node].life = Life::Draining,
            Action::SessionEnds(connection) => {
                self.step(scenario, *connection, &Event::ShutdownBegan);
            }
            Action::Exits(node) => self.nodes[*node].life = Life::Gone,
            Action::Starts(node) => self.starts(*node),
            Action::Recovers(node) => drop(self.shunned.remove(node)),
            Action::Fails(fault) => self.fails(scenario, *fault),
        }
        self.connections.retain(|_, connection| connection.is_of_use());
        self.settle();
        if let Err(broken) = self.ledger.receipts_are_true(&self.store.receipts) {
            self.breaks(broken);
        }
    }

    fn fails(&mut self, scenario: &Scenario, fault: Fault) {
        match fault {
            Fault::NodeCrashes(node) => self.node_crashes(scenario, node, false),
            Fault::NodeCrashesAfterWriting(node) => self.node_crashes(scenario, node, true),
            Fault::EndpointCrashes(which) => self.pushes[which] = Push::Vanished,
            Fault::StoreRefuses(connection, op) => {
                self.store_fails(scenario, connection, op, Done::Not);
            }
            Fault::AckReplyLost(connection, op) => {
                self.store_fails(scenario, connection, op, Done::Wholly);
            }
            Fault::CarriedByHalf(connection, op) => {
                self.store_fails(scenario, connection, op, Done::Half);
            }
            Fault::NoSpace(connection, op) => self.store_has_no_space(scenario, connection, op),
            Fault::RegistrationUnwritten(connection, op) => {
                self.store_keeps_registration(scenario, connection, op);
            }
            Fault::EndpointAnswerLost(which) => self.endpoint_fails(scenario, which, true),
            Fault::StoreRefusesEndpoint(which)
            | Fault::NoSpaceForEndpoint(which)
            | Fault::Unreachable(which)
            | Fault::NudgeLost(which) => self.endpoint_fails(scenario, which, false),
            Fault::NodeAnswerLost(which) => self.node_answer_lost(scenario, which),
            Fault::NotificationLost(notification) => self.notification_lost(scenario, notification),
        }
    }

    pub(crate) fn connects(&mut self, scenario: &Scenario, node: NodeIndex) {
        let connection = ConnectionId(self.agent.connects);
        self.agent.connects += 1;
        self.agent.connection = Some(connection);
        self.agent.is_greeted = false;
        self.agent.min_urgency = Urgency::VeryLow;
        self.connections.insert(connection, ClientConnection::new(node, scenario, self.now));
        let uaid = Some(self.agent.uaid);
        self.say(
            scenario,
            ClientMessage::Hello { uaid, broadcasts: Versions::new(), use_webpush: true },
        );
    }

    pub(crate) fn hangs_up(&mut self, scenario: &Scenario) {
        if let Some(connection) = self.agent.connection.take() {
            self.step(scenario, connection, &Event::SocketClosed);
        }
    }

    fn say(&mut self, scenario: &Scenario, message: ClientMessage) {
        if let Some(connection) = self.agent.connection {
            self.step(scenario, connection, &Event::MessageReceived(message));
        }
    }

    /// On its current connection the agent acks messages from any connection; on an abandoned one,
    /// those it had acked there.
    fn acks(&mut self, scenario: &Scenario, connection: ConnectionId, message: &MessageKey) {
        let MessageKey { id, chid, .. } = *message;
        let is_here = self.agent.connection == Some(connection);
        self.agent.unacked.retain(|(on, other)| *other != id || !(is_here || *on == connection));
        self.agent.acked.insert(id);
        let updates = vec![AckUpdate { chid, id, code: None }];
        self.step(scenario, connection, &Event::MessageReceived(ClientMessage::Ack { updates }));
    }

    /// An ack is settled once every row is deleted and no component will store or send the message.
    fn settle(&mut self) {
        let Self { nodes, pushes, agent, ledger, .. } = self;
        let is_read = |id: MessageId| nodes.iter().any(|node| node.is_about_to_send(id));
        let is_under_way = |id| pushes.iter().any(|push| push.is_about(id));
        let is_settled = |id: &MessageId| !is_read(*id) && !is_under_way(*id);
        let settled: Vec<MessageId> =
            agent.acked.intersection(&agent.deleted).copied().filter(is_settled).collect();
        for id in settled {
            agent.acked.remove(&id);
            agent.deleted.remove(&id);
            ledger.settled(id);
        }
    }

    /// The phase of the agent's connection.
    pub(crate) fn phase(&self) -> Option<PhaseName> {
        let connection =
            self.agent.connection.and_then(|connection| self.connections.get(&connection));
        connection.map(|connection| connection.machine.phase())
    }

    /// The node of the agent's connection.
    pub(crate) fn node(&self) -> Option<NodeIndex> {
        self.agent
            .connection
            .and_then(|connection| self.connections.get(&connection))
            .map(|connection| connection.node)
    }

    /// Whether a table has the message.
    pub(crate) fn is_stored(&self, id: MessageId) -> bool {
        self.store.rows(self.agent.uaid).any(|(_, row)| row == id)
    }

    pub(crate) fn record(&self) -> Option<&RouterRecord> {
        self.store.records.get(&self.agent.uaid)
    }

    pub(crate) fn violates(&mut self, violation: Broken<Invariant>) {
        self.broken.get_or_insert(Fall::Rule(violation));
    }

    pub(crate) fn breaks(&mut self, broken: Broken<Promise>) {
        self.broken.get_or_insert(Fall::Promise(broken));
    }
}
