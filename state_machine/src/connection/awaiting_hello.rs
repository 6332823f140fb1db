//! A socket was accepted and nothing was said yet.

use super::Cx;
use super::closed::Closed;
use super::effect::{CloseReason, Effect, PushAnswer};
use super::event::Event;
use super::identified::Identified;
use super::phase::Phase;
use super::session::nonsense_closes;
use crate::store::StoreAnswer;
use crate::wire::ClientMessage;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct AwaitingHello;

impl AwaitingHello {
    pub(super) fn happened(self, event: Event, cx: &mut Cx<'_>) -> Phase {
        match event {
            Event::Said(ClientMessage::Hello { uaid: Some(uaid) }) => Identified::enter(uaid, cx),
            Event::Said(ClientMessage::Hello { uaid: None }) => Identified::greet_new(cx),
            Event::Said(_) => Closed::because(CloseReason::NoHello, cx),
            Event::SaidNonsense(nonsense) => {
                let reason = nonsense_closes(&nonsense).unwrap_or(CloseReason::NoHello);
                Closed::because(reason, cx)
            }
            Event::HungUp => Closed::because(CloseReason::HungUp, cx),
            Event::ShutdownBegan => Closed::because(CloseReason::Shutdown, cx),
            // Nobody can know of a connection without a uaid; whoever thinks so is told to store.
            Event::PushArrived { push, message } => {
                let message = message.reference();
                cx.out.push(Effect::AnswerPush { push, answer: PushAnswer::Busy, message });
                Phase::AwaitingHello(self)
            }
            // Time is watched by the connection; the rest concerns a uaid, and there is none yet.
            Event::Heard
            | Event::TimePassed
            | Event::Replaced
            | Event::MessageStored
            | Event::AnswerLost(_)
            | Event::StoreAnswered { .. } => Phase::AwaitingHello(self),
        }
    }

    pub(super) fn answered(self, _: StoreAnswer, _: &mut Cx<'_>) -> Phase {
        Phase::AwaitingHello(self)
    }

    pub(super) fn proceed(self, _: &mut Cx<'_>) -> Phase {
        Phase::AwaitingHello(self)
    }
}
