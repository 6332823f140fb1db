//! A small world around the real machines: a store, two nodes, endpoints, one agent, and time.
//!
//! What happens next is chosen from outside, one [`Op`] after the other; everything that is under way
//! can be overtaken, delayed, lost or repeated as far as the contracts allow it.

mod agent;
mod line;
mod push;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::str::FromStr;
use std::sync::Arc;

use agent::Agent;
use line::Line;
use push::{Push, node_answer};
use state_machine::connection::{Config, Effect, Event, Limits, Luck, PhaseName, PushAnswer};
use state_machine::delivery::{DeliveryEffect, DeliveryEvent, NodeAnswer, Outcome, StoreRefused};
use state_machine::registry::Registry;
use state_machine::store::{StoreFailed, StoreOrder};
use state_machine::transcript::{Names, Scribe};
use state_machine::wire::{ClientMessage, ServerMessage};
use state_machine::{
    Chid, ConnectionId, Message, MessageId, Month, NodeId, PushId, RouterRecord, Span, Time, Topic,
    Uaid, Urgency,
};
use store::Store;

/// What is wrong with the world.
pub(crate) type Wrong = String;

/// What happens next.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// The agent connects to a node, and its connection before that ends in one of three ways.
    Connect {
        node: usize,
        parting: Parting,
    },
    /// The agent's connection ends, with a word to the node or without.
    Leave {
        parting: Parting,
    },
    Register {
        channel: u8,
    },
    /// Always the last channel, so that the others are certain to be wanted.
    Unregister,
    Urgency {
        min: Urgency,
    },
    Push {
        channel: u8,
        topic: Option<u8>,
        is_fleeting: bool,
        urgency: Urgency,
        may_wait: bool,
    },
    AckOne {
        nth: usize,
    },
    AckAll,
    /// One of the things under way comes to pass.
    Go {
        which: usize,
        how: How,
    },
    /// Everything under way comes to pass.
    GoAll,
    Wait {
        ms: u64,
    },
    ToDeadline,
    /// Just into the next month, by the clock that is not behind.
    NextMonth,
    ShutDown {
        node: usize,
    },
}

/// What becomes of a connection that the agent leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parting {
    HangUp,
    /// The node does not notice.
    Vanish,
    /// The agent still hears messages that come there.
    Linger,
}

/// How a thing under way comes to pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Well,
    /// A read sees what was there when it was ordered.
    Early,
    /// It was done, and its answer is lost.
    AnswerLost,
    /// It was not done.
    NotDone,
}

/// A thing under way.
#[derive(Debug, Clone, Copy)]
enum UnderWay {
    Mail(usize),
    Order(usize, usize),
    Push(usize),
}

pub(crate) struct World {
    now: Time,
    store: Store,
    nodes: [Node; 2],
    lines: Vec<Line>,
    pushes: Vec<Push>,
    agent: Agent,
    /// Messages that are done with for good.
    settled: BTreeSet<MessageId>,
    orders_given: usize,
    /// Whether a nudge went astray, so that the next one or the recheck must do.
    is_nudge_lost: bool,
    log: Vec<String>,
}

struct Node {
    config: Arc<Config>,
    registry: Registry<()>,
    /// How much its clock is behind.
    behind: Span,
}

pub(crate) const CHANNELS: u8 = 3;

/// A time in November, and a lifetime that outlasts every test.
const BEGIN: Time = Time(1_793_700_000_000);
const LONG: Span = Span::from_secs(100 * 365 * 24 * 60 * 60);

impl World {
    pub(crate) fn new() -> Self {
        let node = |name: &str, behind| Node {
            config: Arc::new(Config {
                node: NodeId::new(name),
                frozen_month: None,
                limits: limits(),
            }),
            registry: Registry::new(),
            behind,
        };
        Self {
            now: BEGIN,
            store: Store::default(),
            nodes: [node("ahead", Span::ZERO), node("behind", Span(500))],
            lines: Vec::new(),
            pushes: Vec::new(),
            agent: Agent::default(),
            settled: BTreeSet::new(),
            orders_given: 0,
            is_nudge_lost: false,
            log: Vec::new(),
        }
    }

