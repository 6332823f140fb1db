//! It is over: only late pushes still get an answer.

use super::Cx;
use super::effect::{CloseReason, Effect, PushAnswer};
use super::event::Event;
use super::phase::Phase;
use crate::store::StoreAnswer;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Closed;

impl Closed {
    pub(super) fn because(reason: CloseReason, cx: &mut Cx<'_>) -> Phase {
        cx.out.push(Effect::Close(reason));
        Phase::Closed(Self)
    }

    pub(super) fn happened(self, event: Event, cx: &mut Cx<'_>) -> Phase {
        match event {
            // Not "no such channel", and not silence: the endpoint stores it, and finds the newer
            // connection, if there is one, at its second look.
            Event::PushArrived { push, message } => {
                let message = message.reference();
                cx.out.push(Effect::AnswerPush { push, answer: PushAnswer::Busy, message });
            }
            // Nobody is there to be told, and everything that was to be kept is with the store.
            Event::Said(_)
            | Event::SaidNonsense(_)
            | Event::Heard
            | Event::HungUp
            | Event::TimePassed
            | Event::Replaced
            | Event::ConnectedElsewhere { .. }
            | Event::ShutdownBegan
            | Event::MessageStored
            | Event::BroadcastsChanged(_)
            | Event::AnswerLost(_)
            | Event::StoreAnswered { .. } => {}
        }
        Phase::Closed(self)
    }

    pub(super) fn answered(self, _: StoreAnswer, _: &mut Cx<'_>) -> Phase {
        Phase::Closed(self)
    }

    pub(super) fn proceed(self, _: &mut Cx<'_>) -> Phase {
        Phase::Closed(self)
    }
}
