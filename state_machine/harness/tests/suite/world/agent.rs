//! A user agent: remembers what it was told, acks when it is made to.

use std::collections::{BTreeMap, BTreeSet};

use state_machine::wire::{AckUpdate, ServerMessage, status};
use state_machine::{Chid, MessageId, Uaid};

#[derive(Debug, Default)]
pub(crate) struct Agent {
    pub(crate) uaid: Option<Uaid>,
    /// The connection it talks on.
    pub(crate) line: Option<usize>,
    /// Whether hello was answered there.
    pub(crate) is_greeted: bool,
    /// Channels whose endpoints it has handed out.
    pub(crate) channels: BTreeSet<Chid>,
    /// Channels it has ever wanted to be rid of.
    pub(crate) given_up: BTreeSet<Chid>,
    /// How often each message came.
    pub(crate) got: BTreeMap<MessageId, usize>,
    /// What came and was not acked, on whatever connection.
    pub(crate) unacked: Vec<AckUpdate>,
}

impl Agent {
    /// Takes in what the server says. Gives back the uaid that was lost, if one was.
    pub(crate) fn hears(&mut self, message: &ServerMessage) -> Option<Uaid> {
        use ServerMessage::{Registered, Unregistered};
        match message {
            ServerMessage::Hello { uaid, .. } => {
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
                self.unacked.push(AckUpdate { chid: message.chid, id: message.id });
            }
            _ => {}
        }
        None
    }

    /// Takes the acks out that it sends now: the nth, or all.
    pub(crate) fn acks(&mut self, nth: Option<usize>) -> Vec<AckUpdate> {
        match nth {
            None => std::mem::take(&mut self.unacked),
            Some(_) if self.unacked.is_empty() => Vec::new(),
            Some(nth) => vec![self.unacked.remove(nth % self.unacked.len())],
        }
    }
}
