//! The socket was accepted and no message arrived.

use std::sync::Arc;

use super::StepContext;
use super::effect::{CloseReason, Effect, PushAnswer};
use super::event::Event;
use super::phase::{Open, Phase};
use super::session::{Session, close_reason_of};
use super::stage::{Identified, Ready};
use crate::broadcast::{Broadcasts, Versions};
use crate::ids::Uaid;
use crate::wire::ClientMessage;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct AwaitingHello {
    /// The broadcasts as of now, for a hello that names some.
    broadcasts: Option<Arc<Broadcasts>>,
}

impl AwaitingHello {
    pub(super) fn on_event(self, event: Event, cx: &mut StepContext<'_>) -> Phase {
        let reason = match event {
            Event::MessageReceived(ClientMessage::Hello { uaid, broadcasts, use_webpush }) => {
                return self.identify(uaid, broadcasts, use_webpush, cx);
            }
            Event::HelloOverLimit(reason) => reason,
            Event::MessageReceived(_) => CloseReason::NoHello,
            Event::InvalidFrame(frame) => close_reason_of(&frame).unwrap_or(CloseReason::NoHello),
            Event::SocketClosed => CloseReason::SocketClosed,
            Event::AccessEnded => CloseReason::AccessEnded,
            Event::ShutdownBegan => CloseReason::Shutdown,
            Event::BroadcastsChanged(all) => {
                return Phase::AwaitingHello(Self { broadcasts: Some(all) });
            }
            // No endpoint can know of a connection without a uaid. If one pushes nevertheless, it stores the message.
            Event::PushArrived { push, message } => {
                cx.answer(push, PushAnswer::Busy, message.key());
                return Phase::AwaitingHello(self);
            }
            // The connection watches the time; the others concern a uaid, and there is none yet.
            Event::PeerActive
            | Event::TimePassed
            | Event::Replaced
            | Event::ConnectedElsewhere { .. }
            | Event::MessageStored
            | Event::AckReplyLost(_)
            | Event::StoreAnswered { .. } => return Phase::AwaitingHello(self),
        };
        Phase::AwaitingHello(self).close(reason, cx)
    }

    /// Registers the connection on this node, before its record names the node.
    ///
    /// A uaid of another access token is that of another person, and counts as none.
    fn identify(
        self,
        uaid: Option<Uaid>,
        broadcasts: Versions,
        use_webpush: bool,
        cx: &mut StepContext<'_>,
    ) -> Phase {
        let uaid = uaid.filter(|uaid| uaid.access() == cx.seed.fresh_uaid.access());
        let is_simplepush = cx.config.simplepush && !use_webpush;
        let name = uaid.unwrap_or(cx.seed.fresh_uaid);
        cx.out.push(Effect::Register { uaid: name });
        let mut session = Box::new(Session::new(name, cx.now, is_simplepush));
        // SimplePush has no broadcasts.
        if !is_simplepush {
            session.subscribe(broadcasts, cx);
        }
        if let Some(all) = self.broadcasts {
            session.observe_broadcasts(&all, cx);
        }
        let stage = match uaid {
            Some(_) => Identified::begin(&mut session, cx),
            None => Ready::welcome(&mut session, cx),
        };
        Phase::Open(Open { session, stage })
    }
}
