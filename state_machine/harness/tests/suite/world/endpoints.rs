//! The endpoints: pushes begin, the real delivery machine processes them, and they end.

use state_machine::connection::{Event, PushAnswer};
use state_machine::delivery::{DeliveryEffect, DeliveryEvent, NodeAnswer, Outcome, WriteError};
use state_machine::store::{StoreFailed, Stored};
use state_machine::{
    Chid, Message, MessageId, MessageKey, Month, NodeId, PushId, Span, Time, Topic, Uaid, Urgency,
};

use super::op::{EndpointClock, How, Lifetime};
use super::push::Push;
use super::{SyntaxError, World, named};

/// A lifetime that ends soon after the wait for an ack.
pub(super) const SHORT: Span = Span(2500);

/// A lifetime that outlasts every test.
const LONG: Span = Span::from_secs(100 * 365 * 24 * 60 * 60);

impl World {
    pub(super) fn push(
        &mut self,
        chid: Chid,
        topic: Option<u8>,
        (lifetime, urgency): (Lifetime, Urgency),
        clock: EndpointClock,
    ) {
        let Some(uaid) = self.agent.uaid.filter(|_| self.agent.channels.contains(&chid)) else {
            return;
        };
        if self.is_simplepush {
            let message = Message::of_version(chid, self.version(topic), None, self.now);
            self.begin(uaid, message, self.now, None);
            return;
        }
        let mark = if topic.is_some() { "t" } else { "" };
        let (ahead, number) = (clock.ahead(), 1000 + 100 * self.pushes.len() as i64);
        // Two clocks are as far apart as five pushes, and no two pushes have one id.
        let id = named(&format!("M{}{mark}", number + ahead));
        let accepted_at = Time(self.now.0.saturating_add_signed(ahead));
        let topic = topic.map(|topic| Topic::parse(&format!("t{topic}")).expect("a topic"));
        let ttl = match lifetime {
            Lifetime::Zero => Span::ZERO,
            Lifetime::Short => SHORT,
            Lifetime::Long => LONG,
        };
        let message = Message { topic, urgency, ..Message::new(id, chid, accepted_at, ttl) };
        self.begin(uaid, message, accepted_at, None);
    }

    fn begin(&mut self, uaid: Uaid, message: Message, clock: Time, before: Option<usize>) {
        let before = before.map(|before| &self.pushes[before]);
        let ended = self.pushes.iter().filter(|push| push.outcome.is_some()).count();
        let push = Push::begin(uaid, message, Month::of(clock), before, ended);
        self.pushes.push(push);
    }

    /// The push takes an id above the other one that no message has.
    fn repeat(&mut self, push: usize, by: MessageId) {
        let Push { uaid, message, .. } = &self.pushes[push];
        let (uaid, mut message) = (*uaid, message.clone());
        let mut above = Some(by);
        while let Some(id) = above.and_then(|above| message.id.above(above)) {
            above = Some(id);
            if self.pushes.iter().all(|push| push.message.id != id) {
                message.id = id;
                return self.begin(uaid, message.clone(), message.accepted_at, Some(push));
            }
        }
    }

    /// A version of its own for each push, mostly the highest; one with a topic is lower than the last ones.
    fn version(&self, topic: Option<u8>) -> u64 {
        let highest = 10 * (self.pushes.len() as u64 + 10);
        topic.map_or(highest, |topic| highest - 15 - 22 * u64::from(topic))
    }

    pub(super) fn push_goes_on(&mut self, push: usize, how: How) -> Result<(), SyntaxError> {
        if let Some(effect) = self.pushes[push].todo.pop_front() {
            return self.push_executes(push, effect, how);
        }
        let Some(answer) = self.pushes[push].answer.take() else { return Ok(()) };
        self.pushes[push].is_handed_over = false;
        let is_lost = how == How::AckReplyLost;
        if is_lost && answer == NodeAnswer::Accepted {
            let lost = Event::AckReplyLost(self.pushes[push].message.key());
            let carrier = self
                .connections
                .iter_mut()
                .rev()
                .find(|connection| connection.carried.contains(&push));
            carrier.into_iter().for_each(|connection| connection.mail.push_back(lost.clone()));
        }
        let answer = if is_lost { NodeAnswer::Unreachable } else { answer };
        self.pushes[push].happened(DeliveryEvent::NodeAnswered(answer));
        Ok(())
    }