    /// What happened, for a person to read.
    pub(crate) fn log(&self) -> String {
        self.log.join("\n")
    }

    pub(crate) fn happens(&mut self, op: &Op) -> Result<(), Wrong> {
        self.log.push(format!("== {op:?}"));
        match *op {
            Op::Connect { node, parting } => self.connect(node, parting),
            Op::Leave { parting } => self.leave(parting),
            Op::Register { channel } => {
                self.say(ClientMessage::Register { chid: chid(channel), key: None })
            }
            Op::Unregister => self.unregister(),
            Op::Urgency { min } => self.say(ClientMessage::Urgency { min }),
            Op::Push { channel, topic, is_fleeting, urgency, may_wait } => {
                self.push(chid(channel), topic, is_fleeting, urgency, may_wait);
                Ok(())
            }
            Op::AckOne { nth } => self.ack(Some(nth)),
            Op::AckAll => self.ack(None),
            Op::Go { which, how } => match self.under_way() {
                things if things.is_empty() => Ok(()),
                things => self.comes_to_pass(things[which % things.len()], how),
            },
            Op::GoAll => self.go_all(),
            Op::Wait { ms } => self.time_passes(self.now + Span(ms)),
            Op::ToDeadline => match self.deadline() {
                Some((at, _)) => self.time_passes(at),
                None => Ok(()),
            },
            Op::NextMonth => self.time_passes(next_month(self.now) + Span(250)),
            Op::ShutDown { node } => self.shut_down(node),
        }
    }

    fn connect(&mut self, node: usize, parting: Parting) -> Result<(), Wrong> {
        self.leave(parting)?;
        let fresh_uaid = named(&format!("U{}", self.lines.len()));
        let at = self.now - self.nodes[node].behind;
        let luck = Luck { fresh_uaid, jitter: 0 };
        self.lines.push(Line::new(node, Arc::clone(&self.nodes[node].config), luck, at));
        self.agent.line = Some(self.lines.len() - 1);
        self.agent.is_greeted = false;
        self.say_unasked(ClientMessage::Hello { uaid: self.agent.uaid })
    }

    fn leave(&mut self, parting: Parting) -> Result<(), Wrong> {
        let Some(line) = self.agent.line.take() else { return Ok(()) };
        self.lines[line].is_heard = parting == Parting::Linger;
        if parting == Parting::HangUp { self.step(line, Event::HungUp) } else { Ok(()) }
    }

    /// What an agent says once it was greeted.
    fn say(&mut self, message: ClientMessage) -> Result<(), Wrong> {
        if self.agent.is_greeted { self.say_unasked(message) } else { Ok(()) }
    }

    fn say_unasked(&mut self, message: ClientMessage) -> Result<(), Wrong> {
        self.agent.line.map_or(Ok(()), |line| self.step(line, Event::Said(message)))
    }

    fn unregister(&mut self) -> Result<(), Wrong> {
        let chid = chid(CHANNELS - 1);
        self.agent.given_up.insert(chid);
        self.say(ClientMessage::Unregister { chid })
    }

    fn ack(&mut self, nth: Option<usize>) -> Result<(), Wrong> {
        if !self.agent.is_greeted || self.agent.line.is_none() {
            return Ok(());
        }
        let updates = self.agent.acks(nth);
        self.say(ClientMessage::Ack { updates })
    }

    fn push(
        &mut self,
        chid: Chid,
        topic: Option<u8>,
        is_fleeting: bool,
        urgency: Urgency,
        may_wait: bool,
    ) {
        let Some(uaid) = self.agent.uaid.filter(|_| self.agent.channels.contains(&chid)) else {
            return;
        };
        let mark = if topic.is_some() { "t" } else { "" };
        let id = named(&format!("M{}{mark}", self.pushes.len()));
        let topic = topic.map(|topic| Topic::parse(&format!("t{topic}")).unwrap());
        let message = Message {
            id,
            chid,
            topic,
            urgency,
            accepted_at: self.now,
            ttl: if is_fleeting { Span::ZERO } else { LONG },
            payload: None,
        };
        self.pushes.push(Push::begin(uaid, message, may_wait, Month::of(self.now)));
    }

