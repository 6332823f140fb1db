//! Endpoints: the real delivery machine processes each push.

use std::collections::VecDeque;

use harness::invariants::Promise;
use state_machine::connection::{Event, PushAnswer};
use state_machine::delivery::{
    Delivery, DeliveryEffect, DeliveryEvent, NodeAnswer, Outcome, PushParams, Route, WriteError,
};
use state_machine::store::{StoreFailed, Stored};
use state_machine::{ConnectionId, MessageId, MessageKey, Month, NodeId};

use super::action::{NodeIndex, Which};
use super::happenings::is_write;
use super::lives::Life;
use super::mutation::Mutation;
use super::scenario::{Scenario, outlasts_clocks};
use super::world::World;

/// A push, from the application server's request to the answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Push {
    /// The application server has not sent it.
    Waiting,
    /// The id of a push that is repeated, if it is outranked ([`Scenario::repeats`]).
    Spare,
    UnderWay(Box<UnderWay>),
    /// The application server received the answer.
    Over(Outcome),
    /// The endpoint crashed before it answered.
    Vanished,
}

/// A push that has no answer yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct UnderWay {
    id: MessageId,
    delivery: Delivery,
    /// The delivery effects that were not executed yet.
    todo: VecDeque<DeliveryEffect>,
    reply: Reply,
    /// The first route that was read from the record.
    first_look: Option<Route>,
    /// Whether the node did not answer; recorded only for [`Mutation::NoLookWhenCutOff`].
    is_cut_off: bool,
}

/// The node's answer to the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Reply {
    NotAsked,
    Awaited(ConnectionId),
    Arrived(NodeAnswer),
}

impl Push {
    pub(crate) fn is_waiting(&self) -> bool {
        *self == Self::Waiting
    }

    pub(crate) fn next_effect(&self) -> Option<&DeliveryEffect> {
        self.under_way().and_then(|push| push.todo.front())
    }

    /// Whether the endpoint may still store or deliver the message.
    pub(crate) fn is_about(&self, id: MessageId) -> bool {
        self.under_way().is_some_and(|push| push.id == id)
    }

    pub(crate) fn awaits(&self, connection: ConnectionId) -> bool {
        self.awaited() == Some(connection)
    }

    /// The connection whose answer the endpoint waits for.
    pub(crate) fn awaited(&self) -> Option<ConnectionId> {
        match self.under_way()?.reply {
            Reply::Awaited(connection) => Some(connection),
            Reply::NotAsked | Reply::Arrived(_) => None,
        }
    }

    pub(crate) fn has_reply(&self) -> bool {
        self.under_way().is_some_and(|push| matches!(push.reply, Reply::Arrived(_)))
    }

    pub(crate) fn under_way(&self) -> Option<&UnderWay> {
        match self {
            Self::UnderWay(push) => Some(push),
            Self::Waiting | Self::Spare | Self::Over(_) | Self::Vanished => None,
        }
    }

    fn under_way_mut(&mut self) -> Option<&mut UnderWay> {
        match self {
            Self::UnderWay(push) => Some(push),
            Self::Waiting | Self::Spare | Self::Over(_) | Self::Vanished => None,
        }
    }
}

impl World {
    /// The endpoint's work in one action, from the request to the first read of the record.
    pub(crate) fn push_begins(&mut self, scenario: &Scenario, which: Which) {
        self.ledger.begun(&scenario.messages[which]);
        self.delivery_begins(scenario, which, false);
    }

    /// The push takes the id of its spare message.
    fn push_repeats(&mut self, scenario: &Scenario, which: Which, by: MessageId) {
        let Some(spare) = scenario.repeats.get(&which).copied() else { return };
        let ids = [which, spare].map(|which| scenario.messages[which].id);
        assert_eq!(ids[0].above(by).map(|id| id >= by), Some(true), "an id above it is possible");
        assert!(by < ids[1], "{} is not above {by}: give the scenario another spare", ids[1]);
        self.ledger.begun_as(&scenario.messages[spare], ids[0]);
        self.delivery_begins(scenario, spare, true);
    }

    fn delivery_begins(&mut self, scenario: &Scenario, which: Which, is_repeated: bool) {
        let message = &scenario.messages[which];
        let this_month = Month::of(scenario.endpoint_clock(which, self.now));
        let (delivery, first) = Delivery::begin(PushParams {
            ttl_is_zero: message.ttl_is_zero(),
            stores_first: is_repeated || message.receipt.is_some(),
            this_month,
            message_month: this_month,
        });
        self.pushes[which] = Push::UnderWay(Box::new(UnderWay {
            id: message.id,
            delivery,
            todo: [first].into(),
            reply: Reply::NotAsked,
            first_look: None,
            is_cut_off: false,
        }));
        self.endpoint_goes_on(scenario, which);
    }