    pub(super) fn push_executes(
        &mut self,
        push: usize,
        effect: DeliveryEffect,
        how: How,
    ) -> Result<(), SyntaxError> {
        let is_done = !how.is_undone();
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
                DeliveryEvent::ChannelConfirmed(is_heard.then_some(is_there).ok_or(StoreFailed))
            }
            DeliveryEffect::Store { month } => {
                self.write_all(usize::MAX)?;
                let stored = is_done.then(|| match message.version() {
                    Some(_) => self.store.store_version(uaid, month, message),
                    None => self.store.store(uaid, month, message),
                });
                self.pushes[push].was_stored |= stored == Some(Stored::Done);
                self.pushes[push].may_stray |= !is_heard;
                self.nothing_reappears()?;
                DeliveryEvent::Stored(stored.filter(|_| is_heard).ok_or(WriteError::Failed))
            }
            // As the endpoint actor: a SimplePush version is in no month.
            DeliveryEffect::DeleteStored { .. } if self.is_simplepush => {
                DeliveryEvent::OldRowDeleted
            }
            DeliveryEffect::DeleteStored { month } => {
                if is_done {
                    self.store.delete(uaid, month, &[message.key()]);
                }
                self.pushes[push].may_stray |= !is_done;
                DeliveryEvent::OldRowDeleted
            }
            DeliveryEffect::MoveAgent
            | DeliveryEffect::SendToBridge { .. }
            | DeliveryEffect::DropRecipient { .. } => {
                unreachable!("no agent of this world is behind a bridge")
            }
            DeliveryEffect::NotifyMessageStored { node } => {
                self.is_nudge_lost |= !is_done;
                if is_done && let Some(connection) = self.find(&node, uaid) {
                    self.connections[connection].mail.push_back(Event::MessageStored);
                }
                return Ok(());
            }
            DeliveryEffect::Answer(outcome) => return self.push_ends(push, outcome),
        };
        self.pushes[push].happened(event);
        Ok(())
    }

    pub(super) fn hand_over(
        &mut self,
        push: usize,
        node: &NodeId,
        how: How,
    ) -> Result<(), SyntaxError> {
        let Push { uaid, message, .. } = &self.pushes[push];
        let answer = match self.find(node, *uaid) {
            _ if how.is_undone() || self.is_down(node) => NodeAnswer::Unreachable,
            None => NodeAnswer::NotHere,
            Some(connection) => {
                let message = message.clone();
                let arrived = Event::PushArrived { push: PushId(push as u64), message };
                self.connections[connection].mail.push_back(arrived);
                self.connections[connection].carried.insert(push);
                self.pushes[push].is_handed_over = true;
                return Ok(());
            }
        };
        self.pushes[push].happened(DeliveryEvent::NodeAnswered(answer));
        Ok(())
    }

    /// The application server must not receive 410 for a channel that the agent still has.
    pub(super) fn push_ends(&mut self, push: usize, outcome: Outcome) -> Result<(), SyntaxError> {
        let outcome = match outcome {
            // A push that ran at the same time has stored a later message since.
            Outcome::Outranked(_) if self.pushes[push].is_repeated => Outcome::Stored,
            Outcome::Outranked(by) => {
                self.repeat(push, by);
                outcome
            }
            outcome => outcome,
        };
        let ended = self.pushes.iter().filter(|push| push.outcome.is_some()).count();
        let push = &mut self.pushes[push];
        (push.outcome, push.ended_after) = (Some(outcome), Some(ended));
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
        if outcome == Outcome::Delivered && !push.message.ttl_is_zero() {
            self.settled.insert(push.message.id);
        }
        Ok(())
    }

    pub(super) fn push_answered(
        &mut self,
        connection: usize,
        push: PushId,
        answer: PushAnswer,
        message: &MessageKey,
    ) {
        let push = &mut self.pushes[push.0 as usize];
        if push.is_handed_over {
            push.answer = Some(answer.into());
        } else if answer == PushAnswer::Accepted {
            self.connections[connection].mail.push_back(Event::AckReplyLost(message.clone()));
        }
    }
}

impl EndpointClock {
    /// Milliseconds by which it is ahead.
    fn ahead(self) -> i64 {
        match self {
            Self::Behind => -233,
            Self::Right => 0,
            Self::Ahead => 281,
        }
    }
}
