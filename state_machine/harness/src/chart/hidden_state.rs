//! What the search remembers of the way to a state.

use std::collections::VecDeque;

use super::event_alphabet::START;
use state_machine::connection::{Effect, Event, PhaseName, PushAnswer};
use state_machine::ids::Chid;
use state_machine::message::Urgency;
use state_machine::month::Month;
use state_machine::store::{RegisterResult, StoreAnswer, StoreOp};
use state_machine::wire::{ClientMessage, ServerMessage, status};

/// What makes a difference later on and does not show in phase, deadline and orders.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct HiddenState {
    /// What the record said.
    months: Option<(Month, Option<Month>)>,
    /// How often the registration was refused.
    refusals: u8,
    /// Whether another node told, while registering, that the agent is there.
    is_elsewhere: bool,
    /// Commands without an answer, and their channels.
    commands: VecDeque<(&'static str, Option<Chid>)>,
    /// Endpoints without an answer.
    pushes: usize,
    is_pinged: bool,
    /// Whether storage has something new.
    is_nudged: bool,
    /// Whether there is something to delete.
    is_acked: bool,
    /// Whether rows may come that were acked.
    was_acked: bool,
    /// Whether the node said what the broadcasts are before hello, or is to say it after.
    is_told: bool,
    is_curious: bool,
    /// Whether it is told when they change.
    is_following: bool,
    /// Whether less urgent messages are held back.
    is_choosy: bool,
}

impl HiddenState {
    /// Remembers a step.
    pub(super) fn remember(&mut self, event: &Event, effects: &[Effect], after: PhaseName) {
        self.happened(event);
        self.is_told |= matches!(event, Event::BroadcastsChanged(_));
        self.is_told &= after == PhaseName::AwaitingHello;
        self.is_elsewhere |= is_elsewhere(event);
        self.is_elsewhere &= after == PhaseName::Identified;
        effects.iter().for_each(|effect| self.ordered(effect));
        if after == PhaseName::Closed {
            *self = Self::default();
        }
    }

    fn happened(&mut self, event: &Event) {
        match event {
            Event::MessageReceived(message) => self.said(message, event.name()),
            Event::InvalidFrame(_) | Event::PeerActive => self.is_pinged = false,
            Event::AckReplyLost(_) => self.is_acked = true,
            Event::MessageStored => self.is_nudged = true,
            Event::BroadcastsChanged(_) => self.is_curious = false,
            Event::PushArrived { .. } => self.pushes += 1,
            Event::StoreAnswered { answer: Ok(StoreAnswer::Registered(outcome)), .. } => {
                self.registered(outcome);
            }
            _ => {}
        }
    }

    fn said(&mut self, message: &ClientMessage, name: &'static str) {
        self.is_pinged = false;
        match message {
            ClientMessage::Ack { .. } => (self.is_acked, self.was_acked) = (true, true),
            ClientMessage::Register { chid, .. } | ClientMessage::Unregister { chid } => {
                self.commands.push_back((name, Some(*chid)));
            }
            ClientMessage::BroadcastSubscribe { .. } => self.is_curious = true,
            ClientMessage::Hello { broadcasts, .. } => self.is_curious = !broadcasts.is_empty(),
            ClientMessage::Urgency { min } => {
                self.is_choosy = *min > Urgency::VeryLow;
                self.commands.push_back((name, None));
            }
            _ => {}
        }
    }

    fn registered(&mut self, outcome: &RegisterResult) {
        match outcome {
            RegisterResult::Registered(record, _) => {
                self.months = Some((record.curmonth, record.oldmonth))
            }
            RegisterResult::Superseded(_) => self.refusals += 1,
            RegisterResult::UnknownAgent => {}
        }
    }

    fn ordered(&mut self, effect: &Effect) {
        match effect {
            Effect::Ping => self.is_pinged = true,
            Effect::SubscribeBroadcasts { .. } => self.is_following = true,
            Effect::AnswerPush { answer, .. } => {
                self.pushes = self.pushes.saturating_sub(1);
                self.is_nudged |= *answer == PushAnswer::Busy;
            }
            Effect::SubmitStoreOp { order: StoreOp::Fetch { .. }, .. } => self.is_nudged = false,
            Effect::SubmitStoreOp { order: StoreOp::Delete { .. }, .. } => self.is_acked = false,
            Effect::Send(ServerMessage::Registered { .. }) => drop(self.commands.pop_front()),
            Effect::Send(
                ServerMessage::RegisterRefused { status, .. }
                | ServerMessage::Unregistered { status, .. }
                | ServerMessage::UrgencySet { status },
            ) => self.command_answered(*status),
            _ => {}
        }
    }

    fn command_answered(&mut self, status: u16) {
        if status == status::UNAVAILABLE {
            self.commands.pop_back();
        } else {
            self.commands.pop_front();
        }
    }
}

/// Whether it tells of a connection that came later than any in the search.
fn is_elsewhere(event: &Event) -> bool {
    matches!(event, Event::ConnectedElsewhere { connected_at } if *connected_at > START)
}