    fn shut_down(&mut self, node: usize) -> Result<(), Wrong> {
        for line in 0..self.lines.len() {
            if self.lines[line].node == node {
                self.step(line, Event::ShutdownBegan)?;
            }
        }
        Ok(())
    }

    fn under_way(&self) -> Vec<UnderWay> {
        let mut things = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            things.extend(line.mail.front().map(|_| UnderWay::Mail(at)));
            things.extend((0..line.orders.len()).map(|order| UnderWay::Order(at, order)));
        }
        let pending = |push: &usize| self.pushes[*push].is_pending();
        things.extend((0..self.pushes.len()).filter(pending).map(UnderWay::Push));
        things
    }

    fn comes_to_pass(&mut self, thing: UnderWay, how: How) -> Result<(), Wrong> {
        match thing {
            UnderWay::Mail(line) => match self.lines[line].mail.pop_front() {
                Some(event) => self.step(line, event),
                None => Ok(()),
            },
            UnderWay::Order(line, order) => self.store_answers(line, order, how),
            UnderWay::Push(push) => self.push_goes_on(push, how),
        }
    }

    fn go_all(&mut self) -> Result<(), Wrong> {
        const THINGS_MAX: usize = 5000;
        for _ in 0..THINGS_MAX {
            match self.under_way().first() {
                Some(thing) => self.comes_to_pass(*thing, How::Well)?,
                None => return Ok(()),
            }
        }
        Err("there is no end to what is under way".to_owned())
    }

    /// One user agent's writes are in order: those that were called before come first.
    fn store_answers(&mut self, line: usize, order: usize, how: How) -> Result<(), Wrong> {
        let number = self.lines[line].orders[order].number;
        if self.lines[line].orders[order].is_write() {
            self.write_all(number)?;
            if how != How::NotDone {
                self.write(line, order)?;
            }
        }
        let pending = self.lines[line].orders.remove(order);
        let answer = match how {
            How::Well => Ok(pending.done.unwrap_or_else(|| self.store.carry_out(&pending.order))),
            How::Early => {
                Ok(pending.done.or(pending.early).expect("writes are done, reads were early"))
            }
            How::AnswerLost | How::NotDone => Err(StoreFailed),
        };
        if let (StoreOrder::Delete { messages, .. }, Ok(_)) = (&pending.order, &answer) {
            messages.iter().for_each(|message| self.settle(message.id));
        }
        self.step(line, Event::StoreAnswered { op: pending.op, answer })
    }

    /// Carries out the writes that were called before the one of this number.
    fn write_all(&mut self, before: usize) -> Result<(), Wrong> {
        let mut writes: Vec<(usize, usize, usize)> = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            let orders = line.orders.iter().enumerate();
            let due = orders.filter(|(_, order)| order.is_write() && order.number < before);
            writes.extend(due.map(|(order, pending)| (pending.number, at, order)));
        }
        writes.sort_unstable();
        writes.into_iter().try_for_each(|(_, line, order)| self.write(line, order))
    }

    fn write(&mut self, line: usize, order: usize) -> Result<(), Wrong> {
        let pending = &mut self.lines[line].orders[order];
        if pending.done.is_none() {
            let before = self.store.records.clone();
            pending.done = Some(self.store.carry_out(&pending.order));
            self.records_changed(&before)?;
        }
        self.nothing_reappears()
    }

    fn records_changed(&mut self, before: &BTreeMap<Uaid, RouterRecord>) -> Result<(), Wrong> {
        for (uaid, record) in self.store.records.clone() {
            let Some(before) = before.get(&uaid) else { continue };
            if record.curmonth < before.curmonth {
                return Err(format!("the record moves back from {:?}", before.curmonth));
            }
            self.tell_the_older(before, &record);
        }
        Ok(())
    }

    /// A node that takes a user agent over from another node tells it so.
    fn tell_the_older(&mut self, before: &RouterRecord, record: &RouterRecord) {
        let older = before.node.as_ref().filter(|older| record.node.as_ref() != Some(*older));
        let line = older.and_then(|older| self.find(older, record.uaid));
        if let Some(line) = line {
            self.lines[line].mail.push_back(Event::Replaced);
        }
    }

    /// An ack is settled when its delete is durable and nobody is about to store the message.
    fn settle(&mut self, id: MessageId) {
        let is_over = |push: &Push| push.message.id != id || push.outcome.is_some();
        let is_acked = self.agent.got.contains_key(&id)
            && !self.agent.unacked.iter().any(|update| update.id == id);
        let is_there = self.rows().any(|row| row == id);
        if is_acked && !is_there && self.pushes.iter().all(is_over) {
            self.settled.insert(id);
        }
    }

    fn nothing_reappears(&self) -> Result<(), Wrong> {
        match self.rows().find(|id| self.settled.contains(id)) {
            Some(id) => Err(format!("{id} is stored after its ack was settled")),
            None => Ok(()),
        }
    }

    fn rows(&self) -> impl Iterator<Item = MessageId> {
        self.agent.uaid.into_iter().flat_map(|uaid| self.store.rows(uaid)).map(|(_, id)| id)
    }

    fn push_goes_on(&mut self, push: usize, how: How) -> Result<(), Wrong> {
        if let Some(effect) = self.pushes[push].todo.pop_front() {
            return self.push_orders(push, effect, how);
        }
        let Some(answer) = self.pushes[push].answer.take() else { return Ok(()) };
        self.pushes[push].is_handed_over = false;
        let is_lost = how == How::AnswerLost;
        if is_lost && answer == NodeAnswer::Accepted {
            let lost = Event::AnswerLost(self.pushes[push].message.reference());
            let carrier = self.lines.iter_mut().rev().find(|line| line.carried.contains(&push));
            carrier.into_iter().for_each(|line| line.mail.push_back(lost.clone()));
        }
        let answer = if is_lost { NodeAnswer::Unreachable } else { answer };
        self.pushes[push].happened(DeliveryEvent::NodeAnswered(answer));
        Ok(())
    }

    fn push_orders(&mut self, push: usize, effect: DeliveryEffect, how: How) -> Result<(), Wrong> {
        let is_done = how != How::NotDone;
        let is_heard = how == How::Well || how == How::Early;
        let Push { uaid, message, .. } = &self.pushes[push];
        let (uaid, message) = (*uaid, message.clone());
        let event = match effect {
            DeliveryEffect::ReadRecord => {
                let record = self.store.records.get(&uaid).cloned().map(Into::into);
                DeliveryEvent::RecordRead(if is_heard { Ok(record) } else { Err(StoreFailed) })
            }
            DeliveryEffect::Deliver { node } => return self.hand_over(push, &node, how),
            DeliveryEffect::ClearNode { node, connected_at } => {
                if is_done {
                    self.store.clear_node(uaid, &node, connected_at);
                }
                DeliveryEvent::NodeCleared
            }
            DeliveryEffect::ConfirmChannel { month } => {
                let is_there = self.store.has_channel(uaid, month, message.chid);
                DeliveryEvent::ChannelConfirmed(if is_heard {
                    Ok(is_there)
                } else {
                    Err(StoreFailed)
                })
            }
            DeliveryEffect::Store { month } => {
                self.write_all(usize::MAX)?;
                let stored = is_done.then(|| self.store.store(uaid, month, message));
                self.pushes[push].was_stored |= is_done;
                self.pushes[push].may_stray |= !is_heard;
                self.nothing_reappears()?;
                DeliveryEvent::Stored(stored.filter(|_| is_heard).ok_or(StoreRefused::Failed))
            }
            DeliveryEffect::DeleteStored { month } => {
                if is_done {
                    self.store.delete(uaid, month, &[message.reference()]);
                }
                self.pushes[push].may_stray |= !is_done;
                DeliveryEvent::OldRowDeleted
            }
            DeliveryEffect::Nudge { node } => {
                self.is_nudge_lost |= !is_done;
                if is_done && let Some(line) = self.find(&node, uaid) {
                    self.lines[line].mail.push_back(Event::MessageStored);
                }
                return Ok(());
            }
            DeliveryEffect::Answer(outcome) => return self.push_ends(push, outcome),
        };
        self.pushes[push].happened(event);
        Ok(())
    }

    fn hand_over(&mut self, push: usize, node: &NodeId, how: How) -> Result<(), Wrong> {
        let Push { uaid, message, .. } = &self.pushes[push];
        let answer = match self.find(node, *uaid) {
            _ if how == How::NotDone => NodeAnswer::Unreachable,
            None => NodeAnswer::NotHere,
            Some(line) => {
                let message = message.clone();
                let arrived = Event::PushArrived { push: PushId(push as u64), message };
                self.lines[line].mail.push_back(arrived);
                self.lines[line].carried.insert(push);
                self.pushes[push].is_handed_over = true;
                return Ok(());
            }
        };
        self.pushes[push].happened(DeliveryEvent::NodeAnswered(answer));
        Ok(())
    }

    /// Nobody is told that a subscription is gone which its agent has.
    fn push_ends(&mut self, push: usize, outcome: Outcome) -> Result<(), Wrong> {
        let push = &mut self.pushes[push];
        push.outcome = Some(outcome);
        let chid = push.message.chid;
        let is_wanted = self.agent.uaid == Some(push.uaid)
            && self.agent.channels.contains(&chid)
            && !self.agent.given_up.contains(&chid);
        if is_wanted && push.is_gone() {
            return Err(format!(
                "{} is {outcome:?}, and its agent has the channel",
                push.message.id
            ));
        }
        if outcome == Outcome::Delivered && !push.message.is_fleeting() {
            self.settled.insert(push.message.id);
        }
        Ok(())
    }

    fn find(&self, node: &NodeId, uaid: Uaid) -> Option<usize> {
        let node = self.nodes.iter().find(|other| other.config.node == *node)?;
        node.registry.find(uaid).map(|entry| entry.connection.0 as usize)
    }

    fn deadline(&self) -> Option<(Time, usize)> {
        let lines = self.lines.iter().enumerate();
        let deadlines = lines.filter_map(|(at, line)| {
            let (deadline, _) = line.watched.connection.deadline()?;
            Some((deadline + self.nodes[line.node].behind, at))
        });
        deadlines.min()
    }

    /// Mail may be overtaken by anything, but it does not take a second.
    fn time_passes(&mut self, until: Time) -> Result<(), Wrong> {
        const DEADLINES_MAX: usize = 5000;
        if until >= self.now + Span::from_secs(1) {
            self.deliver_mail()?;
        }
        for _ in 0..DEADLINES_MAX {
            let Some((at, line)) = self.deadline().filter(|(at, _)| *at <= until) else {
                self.now = until;
                return Ok(());
            };
            self.now = self.now.max(at);
            self.step(line, Event::TimePassed)?;
        }
        Err(format!("deadlines never end before {until:?}"))
    }

    fn deliver_mail(&mut self) -> Result<(), Wrong> {
        for line in 0..self.lines.len() {
            while let Some(event) = self.lines[line].mail.pop_front() {
                self.step(line, event)?;
            }
        }
        Ok(())
    }

    /// Steps a connection and carries out what it orders.
    fn step(&mut self, line: usize, event: Event) -> Result<(), Wrong> {
        let now = self.now - self.nodes[self.lines[line].node].behind;
        let effects = {
            let Line { watched, node, .. } = &mut self.lines[line];
            let scribe = Scribe { config: &self.nodes[*node].config, start: BEGIN };
            self.log.push(format!("{line}  {}", scribe.event(&event, BEGIN, now)));
            let effects = watched.step(now, event).map_err(|violation| violation.to_string())?;
            let lines = effects.iter().map(|effect| scribe.effect(effect, now));
            self.log.extend(lines.map(|text| format!("{line}    {text}")));
            effects
        };
        effects.into_iter().try_for_each(|effect| self.carry_out(line, effect))
    }

    fn carry_out(&mut self, line: usize, effect: Effect) -> Result<(), Wrong> {
        let connection = ConnectionId(line as u64);
        let node = self.lines[line].node;
        match effect {
            Effect::Send(message) if self.lines[line].is_heard => {
                self.agent_hears(line, &message)?
            }
            Effect::Ping if self.lines[line].is_heard => {
                self.lines[line].mail.push_back(Event::Heard);
            }
            Effect::Send(_) | Effect::Ping => {}
            Effect::Ask { op, order } => {
                self.orders_given += 1;
                let number = self.orders_given;
                self.lines[line].ordered(op, order, number, &mut self.store);
            }
            Effect::AnswerPush { push, answer, message } => {
                self.push_answered(line, push, answer, &message);
            }
            Effect::EnterRegistry { uaid } => {
                if let Some(older) = self.nodes[node].registry.enter(uaid, connection, ()) {
                    self.lines[older.connection.0 as usize].mail.push_back(Event::Replaced);
                }
            }
            Effect::LeaveRegistry { uaid } => self.nodes[node].registry.leave(uaid, connection),
            Effect::Close(_) => {
                self.lines[line].is_heard = false;
                if self.agent.line == Some(line) {
                    self.agent.line = None;
                }
            }
        }
        Ok(())
    }

    /// An agent that has channels keeps its uaid. On a connection that it has left it hears messages only.
    fn agent_hears(&mut self, line: usize, message: &ServerMessage) -> Result<(), Wrong> {
        let is_notification = matches!(message, ServerMessage::Notification(_));
        if !is_notification && self.agent.line != Some(line) {
            return Ok(());
        }
        let channels = self.agent.channels.clone();
        match self.agent.hears(message) {
            Some(lost) if !channels.is_empty() => {
                Err(format!("{lost} lost its uaid and {channels:?}"))
            }
            _ => Ok(()),
        }
    }

    fn push_answered(
        &mut self,
        line: usize,
        push: PushId,
        answer: PushAnswer,
        message: &state_machine::MessageRef,
    ) {
        let push = &mut self.pushes[push.0 as usize];
        if push.is_handed_over {
            push.answer = Some(node_answer(answer));
        } else if answer == PushAnswer::Accepted {
            self.lines[line].mail.push_back(Event::AnswerLost(message.clone()));
        }
    }
}

