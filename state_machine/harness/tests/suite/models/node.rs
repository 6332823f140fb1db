//! Nodes: connections are stepped and their effects executed.

use std::collections::VecDeque;
use std::sync::Arc;

use harness::invariants::{ConnectionChecker, Promise, StepRecord, waits_for_deadline};
use harness::transcript::TranscriptWriter;
use state_machine::connection::{
    Config, Connection, ConnectionSeed, Effect, Event, PhaseName, Wait,
};
use state_machine::registry::Registry;
use state_machine::store::{RegisterResult, StoreAnswer, StoreFailed, StoreOp};
use state_machine::wire::ServerMessage;
use state_machine::{ConnectionId, MessageId, MessageKey, NodeId, OpId, PushId, Time};

use super::action::{NodeIndex, Which};
use super::lives::Life;
use super::mutation::{Environment, Mutation};
use super::scenario::{DECEMBER, Scenario, fresh_uaid};
use super::world::World;
use crate::search::Diary;

/// A process with its connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Node {
    pub(crate) registry: Registry<()>,
    /// Store operations in the order of their submission. The store executes the writes in that
    /// order.
    pub(crate) queue: Vec<Pending>,
    pub(crate) life: Life,
}

/// A store operation in progress.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Pending {
    pub(crate) connection: ConnectionId,
    pub(crate) op: OpId,
    pub(crate) operation: StoreOp,
    /// The answer on its way back, once the operation was executed.
    pub(crate) answer: Option<StoreAnswer>,
}

/// The part of an operation that was executed although its answer is a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    Wholly,
    /// Messages were copied, and the old rows were not deleted.
    Half,
    Not,
}

/// A connection of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ClientConnection {
    pub(crate) node: NodeIndex,
    pub(crate) machine: Connection,
    checker: ConnectionChecker,
    /// Pushes in the connection's mailbox.
    pub(crate) mail: VecDeque<Which>,
    /// Whether a message was stored, and whether the connection was replaced: signals that
    /// coalesce.
    pub(crate) is_nudged: bool,
    pub(crate) is_replaced: bool,
    /// The time of the agent's connection to another node, as far as a notification has arrived.
    pub(crate) elsewhere: Option<Time>,
    /// Whether the store ever received the record from this connection.
    pub(crate) is_registered: bool,
}

impl ClientConnection {
    pub(crate) fn new(node: NodeIndex, scenario: &Scenario, now: Time) -> Self {
        let terms = &scenario.nodes[node];
        let seed = ConnectionSeed { fresh_uaid: fresh_uaid(), jitter: 0 };
        let now = scenario.clock(node, now);
        Self {
            node,
            machine: Connection::new(Arc::clone(&terms.config), seed, now),
            checker: ConnectionChecker::new(Arc::clone(&terms.rules)),
            mail: VecDeque::new(),
            is_nudged: false,
            is_replaced: false,
            elsewhere: None,
            is_registered: false,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.machine.phase() == PhaseName::Closed
    }

    /// A closed connection still answers the pushes that it has.
    pub(crate) fn is_of_use(&self) -> bool {
        !self.is_closed() || !self.mail.is_empty()
    }

    /// The next deadline that the model executes. The deadlines of an idle connection are too far
    /// away.
    pub(crate) fn deadline(&self, acks_tarry: bool) -> Option<Time> {
        let (next, _) = self.machine.deadline()?;
        let may_pass = |wait| match wait {
            Wait::Retry | Wait::Scan => true,
            Wait::Ack | Wait::Drain => acks_tarry,
            _ => false,
        };
        // Of several at one time, one suffices.
        let mut due = self.machine.deadlines().filter(|(at, _)| *at == next);
        due.any(|(_, wait)| may_pass(wait)).then_some(next)
    }
}

impl Pending {
    pub(crate) fn is_write(&self) -> bool {
        self.operation.is_write()
    }

    /// Whether the operation clears a node that shuts down from the record.
    pub(crate) fn is_last_word(&self) -> bool {
        matches!(self.operation, StoreOp::ClearNode { .. })
    }

    /// Whether the connection wrote the record and has not received the answer.
    pub(crate) fn has_registered(&self) -> bool {
        matches!(self.answer, Some(StoreAnswer::Registered(RegisterResult::Registered(..))))
    }

