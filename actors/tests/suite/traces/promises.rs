//! The promises of the whole service, held against all connections of an agent and its endpoints
//! together.

use std::collections::BTreeMap;

use harness::invariants::{DeliveryModel, Promise};
use state_machine::connection::{Effect, Event};
use state_machine::delivery::Outcome;
use state_machine::store::{RegisterResult, StoreAnswer, StoreOp};
use state_machine::wire::{ClientMessage, ServerMessage};
use state_machine::{Message, MessageId, Month, OpId, RouterRecord, Uaid};

use super::{Broken, Entry, Step, Trace};

pub(super) fn check(trace: &Trace) -> Result<(), Broken> {
    let mut seen = Looker::default();
    trace.0.iter().try_for_each(|entry| seen.looks_at(entry))
}

/// Remembers what the promises need.
#[derive(Default)]
struct Looker {
    lines: BTreeMap<usize, LineSeen>,
    agents: BTreeMap<Uaid, AgentSeen>,
}

#[derive(Default)]
struct LineSeen {
    uaid: Option<Uaid>,
    /// The deletes that the store has not answered.
    deletes: BTreeMap<OpId, Vec<MessageId>>,
}

/// An agent, and the outcomes of the messages for it.
#[derive(Default)]
struct AgentSeen {
    ledger: DeliveryModel,
    messages: BTreeMap<MessageId, MessageSeen>,
    month: Option<Month>,
}

#[derive(Default)]
struct MessageSeen {
    sent: Option<Message>,
    is_told: bool,
    is_acked: bool,
}

impl Looker {
    fn looks_at(&mut self, entry: &Entry) -> Result<(), Broken> {
        match entry {
            Entry::Opened { line, .. } => {
                self.lines.insert(*line, LineSeen::default());
                Ok(())
            }
            Entry::Stepped { line, step } => self.stepped(*line, step),
            Entry::Told { uaid, message, outcome } => {
                self.agent(*uaid).told(message, *outcome);
                Ok(())
            }
            Entry::Rests { uaid, record, rows } => self.agent(*uaid).rests(record, rows),
        }
    }

    fn stepped(&mut self, line: usize, step: &Step) -> Result<(), Broken> {
        match &step.event {
            Event::MessageReceived(ClientMessage::Hello { uaid: Some(uaid), .. }) => {
                self.line(line).uaid.get_or_insert(*uaid);
            }
            Event::MessageReceived(ClientMessage::Ack { updates }) => {
                for update in updates {
                    self.agent_of(line).map_or(Ok(()), |agent| agent.acked(update.id))?;
                }
            }
            Event::StoreAnswered { op, answer: Ok(StoreAnswer::Deleted(_)) } => {
                let deleted = self.line(line).deletes.remove(op).unwrap_or_default();
                if let Some(agent) = self.agent_of(line) {
                    deleted.into_iter().for_each(|id| agent.deleted(id));
                }
            }
            _ => {}
        }
        step.effects.iter().try_for_each(|effect| self.ordered(line, effect, step))
    }

    fn ordered(&mut self, line: usize, effect: &Effect, step: &Step) -> Result<(), Broken> {
        match effect {
            Effect::Send(ServerMessage::Hello { uaid, .. }) => self.greeted(line, *uaid, step),
            Effect::Send(ServerMessage::Notification(message)) => {
                self.agent_of(line).map_or(Ok(()), |agent| agent.sent(message))
            }
            Effect::SubmitStoreOp { op, operation: StoreOp::Delete { messages, .. } } => {
                let ids = messages.iter().map(|message| message.id).collect();
                self.line(line).deletes.insert(*op, ids);
                Ok(())
            }
            Effect::SubmitStoreOp { operation: StoreOp::UpdateMonth(step), .. } => {
                never_back(Some(step.from), step.to)
            }
            _ => Ok(()),
        }
    }

    /// A new uaid is assigned only if the store answered that the record or the channels are
    /// missing.
    fn greeted(&mut self, line: usize, uaid: Uaid, step: &Step) -> Result<(), Broken> {
        use StoreAnswer::{Channels, Registered as Record};
        let lost = self.line(line).uaid.replace(uaid).filter(|before| *before != uaid);
        let is_gone = matches!(
            &step.event,
            Event::StoreAnswered {
                answer: Ok(Record(RegisterResult::UnknownAgent) | Channels(None)),
                ..
            }
        );
        match lost.filter(|_| !is_gone) {
            Some(lost) => {
                let detail = format!("{lost} was lost because of {:?}", step.event);
                Err(Broken::Promise(Promise::SubscriptionKept.broken(detail)))
            }
            None => Ok(()),
        }
    }

    fn line(&mut self, line: usize) -> &mut LineSeen {
        self.lines.entry(line).or_default()
    }

    fn agent_of(&mut self, line: usize) -> Option<&mut AgentSeen> {
        self.line(line).uaid.map(|uaid| self.agent(uaid))
    }

    fn agent(&mut self, uaid: Uaid) -> &mut AgentSeen {
        self.agents.entry(uaid).or_default()
    }
}

impl AgentSeen {
    fn told(&mut self, message: &Message, outcome: Outcome) {
        self.messages.entry(message.id).or_default().is_told = true;
        match outcome {
            Outcome::Delivered if !message.ttl_is_zero() => {
                self.ledger.accepted(message);
                self.ledger.settled(message.id);
            }
            Outcome::Stored => self.ledger.accepted(message),
            _ => {}
        }
    }

    /// What was sent reached the agent if it acks it: frames on a socket that was cut are lost.
    fn sent(&mut self, message: &Message) -> Result<(), Broken> {
        self.messages.entry(message.id).or_default().sent = Some(message.clone());
        match self.ledger.is_settled(message.id) {
            true => self.ledger.delivered(message).map_err(Broken::Promise),
            false => Ok(()),
        }
    }

    fn acked(&mut self, id: MessageId) -> Result<(), Broken> {
        let seen = self.messages.entry(id).or_default();
        let is_first = !std::mem::replace(&mut seen.is_acked, true);
        match seen.sent.as_ref().filter(|_| is_first) {
            Some(message) if !self.ledger.is_settled(id) => {
                self.ledger.delivered(message).map_err(Broken::Promise)
            }
            _ => Ok(()),
        }
    }

    /// An ack is settled when its delete is durable and no endpoint is about to store the message.
    fn deleted(&mut self, id: MessageId) {
        let seen = self.messages.entry(id).or_default();
        if seen.is_acked && seen.is_told {
            self.ledger.settled(id);
        }
    }

    fn rests(&mut self, record: &RouterRecord, rows: &[(Month, MessageId)]) -> Result<(), Broken> {
        never_back(self.month.replace(record.curmonth), record.curmonth)?;
        self.ledger.rests(rows.iter().copied(), record.oldmonth).map_err(Broken::Promise)
    }
}

fn never_back(from: Option<Month>, to: Month) -> Result<(), Broken> {
    match from {
        Some(from) if from > to => Err(Broken::Month { from, to }),
        _ => Ok(()),
    }
}
