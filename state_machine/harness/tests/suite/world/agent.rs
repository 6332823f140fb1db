//! A user agent: it records the messages it receives, and acks when a test asks for it.

use std::collections::{BTreeMap, BTreeSet};

use state_machine::wire::{AckUpdate, ServerMessage, status};
use state_machine::{Chid, MessageId, Uaid};

#[derive(Debug, Default)]
pub(crate) struct Agent {
    pub(crate) uaid: Option<Uaid>,
    /// The agent's current connection.
    pub(crate) connection: Option<usize>,
    /// Whether the agent received the answer to hello there.
    pub(crate) is_greeted: bool,
    /// Channels whose endpoints the agent has given to application servers.
    pub(crate) channels: BTreeSet<Chid>,
    /// Channels that the agent ever unregistered.
    pub(crate) given_up: BTreeSet<Chid>,
    /// How often each message was received.
    pub(crate) got: BTreeMap<MessageId, usize>,
    /// Messages without an ack, from any connection.
    pub(crate) unacked: Vec<AckUpdate>,
}

impl Agent {
    /// Handles a frame of the server. Returns the uaid that was replaced, if one was.
    pub(crate) fn receives(&mut self, message: &ServerMessage) -> Option<Uaid> {
        use ServerMessage::{Registered, Unregistered};
        match message {
            ServerMessage::Hello { uaid, .. } | ServerMessage::SimplePushHello { uaid } => {
                self.is_greeted = true;
                let lost = self.uaid.replace(*uaid).filter(|before| before != uaid);
                if lost.is_some() {
                    self.channels.clear();
                    self.unacked.clear();
                }
                return lost;
            }
            Registered { chid, .. } => {
                self.channels.insert(*chid);
            }
            Unregistered { chid, status: status::OK } => {
                self.channels.remove(chid);
            }
            ServerMessage::Notification(message) => {
                *self.got.entry(message.id).or_default() += 1;
                self.unacked.push(AckUpdate { chid: message.chid, id: message.id, code: None });
            }
            _ => {}
        }
        None
    }

    /// Removes and returns the acks that it sends now: the nth, or all.
    pub(crate) fn acks(&mut self, nth: Option<usize>) -> Vec<AckUpdate> {
        match nth {
            None => std::mem::take(&mut self.unacked),
            Some(_) if self.unacked.is_empty() => Vec::new(),
            Some(nth) => vec![self.unacked.remove(nth % self.unacked.len())],
        }
    }
}
