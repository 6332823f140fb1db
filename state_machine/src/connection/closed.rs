//! The connection has ended: only a late push still gets an answer.

use super::effect::PushAnswer;
use super::event::Event;
use super::step::StepContext;

pub(super) fn on_event(event: Event, cx: &mut StepContext<'_>) {
    match event {
        // Neither "no such channel" nor silence: the endpoint stores the message. If there is a newer connection, the
        // endpoint finds it when it reads the record again.
        Event::PushArrived { push, message } => cx.answer(push, PushAnswer::Busy, message.key()),
        // The socket is closed, and everything that must be kept was submitted to the store.
        Event::MessageReceived(_)
        | Event::HelloOverLimit(_)
        | Event::InvalidFrame(_)
        | Event::PeerActive
        | Event::SocketClosed
        | Event::TimePassed
        | Event::Replaced
        | Event::ConnectedElsewhere { .. }
        | Event::ShutdownBegan
        | Event::AccessEnded
        | Event::MessageStored
        | Event::BroadcastsChanged(_)
        | Event::AckReplyLost(_)
        | Event::StoreAnswered { .. } => {}
    }
}