impl World {
    /// Whatever is under way comes to pass, and the agent takes what waits, here and on a last connection.
    pub(crate) fn comes_to_rest(&mut self) -> Result<(), Wrong> {
        self.log.push("== the end".to_owned());
        self.go_all()?;
        self.rests_in_place()?;
        self.everybody_leaves()?;
        if self.agent.uaid.is_none() {
            return Ok(());
        }
        self.connect(0, Parting::HangUp)?;
        self.drain()?;
        self.promises_are_kept()?;
        self.nothing_is_left()?;
        self.commands_are_answered()
    }

    /// A connected agent that acks gets everything, without waiting for the next look that nobody asked for.
    fn rests_in_place(&mut self) -> Result<(), Wrong> {
        let is_at_rest = self.rests()? && {
            self.say(ClientMessage::Urgency { min: Urgency::VeryLow })?;
            self.rests()?
        };
        if is_at_rest && !self.is_nudge_lost { self.promises_are_kept() } else { Ok(()) }
    }

    /// Gives the connection time and acks. Answers whether it is still the one that the record leads to.
    fn rests(&mut self) -> Result<bool, Wrong> {
        const PATIENCE: Span = Span::from_secs(130);
        let until = self.now + PATIENCE;
        loop {
            self.go_all()?;
            if !self.is_record_ours() {
                return Ok(false);
            } else if !self.agent.unacked.is_empty() {
                self.ack(None)?;
            } else if let Some((at, _)) = self.deadline().filter(|(at, _)| *at <= until) {
                self.time_passes(at)?;
            } else {
                return Ok(true);
            }
        }
    }

