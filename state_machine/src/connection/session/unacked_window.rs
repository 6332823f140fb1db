//! Messages sent on this connection and not acked yet, in the order of sending.

use std::collections::VecDeque;

use crate::connection::effect::{Effect, Effects, PushAnswer};
use crate::ids::{MessageId, PushId};
use crate::message::MessageKey;
use crate::time::{Span, Time};

/// A message that waits for its ack.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Unacked {
    message: MessageKey,
    sent_at: Time,
    origin: Origin,
}

/// Where an unacked message came from, and so who has a copy of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    /// The endpoint, which waits for the answer to its push.
    Endpoint(PushId),
    /// Both: an endpoint waits that pushed the message again, and storage has the row of the first push.
    Both(PushId),
    /// The store, or an endpoint that was answered to store it.
    Store,
    /// A push with a TTL of zero: there is no other copy.
    ZeroTtl,
}

/// The unacked messages. The first `overdue` of them have waited for `ack_wait`: they are stored, or are about to be, and
/// hold nothing back.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct UnackedWindow {
    unacked: VecDeque<Unacked>,
    overdue: usize,
}

impl UnackedWindow {
    pub(super) fn is_empty(&self) -> bool {
        self.unacked.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.unacked.len()
    }

    /// Whether it has a message that may be in no table.
    pub(super) fn has_unstored(&self) -> bool {
        self.overdue < self.unacked.len()
    }

    pub(super) fn contains(&self, id: MessageId) -> bool {
        self.unacked.iter().any(|unacked| unacked.message.id == id)
    }

    pub(super) fn sent(&mut self, message: MessageKey, sent_at: Time, origin: Origin) {
        self.unacked.push_back(Unacked { message, sent_at, origin });
    }

    /// Notes that storage has a row of this message. Returns whether the message is unacked here.
    pub(super) fn note_row(&mut self, id: MessageId) -> bool {
        let Some(sent) = self.unacked.iter_mut().find(|unacked| unacked.message.id == id) else {
            return false;
        };
        if let Origin::Endpoint(push) = sent.origin {
            sent.origin = Origin::Both(push);
        }
        true
    }

    /// Removes a message that was acked. Acks mostly arrive in the order of sending.
    pub(super) fn acked(&mut self, id: MessageId) -> Option<(MessageKey, Origin)> {
        let at = self.unacked.iter().position(|unacked| unacked.message.id == id)?;
        let Unacked { message, origin, .. } = self.unacked.remove(at)?;
        if at < self.overdue {
            self.overdue -= 1;
        }
        Some((message, origin))
    }

    /// When the next message is overdue.
    pub(super) fn deadline(&self, ack_wait: Span) -> Option<Time> {
        self.unacked.get(self.overdue).map(|unacked| unacked.sent_at + ack_wait)
    }

    /// Answers the endpoints of overdue messages: they must store them.
    ///
    /// A message that was sent in the future is overdue too: the clock was set back, so its wait is unknown.
    pub(super) fn expire(&mut self, now: Time, ack_wait: Span, out: &mut Effects) {
        while let Some(unacked) = self.unacked.get_mut(self.overdue) {
            if unacked.sent_at <= now && now < unacked.sent_at + ack_wait {
                return;
            }
            unacked.hand_back(out);
            self.overdue += 1;
        }
    }

    /// Answers every endpoint that still waits.
    pub(super) fn close(&mut self, out: &mut Effects) {
        for unacked in &mut self.unacked {
            unacked.hand_back(out);
        }
    }
}

impl Unacked {
    fn hand_back(&mut self, out: &mut Effects) {
        if let Origin::Endpoint(push) | Origin::Both(push) = self.origin {
            self.origin = Origin::Store;
            let message = self.message.clone();
            out.push(Effect::AnswerPush { push, answer: PushAnswer::Unconfirmed, message });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Chid;

    #[test]
    fn a_clock_set_back_holds_no_message_for_longer_than_its_wait() {
        let message =
            MessageKey { id: MessageId::from_uuid_v7(2, false), chid: Chid([1; 16]), topic: None };
        let mut window = UnackedWindow::default();
        window.sent(message.clone(), Time(10_000), Origin::Endpoint(PushId(7)));
        let mut out = Effects::new();
        window.expire(Time(10_999), Span(1000), &mut out);
        assert!(window.has_unstored() && out.is_empty());
        window.expire(Time(9_999), Span(1000), &mut out);
        let answer = PushAnswer::Unconfirmed;
        assert_eq!(out, [Effect::AnswerPush { push: PushId(7), answer, message }]);
        assert!(!window.has_unstored());
    }
}
