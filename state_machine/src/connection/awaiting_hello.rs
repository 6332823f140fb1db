//! The socket was accepted and no message arrived.

use std::sync::Arc;

use super::effect::{CloseReason, Effect, PushAnswer};
use super::event::Event;
use super::session::{Session, close_reason_of};
use super::stage::Stage;
use super::step::StepContext;
use crate::broadcast::{Broadcasts, Versions};
use crate::ids::Uaid;
use crate::wire::ClientMessage;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct AwaitingHello {
    /// The broadcasts as of now, for a hello that names some.
    broadcasts: Option<Arc<Broadcasts>>,
}

/// What follows for a connection that waits for hello.
pub(super) enum AfterHello {
    Stay,
    Open(Box<Session>, Stage),
    Close(CloseReason),
}

impl AwaitingHello {
    pub(super) fn on_event(&mut self, event: Event, cx: &mut StepContext<'_>) -> AfterHello {
        AfterHello::Close(match event {
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
                self.broadcasts = Some(all);
                return AfterHello::Stay;
            }
            // No endpoint can know of a connection without a uaid. If one pushes nevertheless, it stores the message.
            Event::PushArrived { push, message } => {
                cx.answer(push, PushAnswer::Busy, message.key());
                return AfterHello::Stay;
            }
            // The connection watches the time; the others concern a uaid, and there is none yet.
            Event::PeerActive
            | Event::TimePassed
            | Event::Replaced
            | Event::ConnectedElsewhere { .. }
            | Event::MessageStored
            | Event::AckReplyLost(_)
            | Event::StoreAnswered { .. } => return AfterHello::Stay,
        })
    }

    /// Registers the connection on this node, before its record names the node.
    ///
    /// A uaid of another access token is that of another person, and counts as none.
    fn identify(
        &self,
        uaid: Option<Uaid>,
        broadcasts: Versions,
        use_webpush: bool,
        cx: &mut StepContext<'_>,
    ) -> AfterHello {
        let uaid = uaid.filter(|uaid| uaid.access() == cx.seed.fresh_uaid.access());
        let is_simplepush = cx.config.simplepush && !use_webpush;
        let name = uaid.unwrap_or(cx.seed.fresh_uaid);
        cx.out.push(Effect::Register { uaid: name });
        let mut session = Box::new(Session::new(name, cx.now, is_simplepush));
        // SimplePush has no broadcasts.
        if !is_simplepush {
            session.subscribe(broadcasts, cx);
        }
        if let Some(all) = &self.broadcasts {
            session.observe_broadcasts(all, cx);
        }
        let stage = match uaid {
            Some(_) => Stage::identify(&mut session, cx),
            None => Stage::welcome(&mut session, cx),
        };
        AfterHello::Open(session, stage)
    }
}
