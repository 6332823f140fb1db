//! A socket was accepted and nothing was said yet.

use std::sync::Arc;

use super::StepContext;
use super::closed::Closed;
use super::effect::{CloseReason, Effect, PushAnswer};
use super::event::Event;
use super::identified::Identified;
use super::phase::Phase;
use super::session::{Session, invalid_frame_closes};
use crate::broadcast::{Broadcasts, Versions};
use crate::ids::Uaid;
use crate::store::StoreAnswer;
use crate::wire::ClientMessage;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct AwaitingHello {
    /// What the node told right before a hello that asks for it.
    broadcasts: Option<Arc<Broadcasts>>,
}

impl AwaitingHello {
    pub(super) fn on_event(self, event: Event, cx: &mut StepContext<'_>) -> Phase {
        match event {
            Event::MessageReceived(ClientMessage::Hello { uaid, broadcasts }) => {
                self.hello(uaid, broadcasts, cx)
            }
            Event::MessageReceived(_) => Closed::because(CloseReason::NoHello, cx),
            Event::InvalidFrame(frame) => {
                let reason = invalid_frame_closes(&frame).unwrap_or(CloseReason::NoHello);
                Closed::because(reason, cx)
            }
            Event::SocketClosed => Closed::because(CloseReason::SocketClosed, cx),
            Event::ShutdownBegan => Closed::because(CloseReason::Shutdown, cx),
            Event::BroadcastsChanged(all) => Phase::AwaitingHello(Self { broadcasts: Some(all) }),
            // Nobody can know of a connection without a uaid; whoever thinks so is told to store.
            Event::PushArrived { push, message } => {
                let message = message.key();
                cx.out.push(Effect::AnswerPush { push, answer: PushAnswer::Busy, message });
                Phase::AwaitingHello(self)
            }
            // Time is watched by the connection; the rest concerns a uaid, and there is none yet.
            Event::PeerActive
            | Event::TimePassed
            | Event::Replaced
            | Event::ConnectedElsewhere { .. }
            | Event::MessageStored
            | Event::AckReplyLost(_)
            | Event::StoreAnswered { .. } => Phase::AwaitingHello(self),
        }
    }

    /// It can be found from now on, before its record says so.
    fn hello(self, uaid: Option<Uaid>, broadcasts: Versions, cx: &mut StepContext<'_>) -> Phase {
        let name = uaid.unwrap_or(cx.seed.fresh_uaid);
        cx.out.push(Effect::Register { uaid: name });
        let mut session = Session::new(name, cx.now);
        session.subscribe(broadcasts, cx);
        if let Some(all) = self.broadcasts {
            session.observe_broadcasts(&all, cx);
        }
        match uaid {
            Some(_) => Identified::enter(session, cx),
            None => Identified::send_hello_new(session, cx),
        }
    }

    pub(super) fn on_store_answer(self, _: StoreAnswer, _: &mut StepContext<'_>) -> Phase {
        Phase::AwaitingHello(self)
    }

    pub(super) fn advance(self, _: &mut StepContext<'_>) -> Phase {
        Phase::AwaitingHello(self)
    }
}