    /// Whether the operation may be executed after the crash of its node.
    pub(crate) fn outlives_its_node(&self) -> bool {
        self.is_write() && self.answer.is_none()
    }
}

impl Node {
    /// Whether the store may execute this operation now.
    pub(crate) fn may_be_done(&self, at: usize) -> bool {
        let is_open = |pending: &Pending| pending.answer.is_none();
        let is_next = || !self.queue[..at].iter().any(|other| other.is_write() && is_open(other));
        is_open(&self.queue[at]) && (!self.queue[at].is_write() || is_next())
    }

    /// Whether the connection reads a page of messages.
    pub(crate) fn is_reading(&self, connection: ConnectionId) -> bool {
        let is_fetch = |operation: &StoreOp| matches!(operation, StoreOp::Fetch { .. });
        self.queue
            .iter()
            .any(|pending| pending.connection == connection && is_fetch(&pending.operation))
    }

    /// Whether a page that holds the message is on its way to a connection.
    pub(crate) fn is_about_to_send(&self, id: MessageId) -> bool {
        self.queue.iter().any(|pending| match &pending.answer {
            Some(StoreAnswer::Fetched(page)) => {
                page.messages.iter().any(|message| message.id == id)
            }
            _ => false,
        })
    }
}

impl World {
    pub(crate) fn step(&mut self, scenario: &Scenario, id: ConnectionId, event: &Event) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let now = scenario.clock(connection.node, self.now);
        let before = connection.machine.phase();
        let effects = connection.machine.step(now, event.clone());
        let seen = StepRecord {
            now,
            event,
            effects: &effects,
            before,
            after: connection.machine.phase(),
            unacked: connection.machine.unacked(),
            deadline: connection.machine.deadline(),
        };
        let observed = connection.checker.observe(&seen);
        let observed = observed.and_then(|()| waits_for_deadline(&connection.machine));
        let is_closed = seen.after == PhaseName::Closed;
        self.diary.step(id, &scenario.nodes[connection.node].config, &seen);
        if let Err(violation) = observed {
            self.violates(violation);
        }
        let is_cut_short = before == PhaseName::Identified && is_closed;
        self.is_unnotified |= is_cut_short && scenario.freedom.notifications_travel;
        effects.into_iter().for_each(|effect| self.execute(scenario, id, effect));
    }

    fn execute(&mut self, scenario: &Scenario, id: ConnectionId, effect: Effect) {
        let Some(node) = self.connections.get(&id).map(|connection| connection.node) else {
            return;
        };
        match effect {
            Effect::Send(message) => self.agent_receives(id, message),
            Effect::Ping | Effect::SubscribeBroadcasts { .. } | Effect::UnsubscribeBroadcasts => {}
            Effect::SubmitStoreOp { op, operation } => {
                let pending = Pending { connection: id, op, operation, answer: None };
                self.nodes[node].queue.push(pending);
            }
            Effect::AnswerPush { push: PushId(push), answer, message } => {
                self.node_answers(scenario, id, push as Which, answer, message);
            }
            Effect::Register { uaid } => {
                let displaced = self.nodes[node].registry.insert(uaid, id, ());
                let older = displaced.and_then(|older| self.connections.get_mut(&older.connection));
                older.into_iter().for_each(|older| older.is_replaced = true);
            }
            Effect::NotifyPreviousNode { node: to, connected_at, .. } => {
                self.notifies_node(scenario, node, &to, connected_at);
            }
            Effect::Deregister { uaid } => self.nodes[node].registry.remove(uaid, id),
            Effect::Close(_) => self.closes(scenario, id, node),
        }
    }

    /// Closes the connection. Answers of the store are dropped from then on; writes that were
    /// submitted are still executed.
    fn closes(&mut self, scenario: &Scenario, id: ConnectionId, node: NodeIndex) {
        if self.agent.connection == Some(id) {
            self.agent.connection = None;
        }
        let is_void = |pending: &Pending| {
            pending.connection == id && (pending.answer.is_some() || !pending.is_write())
        };
        let queue = &mut self.nodes[node].queue;
        self.is_record_astray |= queue.iter().any(|it| is_void(it) && it.has_registered());
        let void: Vec<Pending> = queue.extract_if(.., |pending| is_void(pending)).collect();
        for Pending { operation, answer, .. } in void {
            answer.iter().for_each(|answer| self.outlives(scenario, node, &operation, answer));
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            (connection.is_nudged, connection.is_replaced, connection.elsewhere) =
                (false, false, None);
        }
    }

