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
    pub(crate) line: ConnectionId,
    pub(crate) op: OpId,
    pub(crate) order: StoreOp,
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
pub(crate) struct Line {
    pub(crate) node: NodeIndex,
    pub(crate) connection: Connection,
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

impl Line {
    pub(crate) fn new(node: NodeIndex, scenario: &Scenario, now: Time) -> Self {
        let terms = &scenario.nodes[node];
        let seed = ConnectionSeed { fresh_uaid: fresh_uaid(), jitter: 0 };
        let now = scenario.clock(node, now);
        Self {
            node,
            connection: Connection::new(Arc::clone(&terms.config), seed, now),
            checker: ConnectionChecker::new(Arc::clone(&terms.rules)),
            mail: VecDeque::new(),
            is_nudged: false,
            is_replaced: false,
            elsewhere: None,
            is_registered: false,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.connection.phase() == PhaseName::Closed
    }

    /// A closed connection still answers the pushes that it has.
    pub(crate) fn is_of_use(&self) -> bool {
        !self.is_closed() || !self.mail.is_empty()
    }

    /// The next deadline that the model executes. The deadlines of an idle connection are too far
    /// away.
    pub(crate) fn deadline(&self, acks_tarry: bool) -> Option<Time> {
        let (at, wait) = self.connection.deadline()?;
        let may_pass = match wait {
            Wait::Retry | Wait::Scan => true,
            Wait::Ack | Wait::Drain => acks_tarry,
            _ => false,
        };
        may_pass.then_some(at)
    }
}

impl Pending {
    pub(crate) fn is_write(&self) -> bool {
        self.order.is_write()
    }

