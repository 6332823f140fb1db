//! It is over: only late pushes still get an answer.

use super::StepContext;
use super::effect::{CloseReason, Effect, PushAnswer};
use super::event::Event;
use super::phase::Phase;
use crate::store::StoreAnswer;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Closed;

impl Closed {
    pub(super) fn because(reason: CloseReason, cx: &mut StepContext<'_>) -> Phase {
        cx.out.push(Effect::Close(reason));
        Phase::Closed(Self)
    }

    pub(super) fn on_event(self, event: Event, cx: &mut StepContext<'_>) -> Phase {
        match event {
            // Not "no such channel", and not silence: the endpoint stores it, and finds the newer
            // connection, if there is one, at its second look.
            Event::PushArrived { push, message } => {
                let message = message.key();
                cx.out.push(Effect::AnswerPush { push, answer: PushAnswer::Busy, message });
            }
            // Nobody is there to be told, and everything that was to be kept is with the store.
            Event::MessageReceived(_)
            | Event::InvalidFrame(_)
            | Event::PeerActive
            | Event::SocketClosed
            | Event::TimePassed
            | Event::Replaced
            | Event::ConnectedElsewhere { .. }
            | Event::ShutdownBegan
            | Event::MessageStored
            | Event::BroadcastsChanged(_)
            | Event::AckReplyLost(_)
            | Event::StoreAnswered { .. } => {}
        }
        Phase::Closed(self)
    }

    pub(super) fn on_store_answer(self, _: StoreAnswer, _: &mut StepContext<'_>) -> Phase {
        Phase::Closed(self)
    }

    pub(super) fn advance(self, _: &mut StepContext<'_>) -> Phase {
        Phase::Closed(self)
    }
}
