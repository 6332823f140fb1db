//! What the steps of a connection share: their arguments, and what a connection waits for.

use std::fmt;

use super::config::{Config, ConnectionSeed};
use super::effect::{Effect, Effects, PushAnswer};
use crate::ids::{Chid, MessageId, PushId};
use crate::message::MessageKey;
use crate::time::Time;
use crate::wire::ServerMessage;

/// The reason for a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wait {
    /// The first message is due.
    Hello,
    /// An ack is due; without it the endpoint stores the message.
    Ack,
    /// The TTL of an unacked message ends.
    Expiry,
    /// The acks of the old month are due; without them the messages are moved.
    Drain,
    /// A sign of life of the peer is due.
    Keepalive,
    /// The session reaches its age limit.
    SessionEnd,
    /// A scan may start again, which leaves rows of an unacked channel in storage.
    Scan,
    /// The page behind a small first one is read, though no ack has arrived.
    Page,
    /// The next storage scan is due.
    Recheck,
    /// A failed store operation is submitted again.
    Retry,
}

/// A message that was sent and not acked, as a trace shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UnackedMessage {
    pub id: MessageId,
    pub chid: Chid,
    /// When it was sent; none if its ack is overdue.
    pub sent_at: Option<Time>,
}

/// The arguments of a step besides the event, and its effects so far.
pub(super) struct StepContext<'a> {
    pub(super) now: Time,
    pub(super) config: &'a Config,
    pub(super) seed: ConnectionSeed,
    pub(super) out: &'a mut Effects,
}

impl StepContext<'_> {
    pub(super) fn send(&mut self, message: ServerMessage) {
        self.out.push(Effect::Send(message));
    }

    pub(super) fn answer(&mut self, push: PushId, answer: PushAnswer, message: MessageKey) {
        self.out.push(Effect::AnswerPush { push, answer, message });
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hello => "hello timeout",
            Self::Ack => "ack wait",
            Self::Expiry => "message expiry",
            Self::Drain => "drain wait",
            Self::Keepalive => "keepalive",
            Self::SessionEnd => "session end",
            Self::Scan => "next scan",
            Self::Page => "next page",
            Self::Recheck => "storage recheck",
            Self::Retry => "store retry",
        })
    }
}