    /// Whether the operation clears a node that shuts down from the record.
    pub(crate) fn is_last_word(&self) -> bool {
        matches!(self.order, StoreOp::ClearNode { .. })
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
    pub(crate) fn is_reading(&self, line: ConnectionId) -> bool {
        let is_fetch = |order: &StoreOp| matches!(order, StoreOp::Fetch { .. });
        self.queue.iter().any(|pending| pending.line == line && is_fetch(&pending.order))
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
        let Some(line) = self.lines.get_mut(&id) else { return };
        let now = scenario.clock(line.node, self.now);
        let before = line.connection.phase();
        let effects = line.connection.step(now, event.clone());
        let seen = StepRecord {
            now,
            event,
            effects: &effects,
            before,
            after: line.connection.phase(),
            unacked: line.connection.unacked(),
            deadline: line.connection.deadline(),
        };
        let observed = line.checker.observe(&seen);
        let observed = observed.and_then(|()| waits_for_deadline(&line.connection));
        let is_closed = seen.after == PhaseName::Closed;
        self.diary.step(id, &scenario.nodes[line.node].config, &seen);
        if let Err(violation) = observed {
            self.violates(violation);
        }
        let is_cut_short = before == PhaseName::Identified && is_closed;
        self.is_untold |= is_cut_short && scenario.freedom.letters_travel;
        effects.into_iter().for_each(|effect| self.carry_out(scenario, id, effect));
    }

    fn carry_out(&mut self, scenario: &Scenario, id: ConnectionId, effect: Effect) {
        let Some(node) = self.lines.get(&id).map(|line| line.node) else { return };
        match effect {
            Effect::Send(message) => self.agent_hears(id, message),
            Effect::Ping | Effect::SubscribeBroadcasts { .. } | Effect::UnsubscribeBroadcasts => {}
            Effect::SubmitStoreOp { op, order } => {
                let pending = Pending { line: id, op, order, answer: None };
                self.nodes[node].queue.push(pending);
            }
            Effect::AnswerPush { push: PushId(push), answer, message } => {
                self.node_answers(scenario, id, push as Which, answer, message);
            }
            Effect::Register { uaid } => {
                let displaced = self.nodes[node].registry.insert(uaid, id, ());
                let older = displaced.and_then(|older| self.lines.get_mut(&older.connection));
                older.into_iter().for_each(|older| older.is_replaced = true);
            }
            Effect::NotifyPreviousNode { node: to, connected_at, .. } => {
                self.tells_node(scenario, node, &to, connected_at);
            }
            Effect::Deregister { uaid } => self.nodes[node].registry.remove(uaid, id),
            Effect::Close(_) => self.closes(scenario, id, node),
        }
    }

    /// Closes the connection. Answers of the store are dropped from then on; writes that were
    /// submitted are still executed.
    fn closes(&mut self, scenario: &Scenario, id: ConnectionId, node: NodeIndex) {
        if self.agent.line == Some(id) {
            self.agent.line = None;
        }
        let is_void = |pending: &Pending| {
            pending.line == id && (pending.answer.is_some() || !pending.is_write())
        };
        let queue = &mut self.nodes[node].queue;
        self.is_record_astray |= queue.iter().any(|it| is_void(it) && it.has_registered());
        let void: Vec<Pending> = queue.extract_if(.., |pending| is_void(pending)).collect();
        for Pending { order, answer, .. } in void {
            answer.iter().for_each(|answer| self.outlives(scenario, node, &order, answer));
        }
        if let Some(line) = self.lines.get_mut(&id) {
            (line.is_nudged, line.is_replaced, line.elsewhere) = (false, false, None);
        }
    }

    /// A registration that is answered after its connection has ended: the node notifies the
    /// agent's previous node, if it is alive itself.
    fn outlives(
        &mut self,
        scenario: &Scenario,
        node: NodeIndex,
        order: &StoreOp,
        answer: &StoreAnswer,
    ) {
        let StoreOp::Register(registration) = order else { return };
        let StoreAnswer::Registered(RegisterResult::Registered(_, Some(before))) = answer else {
            return;
        };
        if node < scenario.nodes.len() && before.node != registration.node {
            self.tells_node(scenario, node, &before.node, registration.connected_at);
        }
    }

    fn agent_hears(&mut self, id: ConnectionId, message: ServerMessage) {
        if self.agent.line != Some(id) {
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
        let which = self.lines.get_mut(&id).and_then(|line| line.mail.pop_front());
        let is_taken =
            |which: &Which| scenario.freedom.endpoints_apart || self.pushes[*which].awaits(id);
        if let Some(which) = which.filter(is_taken) {
            let message = scenario.messages[which].clone();
            self.step(scenario, id, &Event::PushArrived { push: PushId(which as u64), message });
        }
    }

    pub(crate) fn takes_notices(&mut self, scenario: &Scenario, id: ConnectionId) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        let (is_nudged, is_replaced) = (line.is_nudged, line.is_replaced);
        (line.is_nudged, line.is_replaced) = (false, false);
        let elsewhere = line.elsewhere.take();
        if is_nudged {
            self.step(scenario, id, &Event::MessageStored);
        }
        if is_replaced {
            self.step(scenario, id, &Event::Replaced);
        }
        if let Some(since) = elsewhere {
            self.hears_elsewhere(scenario, id, since);
        }
    }

    pub(crate) fn store_does(&mut self, scenario: &Scenario, id: ConnectionId, op: OpId) {
        let Some((node, at)) = self.find_order(id, op) else { return };
        let order = self.nodes[node].queue[at].order.clone();
        self.notes_deleted(&order);
        let answer = self.is_done(scenario, id, &order, true);
        if self.lines.get(&id).is_none_or(Line::is_closed) {
            self.nodes[node].queue.remove(at);
            self.diary.note(|| format!("    the answer is lost: {order:?}"));
            self.outlives(scenario, node, &order, &answer);
        } else {
            self.nodes[node].queue[at].answer = Some(answer);
            if !scenario.freedom.answers_travel {
                self.hears_store(scenario, id, op);
            }
        }
    }

    /// Records the acks that a delete is about to settle: messages in no other table than those it
    /// names.
    fn notes_deleted(&mut self, order: &StoreOp) {
        let StoreOp::Delete { uaid, months, messages, .. } = order else { return };
        for MessageKey { id, .. } in messages {
            let mut elsewhere = self.store.rows(*uaid).filter(|(month, _)| !months.contains(month));
            if !elsewhere.any(|(_, row)| row == *id) && !self.ledger.is_settled(*id) {
                self.agent.deleted.insert(*id);
            }
        }
    }

    pub(crate) fn hears_store(&mut self, scenario: &Scenario, id: ConnectionId, op: OpId) {
        let Some((node, at)) = self.find_order(id, op) else { return };
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
        let Some((node, at)) = self.find_order(id, op) else { return };
        let order = self.nodes[node].queue.remove(at).order;
        match (done, &order) {
            (Done::Wholly, StoreOp::Delete { uaid, months, messages, .. })
                if scenario.mutation == Some(Mutation::ReceiptAfterDelete) =>
            {
                // The failure is between the two writes.
                months.iter().for_each(|month| self.store.delete(*uaid, *month, messages));
            }
            (Done::Wholly, order) => {
                self.is_untold |=
                    scenario.freedom.letters_travel && matches!(order, StoreOp::Register(_));
                drop(self.is_done(scenario, id, order, false));
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
        let Some((node, at)) = self.find_order(id, op) else { return };
        let order = self.nodes[node].queue.remove(at).order;
        let answer = match scenario.mutation {
            Some(Mutation::NoSpaceIsDone) => self.store.clone().carry_out(&order),
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
        self.store_does(scenario, id, op);
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
        order: &StoreOp,
        is_heard: bool,
    ) -> StoreAnswer {
        if order.is_write() {
            self.unwritten = None;
        }
        let answer = self.environment(scenario).carry_out(order);
        if let StoreAnswer::Registered(RegisterResult::Registered(record, before)) = &answer {
            let line = self.lines.get_mut(&id).filter(|line| !line.is_closed());
            let is_untold = line.is_none() || !is_heard;
            line.into_iter().for_each(|line| line.is_registered = true);
            // The second attempt finds the first one's write, and sends no notification.
            let is_again = before.as_ref().map(|place| &place.node) == record.node.as_ref();
            let is_astray = is_untold || (self.is_record_astray && is_again);
            self.is_record_astray = is_astray && self.agent.line != Some(id);
        }
        answer
    }

    pub(crate) fn deadline_passes(&mut self, scenario: &Scenario, id: ConnectionId) {
        let Some(line) = self.lines.get(&id) else { return };
        if let Some((at, _)) = line.connection.deadline() {
            self.now = self.now.max(scenario.when(line.node, at));
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

    fn find_order(&self, id: ConnectionId, op: OpId) -> Option<(NodeIndex, usize)> {
        let in_queue = |node: &Node| {
            node.queue.iter().position(|pending| (pending.line, pending.op) == (id, op))
        };
        let mut nodes = self.nodes.iter().enumerate();
        nodes.find_map(|(node, it)| in_queue(it).map(|at| (node, at)))
    }
}

impl Diary {
    /// A step of a connection, in the form of a session script.
    fn step(&mut self, line: ConnectionId, config: &Config, seen: &StepRecord<'_>) {
        let Some(lines) = &mut self.0 else { return };
        let writer = TranscriptWriter { config, start: DECEMBER };
        lines.push(format!("    {} {}", line.0, writer.event(seen.event, DECEMBER, seen.now)));
        let effects = seen.effects.iter().map(|effect| writer.effect(effect, seen.now));
        lines.extend(effects.map(|effect| format!("    {}     {effect}", line.0)));
    }
}