    pub(crate) fn endpoint_goes_on(&mut self, scenario: &Scenario, which: Which) {
        self.endpoint_executes(scenario, which, true, true);
    }

    /// The store or the connection to the node fails.
    pub(crate) fn endpoint_fails(&mut self, scenario: &Scenario, which: Which, is_done: bool) {
        self.endpoint_executes(scenario, which, is_done, false);
    }

    fn endpoint_executes(
        &mut self,
        scenario: &Scenario,
        which: Which,
        is_done: bool,
        is_heard: bool,
    ) {
        let Some(push) = self.pushes[which].under_way_mut() else { return };
        let Some(effect) = push.todo.pop_front() else { return };
        self.diary.note(|| format!("    endpoint {which}: {effect:?}"));
        if is_done && is_write(&effect) {
            self.unwritten = None;
        }
        let event = match effect {
            DeliveryEffect::ReadRecord => {
                let route = self.reads_record(scenario, which);
                DeliveryEvent::RecordRead(heard(is_heard, route))
            }
            DeliveryEffect::Deliver { node } => {
                return self.hands_over(scenario, which, &node, is_done);
            }
            DeliveryEffect::ClearNode { node, connected_at } => {
                if is_done {
                    let uaid = self.agent.uaid;
                    self.environment(scenario).clear_node(uaid, &node, connected_at);
                }
                DeliveryEvent::NodeCleared
            }
            DeliveryEffect::ConfirmChannel { month } => {
                let chid = scenario.messages[which].chid;
                let has = self.store.has_channel(self.agent.uaid, month, chid);
                DeliveryEvent::ChannelConfirmed(heard(is_heard, has))
            }
            DeliveryEffect::Store { month } => {
                self.stores(scenario, which, month, is_done, is_heard)
            }
            DeliveryEffect::DeleteStored { month } => {
                let message = scenario.messages[which].key();
                if is_done {
                    self.store.delete(self.agent.uaid, month, &[message]);
                } else {
                    self.ledger.may_stray(message.id);
                }
                DeliveryEvent::OldRowDeleted
            }
            DeliveryEffect::MoveAgent
            | DeliveryEffect::SendToBridge { .. }
            | DeliveryEffect::DropRecipient { .. } => {
                unreachable!("no agent of this world is behind a bridge")
            }
            DeliveryEffect::NotifyMessageStored { node } => {
                let first_look = push.first_look.clone();
                self.nudges(scenario, &node, first_look.as_ref(), is_done);
                return self.answers_if_that_is_next(scenario, which);
            }
            DeliveryEffect::Answer(outcome) => return self.push_ends(scenario, which, outcome),
        };
        self.endpoint_happened(scenario, which, event);
    }

    fn endpoint_happened(&mut self, scenario: &Scenario, which: Which, event: DeliveryEvent) {
        let Some(push) = self.pushes[which].under_way_mut() else { return };
        let effects = push.delivery.step(event);
        push.todo.extend(effects);
        self.answers_if_that_is_next(scenario, which);
    }

    /// Answers the application server at once if that is the next effect.
    fn answers_if_that_is_next(&mut self, scenario: &Scenario, which: Which) {
        if let Some(DeliveryEffect::Answer(_)) = self.pushes[which].next_effect() {
            self.endpoint_goes_on(scenario, which);
        }
    }

    fn reads_record(&mut self, scenario: &Scenario, which: Which) -> Option<Route> {
        let under_way = self.pushes[which].under_way();
        let first_look = under_way.and_then(|push| push.first_look.clone());
        let is_cut_off = under_way.is_some_and(|push| push.is_cut_off);
        let uaid = self.agent.uaid;
        let route = self.environment(scenario).route(uaid, first_look.as_ref(), is_cut_off);
        if let Some(push) = self.pushes[which].under_way_mut() {
            push.first_look = first_look.or_else(|| route.clone());
        }
        self.diary.note(|| format!("    {route:?}"));
        route
    }

    fn stores(
        &mut self,
        scenario: &Scenario,
        which: Which,
        month: Month,
        is_done: bool,
        is_heard: bool,
    ) -> DeliveryEvent {
        let (uaid, message) = (self.agent.uaid, &scenario.messages[which]);
        let stored = is_done.then(|| self.environment(scenario).store(uaid, month, message));
        if !is_done && scenario.mutation == Some(Mutation::TopicReplacedInTwoWrites) {
            self.store.remove_topic(uaid, month, message);
        }
        self.agent.deleted.remove(&message.id);
        let is_pretended = !is_done && scenario.mutation == Some(Mutation::NoSpaceIsDone);
        let stored = stored.filter(|_| is_heard).or(is_pretended.then_some(Stored::Done));
        DeliveryEvent::Stored(stored.ok_or(WriteError::Failed))
    }