    /// A registration that is answered after its connection has ended: the node notifies the
    /// agent's previous node, if it is alive itself.
    fn outlives(
        &mut self,
        scenario: &Scenario,
        node: NodeIndex,
        operation: &StoreOp,
        answer: &StoreAnswer,
    ) {
        let StoreOp::Register(registration) = operation else { return };
        let StoreAnswer::Registered(RegisterResult::Registered(_, Some(before))) = answer else {
            return;
        };
        if node < scenario.nodes.len() && before.node != registration.node {
            self.notifies_node(scenario, node, &before.node, registration.connected_at);
        }
    }

    fn agent_receives(&mut self, id: ConnectionId, message: ServerMessage) {
        if self.agent.connection != Some(id) {
            return;
        }
        match message {
            ServerMessage::Hello { uaid, .. } => {
                self.agent.is_greeted = true;
                if uaid != self.agent.uaid {
                    let detail = format!("the agent is {uaid} now and has lost its channels");
                    self.breaks(Promise::SubscriptionKept.broken(detail));
                }
            }
            ServerMessage::Registered { chid, .. } => drop(self.agent.channels.insert(chid)),
            ServerMessage::Notification(message) => {
                self.agent.unacked.insert((id, message.id));
                if let Err(broken) = self.ledger.delivered(&message) {
                    self.breaks(broken);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn takes_push(&mut self, scenario: &Scenario, id: ConnectionId) {
        let which =
            self.connections.get_mut(&id).and_then(|connection| connection.mail.pop_front());
        let is_taken =
            |which: &Which| scenario.freedom.endpoints_apart || self.pushes[*which].awaits(id);
        if let Some(which) = which.filter(is_taken) {
            let message = scenario.messages[which].clone();
            self.step(scenario, id, &Event::PushArrived { push: PushId(which as u64), message });
        }
    }

    pub(crate) fn takes_notices(&mut self, scenario: &Scenario, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (is_nudged, is_replaced) = (connection.is_nudged, connection.is_replaced);
        (connection.is_nudged, connection.is_replaced) = (false, false);
        let elsewhere = connection.elsewhere.take();
        if is_nudged {
            self.step(scenario, id, &Event::MessageStored);
        }
        if is_replaced {
            self.step(scenario, id, &Event::Replaced);
        }
        if let Some(since) = elsewhere {
            self.notified_elsewhere(scenario, id, since);
        }
    }

    pub(crate) fn store_executes(&mut self, scenario: &Scenario, id: ConnectionId, op: OpId) {
        let Some((node, at)) = self.find_operation(id, op) else { return };
        let operation = self.nodes[node].queue[at].operation.clone();
        self.notes_deleted(&operation);
        let answer = self.is_done(scenario, id, &operation, true);
        if self.connections.get(&id).is_none_or(ClientConnection::is_closed) {
            self.nodes[node].queue.remove(at);
            self.diary.note(|| format!("    the answer is lost: {operation:?}"));
            self.outlives(scenario, node, &operation, &answer);
        } else {
            self.nodes[node].queue[at].answer = Some(answer);
            if !scenario.freedom.answers_travel {
                self.store_answers(scenario, id, op);
            }
        }
    }

    /// Records the acks that a delete is about to settle: messages in no other table than those it
    /// names.
    fn notes_deleted(&mut self, operation: &StoreOp) {
        let StoreOp::Delete { uaid, months, messages, .. } = operation else { return };
        for MessageKey { id, .. } in messages {
            let mut elsewhere = self.store.rows(*uaid).filter(|(month, _)| !months.contains(month));
            if !elsewhere.any(|(_, row)| row == *id) && !self.ledger.is_settled(*id) {
                self.agent.deleted.insert(*id);
            }
        }
    }

    pub(crate) fn store_answers(&mut self, scenario: &Scenario, id: ConnectionId, op: OpId) {
        let Some((node, at)) = self.find_operation(id, op) else { return };
        let pending = self.nodes[node].queue.remove(at);
        if let Some(answer) = pending.answer {
            self.step(scenario, id, &Event::StoreAnswered { op, answer: Ok(answer) });
        }
    }

    /// The connection is notified of a failure, and cannot know whether the operation was executed.
    pub(crate) fn store_fails(
        &mut self,
        scenario: &Scenario,
        id: ConnectionId,
        op: OpId,
        done: Done,
    ) {
        let Some((node, at)) = self.find_operation(id, op) else { return };
        let operation = self.nodes[node].queue.remove(at).operation;
        match (done, &operation) {
            (Done::Wholly, operation) => {
                self.is_unnotified |= scenario.freedom.notifications_travel
                    && matches!(operation, StoreOp::Register(_));
                drop(self.is_done(scenario, id, operation, false));
            }
            (Done::Half, StoreOp::MoveMessages { uaid, from, to }) => {
                self.environment(scenario).copy_only(*uaid, *from, *to);
            }
            (Done::Half | Done::Not, _) => {}
        }
        self.step(scenario, id, &Event::StoreAnswered { op, answer: Err(StoreFailed) });
    }

    /// The write is not executed. Its connection learns why.
    pub(crate) fn store_has_no_space(&mut self, scenario: &Scenario, id: ConnectionId, op: OpId) {
        let Some((node, at)) = self.find_operation(id, op) else { return };
        let operation = self.nodes[node].queue.remove(at).operation;
        let answer = match scenario.mutation {
            Some(Mutation::NoSpaceIsDone) => self.store.clone().execute(&operation),
            _ => StoreAnswer::NoSpace,
        };
        self.step(scenario, id, &Event::StoreAnswered { op, answer: Ok(answer) });
    }

    /// The registration has its effect, and a crash of the process undoes it unless the store writes it before.
    pub(crate) fn store_keeps_registration(
        &mut self,
        scenario: &Scenario,
        id: ConnectionId,
        op: OpId,
    ) {
        let on_disk = self.unwritten.take().or_else(|| self.record().cloned());
        self.store_executes(scenario, id, op);
        match (scenario.mutation, on_disk) {
            (Some(Mutation::UnwrittenUnseen), Some(record)) => {
                self.store.records.insert(record.uaid, record);
            }
            (_, on_disk) => self.unwritten = on_disk,
        }
    }

    fn is_done(
        &mut self,
        scenario: &Scenario,
        id: ConnectionId,
        operation: &StoreOp,
        is_heard: bool,
    ) -> StoreAnswer {
        if operation.is_write() {
            self.unwritten = None;
        }
        let answer = self.environment(scenario).execute(operation);
        if let StoreAnswer::Registered(RegisterResult::Registered(record, before)) = &answer {
            let connection =
                self.connections.get_mut(&id).filter(|connection| !connection.is_closed());
            let is_unnotified = connection.is_none() || !is_heard;
            connection.into_iter().for_each(|connection| connection.is_registered = true);
            // The second attempt finds the first one's write, and sends no notification.
            let is_again = before.as_ref().map(|binding| &binding.node) == record.node.as_ref();
            let is_astray = is_unnotified || (self.is_record_astray && is_again);
            self.is_record_astray = is_astray && self.agent.connection != Some(id);
        }
        answer
    }

    pub(crate) fn deadline_passes(&mut self, scenario: &Scenario, id: ConnectionId) {
        let Some(connection) = self.connections.get(&id) else { return };
        if let Some((at, _)) = connection.machine.deadline() {
            self.now = self.now.max(scenario.when(connection.node, at));
            self.step(scenario, id, &Event::TimePassed);
        }
    }

    pub(crate) fn environment<'a>(&'a mut self, scenario: &'a Scenario) -> Environment<'a> {
        Environment {
            store: &mut self.store,
            mutation: scenario.mutation,
            messages: &scenario.messages,
        }
    }

    /// The connection that the node's registry has for the agent.
    pub(crate) fn found_at(&self, scenario: &Scenario, node: &NodeId) -> Option<ConnectionId> {
        self.found_here(scenario.node_named(node)?)
    }

    pub(crate) fn found_here(&self, node: NodeIndex) -> Option<ConnectionId> {
        self.nodes[node].registry.find(self.agent.uaid).map(|entry| entry.connection)
    }

    fn find_operation(&self, id: ConnectionId, op: OpId) -> Option<(NodeIndex, usize)> {
        let in_queue = |node: &Node| {
            node.queue.iter().position(|pending| (pending.connection, pending.op) == (id, op))
        };
        let mut nodes = self.nodes.iter().enumerate();
        nodes.find_map(|(node, it)| in_queue(it).map(|at| (node, at)))
    }
}

impl Diary {
    /// A step of a connection, in the form of a session script.
    fn step(&mut self, connection: ConnectionId, config: &Config, seen: &StepRecord<'_>) {
        let Some(texts) = &mut self.0 else { return };
        let writer = TranscriptWriter { config, start: DECEMBER };
        texts.push(format!(
            "    {} {}",
            connection.0,
            writer.event(seen.event, DECEMBER, seen.now)
        ));
        let effects = seen.effects.iter().map(|effect| writer.effect(effect, seen.now));
        texts.extend(effects.map(|effect| format!("    {}     {effect}", connection.0)));
    }
}