    /// Whether the agent is greeted on the connection that its record leads to.
    fn is_record_ours(&self) -> bool {
        let record = self.agent.uaid.and_then(|uaid| self.store.records.get(&uaid));
        let found = record.and_then(|record| self.find(record.node.as_ref()?, record.uaid));
        self.agent.is_greeted && self.agent.line.is_some() && found == self.agent.line
    }

    fn everybody_leaves(&mut self) -> Result<(), Wrong> {
        self.agent.line = None;
        for line in 0..self.lines.len() {
            self.lines[line].is_heard = false;
            self.step(line, Event::HungUp)?;
        }
        self.go_all()?;
        match self.pushes.iter().find(|push| push.outcome.is_none()) {
            Some(push) => Err(format!("{} has no answer, with nothing under way", push.message.id)),
            None => Ok(()),
        }
    }

    fn commands_are_answered(&mut self) -> Result<(), Wrong> {
        let before = self.agent.answers;
        for channel in [0, 1, 0] {
            self.say(ClientMessage::Register { chid: chid(channel), key: None })?;
        }
        self.drain()?;
        match self.agent.answers - before {
            3 => Ok(()),
            answers => Err(format!("three commands, {answers} answers")),
        }
    }

    fn drain(&mut self) -> Result<(), Wrong> {
        const ROUNDS_MAX: usize = 500;
        for _ in 0..ROUNDS_MAX {
            self.go_all()?;
            let Some(line) = self.agent.line else {
                return Err("the last connection was closed".to_owned());
            };
            let is_ready = self.lines[line].watched.connection.phase() == PhaseName::Ready;
            if !self.agent.unacked.is_empty() {
                self.ack(None)?;
            } else if is_ready && self.under_way().is_empty() {
                return Ok(());
            } else if let Some((at, _)) = self.deadline() {
                self.time_passes(at)?;
            }
        }
        Err("the agent is never done".to_owned())
    }

