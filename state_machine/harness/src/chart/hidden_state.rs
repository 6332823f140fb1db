//! The part of a path's history that the search keeps with a state.

use std::collections::VecDeque;

use super::event_alphabet::START;
use state_machine::connection::{Effect, Event, PhaseName, PushAnswer};
use state_machine::ids::Chid;
use state_machine::message::Urgency;
use state_machine::month::Month;
use state_machine::store::{RegisterResult, StoreAnswer, StoreOp};
use state_machine::wire::{ClientMessage, ServerMessage, status};

/// State that changes later behaviour and is not visible in phase, deadline and operations.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct HiddenState {
    /// The months in the router record.
    months: Option<(Month, Option<Month>)>,
    /// How often the store rejected the registration.
    refusals: u8,
    /// Whether another node sent a notification, during registration, that the agent is connected
    /// there.
    is_elsewhere: bool,
    /// Unanswered commands of the agent, and their channels.
    commands: VecDeque<(&'static str, Option<Chid>)>,
    /// Pushes whose endpoints have no answer.
    pushes: usize,
    is_pinged: bool,
    /// Whether a message was stored since the last read of storage.
    is_nudged: bool,
    /// Whether there are acked messages to delete.
    is_acked: bool,
    /// Whether a read may still return rows that were acked.
    was_acked: bool,
    /// Whether the node sent the broadcasts before hello, or must send them after it.
    is_told: bool,
    is_curious: bool,
    /// Whether the connection is subscribed to changes of the broadcasts.
    is_following: bool,
    /// Whether messages below some urgency are held back.
    is_choosy: bool,
}

impl HiddenState {
    /// Updates the hidden state with one step of the connection.
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
                self.months = Some((record.curmonth, record.oldmonth));
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

/// Whether the event reports a connection that is later than any in the search.
fn is_elsewhere(event: &Event) -> bool {
    matches!(event, Event::ConnectedElsewhere { connected_at } if *connected_at > START)
}
