//! A socket was accepted and nothing was said yet.

use std::sync::Arc;

use super::Cx;
use super::closed::Closed;
use super::effect::{CloseReason, Effect, PushAnswer};
use super::event::Event;
use super::identified::Identified;
use super::phase::Phase;
use super::session::{Session, nonsense_closes};
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
    pub(super) fn happened(self, event: Event, cx: &mut Cx<'_>) -> Phase {
        match event {
            Event::Said(ClientMessage::Hello { uaid, broadcasts }) => {
                self.hello(uaid, broadcasts, cx)
            }
            Event::Said(_) => Closed::because(CloseReason::NoHello, cx),
            Event::SaidNonsense(nonsense) => {
                let reason = nonsense_closes(&nonsense).unwrap_or(CloseReason::NoHello);
                Closed::because(reason, cx)
            }
            Event::HungUp => Closed::because(CloseReason::HungUp, cx),
            Event::ShutdownBegan => Closed::because(CloseReason::Shutdown, cx),
            Event::BroadcastsChanged(all) => Phase::AwaitingHello(Self { broadcasts: Some(all) }),
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
            | Event::ConnectedElsewhere { .. }
            | Event::MessageStored
            | Event::AnswerLost(_)
            | Event::StoreAnswered { .. } => Phase::AwaitingHello(self),
        }
    }

    /// It can be found from now on, before its record says so.
    fn hello(self, uaid: Option<Uaid>, broadcasts: Versions, cx: &mut Cx<'_>) -> Phase {
        let name = uaid.unwrap_or(cx.luck.fresh_uaid);
        cx.out.push(Effect::EnterRegistry { uaid: name });
        let mut session = Session::new(name, cx.now);
        session.subscribe(broadcasts, cx);
        if let Some(all) = self.broadcasts {
            session.learn_broadcasts(&all, cx);
        }
        match uaid {
            Some(_) => Identified::enter(session, cx),
            None => Identified::greet_new(session, cx),
        }
    }

    pub(super) fn answered(self, _: StoreAnswer, _: &mut Cx<'_>) -> Phase {
        Phase::AwaitingHello(self)
    }

    pub(super) fn proceed(self, _: &mut Cx<'_>) -> Phase {
        Phase::AwaitingHello(self)
    }
}