    fn hands_over(&mut self, scenario: &Scenario, which: Which, node: &NodeId, is_reached: bool) {
        let Some(at) = scenario.node_named(node) else { return };
        if !is_reached || self.is_shunned(at) || self.nodes[at].life == Life::Gone {
            return self.is_cut_off(scenario, which, at);
        }
        match self.found_here(at) {
            Some(connection) => {
                let push = self.pushes[which].under_way_mut();
                push.into_iter().for_each(|push| push.reply = Reply::Awaited(connection));
                self.connections
                    .get_mut(&connection)
                    .into_iter()
                    .for_each(|connection| connection.mail.push_back(which));
            }
            None => {
                let event = DeliveryEvent::NodeAnswered(NodeAnswer::NotHere);
                self.endpoint_happened(scenario, which, event);
            }
        }
    }

    /// The node does not answer this push, or something else answers in its place.
    fn is_cut_off(&mut self, scenario: &Scenario, which: Which, at: NodeIndex) {
        if scenario.freedom.endpoints_apart {
            self.shunned.insert(at);
        }
        if let Some(push) = self.pushes[which].under_way_mut() {
            push.reply = Reply::NotAsked;
            push.is_cut_off = scenario.mutation == Some(Mutation::NoLookWhenCutOff);
        }
        let answer = match scenario.mutation {
            Some(Mutation::StrangerSaysNotHere) => NodeAnswer::NotHere,
            Some(Mutation::StrangerSaysAccepted) => NodeAnswer::Accepted,
            _ => NodeAnswer::Unreachable,
        };
        self.endpoint_happened(scenario, which, DeliveryEvent::NodeAnswered(answer));
    }

    fn push_ends(&mut self, scenario: &Scenario, which: Which, outcome: Outcome) {
        self.pushes[which] = Push::Over(outcome);
        let message = &scenario.messages[which];
        if outcome == Outcome::Delivered {
            self.agent.deleted.insert(message.id);
        }
        match outcome {
            // A push that ran at the same time has stored a later message since.
            Outcome::Outranked(_) if scenario.is_spare(which) => self.ledger.accepted(message),
            Outcome::Outranked(by) => self.push_repeats(scenario, which, by),
            Outcome::Delivered | Outcome::Stored if !outlasts_clocks(message) => {}
            Outcome::Delivered | Outcome::Stored => self.ledger.accepted(message),
            Outcome::NoSuchChannel if self.ledger.is_given_up(message.chid) => {}
            Outcome::NoSuchUser | Outcome::UserWentAway | Outcome::NoSuchChannel => {
                let detail = format!("the push of {} is answered {outcome:?}", message.id);
                self.breaks(Promise::SubscriptionKept.broken(detail));
            }
            Outcome::OtherProtocol
            | Outcome::Dropped
            | Outcome::Full(_)
            | Outcome::Bridge(_)
            | Outcome::Unavailable => {}
        }
    }

    /// A connection answers a push. If the endpoint no longer waits, the answer is lost.
    pub(crate) fn node_answers(
        &mut self,
        scenario: &Scenario,
        connection: ConnectionId,
        which: Which,
        answer: PushAnswer,
        message: MessageKey,
    ) {
        if answer == PushAnswer::Busy {
            self.busy.insert((connection, message.id));
        }
        if !self.pushes[which].awaits(connection) {
            // Between processes, an answer may be written to an endpoint that is gone, and the node
            // does not notice.
            if answer == PushAnswer::Accepted && !scenario.freedom.endpoints_apart {
                self.step(scenario, connection, &Event::AckReplyLost(message));
            }
        } else if let Some(push) = self.pushes[which].under_way_mut() {
            push.reply = Reply::Arrived(answer.into());
        }
    }

    pub(crate) fn endpoint_gets_answer(&mut self, scenario: &Scenario, which: Which) {
        let Some(push) = self.pushes[which].under_way_mut() else { return };
        match std::mem::replace(&mut push.reply, Reply::NotAsked) {
            Reply::Arrived(answer) => {
                self.endpoint_happened(scenario, which, DeliveryEvent::NodeAnswered(answer));
            }
            // The node crashed with the push in it.
            Reply::NotAsked | Reply::Awaited(_) => self.node_answer_lost(scenario, which),
        }
    }

    pub(crate) fn node_answer_lost(&mut self, scenario: &Scenario, which: Which) {
        let look = self.pushes[which].under_way().and_then(|push| push.first_look.as_ref());
        let node = look.and_then(|route| route.node.as_ref());
        if let Some(at) = node.and_then(|node| scenario.node_named(node)) {
            self.is_cut_off(scenario, which, at);
        }
    }
}

fn heard<T>(is_heard: bool, answer: T) -> Result<T, StoreFailed> {
    if is_heard { Ok(answer) } else { Err(StoreFailed) }
}