    fn promises_are_kept(&self) -> Result<(), Wrong> {
        let is_ours = |push: &&Push| Some(push.uaid) == self.agent.uaid;
        let is_wanted = |push: &&Push| !self.agent.given_up.contains(&push.message.chid);
        for push in self.pushes.iter().filter(is_ours).filter(is_wanted) {
            if push.is_promised() && !self.was_delivered(push) {
                return Err(format!("{} is {:?} and lost", push.message.id, push.outcome));
            }
        }
        Ok(())
    }

    /// Whether it came, or a newer message of its topic did in its place.
    fn was_delivered(&self, push: &Push) -> bool {
        let is_as_good = |other: &&Push| {
            let Message { id, chid, topic, .. } = &other.message;
            let is_newer = topic.is_some()
                && (chid, topic) == (&push.message.chid, &push.message.topic)
                && *id > push.message.id
                && other.was_stored;
            *id == push.message.id || is_newer
        };
        let mut as_good = self.pushes.iter().filter(is_as_good);
        as_good.any(|other| self.agent.got.contains_key(&other.message.id))
    }

    fn nothing_is_left(&self) -> Result<(), Wrong> {
        let Some(uaid) = self.agent.uaid else { return Ok(()) };
        let may_stray: BTreeSet<MessageId> = self
            .pushes
            .iter()
            .filter(|push| push.may_stray || push.outcome == Some(Outcome::Unavailable))
            .map(|push| push.message.id)
            .collect();
        let left = self.store.rows(uaid).find(|(_, id)| !may_stray.contains(id));
        if let Some((month, id)) = left {
            return Err(format!("{id} is left in {month}"));
        }
        match self.store.records.get(&uaid).and_then(|record| record.oldmonth) {
            Some(month) => Err(format!("the move from {month} is not finished")),
            None => Ok(()),
        }
    }
}

/// Small enough to be reached in a short history.
fn limits() -> Limits {
    Limits {
        keepalive_interval: Span::from_secs(24 * 60 * 60),
        storage_recheck: Span::from_secs(12 * 60 * 60),
        fetch_rows_max: 2,
        unacked_max: 4,
        deferred_commands_max: 3,
        remembered_acks_max: 6,
        channels_max: 4,
        ..Limits::default()
    }
}

fn chid(channel: u8) -> Chid {
    named(&format!("C{channel}"))
}

/// The id that a name of a transcript stands for, so that the log is one.
fn named<T: FromStr<Err: Debug>>(name: &str) -> T {
    Names::fixed().text(name).expect("a name").parse().expect("an id")
}

fn next_month(time: Time) -> Time {
    const DAY: Span = Span::from_secs(24 * 60 * 60);
    let mut midnight = Time(time.0 - time.0 % DAY.0);
    while Month::of(midnight) == Month::of(time) {
        midnight = midnight + DAY;
    }
    midnight
}
