//! The handle by which the rest of the process reaches a client actor.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use actix::dev::SendError;
use state_machine::connection::PushAnswer;
use state_machine::delivery::NodeAnswer;
use state_machine::{Message, Time, Uaid};
use tokio::sync::oneshot;

use crate::mailbox::BoundedRecipient;
use crate::observe::ClientState;

/// A push that is delivered directly, with the way back to its endpoint.
#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
pub struct DirectPush {
    pub uaid: Uaid,
    pub message: Message,
    /// Takes the answer. Dropped without one, the endpoint reads *unreachable*.
    pub reply: oneshot::Sender<NodeAnswer>,
}

/// A message for a client actor.
#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
pub enum ClientMail {
    Push(DirectPush),
    /// Look at the [`Signals`].
    SignalsPending,
    /// Report the client's state.
    Observe(oneshot::Sender<ClientState>),
}

/// A notification that reaches a client even if its mailbox is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// A message was stored for the agent.
    MessageStored,
    /// The agent connected to this node again.
    Replaced,
    /// The agent connected to another node.
    ConnectedElsewhere {
        connected_at: Time,
    },
    /// The node shuts down.
    ShutdownBegan,
    BroadcastsChanged,
}

/// The pending signals of a client. They coalesce, and none is lost: a client whose mailbox is full
/// has messages to handle, and looks here after each of them.
#[derive(Debug, Default)]
pub struct Signals {
    /// One bit for each pending kind.
    kinds: AtomicU8,
    /// The latest time of the pending [`Signal::ConnectedElsewhere`], in Unix milliseconds; 0 if
    /// none is pending.
    elsewhere_since: AtomicU64,
}

/// The handle of a client actor.
#[derive(Debug, Clone)]
pub struct ClientHandle {
    mail: BoundedRecipient<ClientMail>,
    signals: Arc<Signals>,
}

/// The client actor has ended.
#[derive(Debug)]
pub struct Disconnected;

impl Signals {
    /// Takes the next pending signal.
    pub(crate) fn take(&self) -> Option<Signal> {
        let kinds = self.kinds.load(Ordering::Acquire);
        let next = KINDS.into_iter().find(|signal| kinds & signal.bit() != 0)?;
        self.kinds.fetch_and(!next.bit(), Ordering::AcqRel);
        Some(match next {
            // After the bit is cleared: a signal raised meanwhile has its time taken here or by the
            // next call.
            Signal::ConnectedElsewhere { .. } => {
                let connected_at = Time(self.elsewhere_since.swap(0, Ordering::AcqRel));
                Signal::ConnectedElsewhere { connected_at }
            }
            signal => signal,
        })
    }

    /// Makes a signal pending.
    pub(crate) fn raise(&self, signal: Signal) {
        if let Signal::ConnectedElsewhere { connected_at } = signal {
            self.elsewhere_since.fetch_max(connected_at.0, Ordering::AcqRel);
        }
        self.kinds.fetch_or(signal.bit(), Ordering::AcqRel);
    }
}

/// The kinds of signals, in the order in which they are taken.
const KINDS: [Signal; 5] = [
    Signal::MessageStored,
    Signal::Replaced,
    Signal::ConnectedElsewhere { connected_at: Time(0) },
    Signal::ShutdownBegan,
    Signal::BroadcastsChanged,
];

impl Signal {
    fn bit(self) -> u8 {
        match self {
            Self::MessageStored => 1,
            Self::Replaced => 2,
            Self::ConnectedElsewhere { .. } => 4,
            Self::ShutdownBegan => 8,
            Self::BroadcastsChanged => 16,
        }
    }
}

impl ClientHandle {
    pub(crate) fn new(mail: BoundedRecipient<ClientMail>, signals: Arc<Signals>) -> Self {
        Self { mail, signals }
    }

    /// Delivers a push. If the mailbox is full, the endpoint is answered *busy* and stores the
    /// message, and the client looks for it in storage. Returns the push if the client has ended.
    pub fn deliver(&self, push: DirectPush) -> Result<(), Box<DirectPush>> {
        match self.mail.try_send(ClientMail::Push(push)) {
            Err(SendError::Full(ClientMail::Push(push))) => {
                self.signals.raise(Signal::MessageStored);
                answer(push.reply, PushAnswer::Busy);
                Ok(())
            }
            Err(SendError::Closed(ClientMail::Push(push))) => Err(Box::new(push)),
            // What is sent is a push, and so is what is returned.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    pub fn signal(&self, signal: Signal) -> Result<(), Disconnected> {
        self.signals.raise(signal);
        match self.mail.try_send(ClientMail::SignalsPending) {
            Ok(()) | Err(SendError::Full(_)) => Ok(()),
            Err(SendError::Closed(_)) => Err(Disconnected),
        }
    }

    /// Asks the client for its state. The reply is dropped if the mailbox is full or the client has
    /// ended.
    pub(crate) fn observe(&self, reply: oneshot::Sender<ClientState>) {
        drop(self.mail.try_send(ClientMail::Observe(reply)));
    }
}

/// Answers an endpoint. Returns whether it was still waiting.
pub(crate) fn answer(reply: oneshot::Sender<NodeAnswer>, push_answer: PushAnswer) -> bool {
    let node_answer = match push_answer {
        PushAnswer::Accepted => NodeAnswer::Accepted,
        PushAnswer::Unconfirmed => NodeAnswer::Unconfirmed,
        PushAnswer::Busy => NodeAnswer::Busy,
        PushAnswer::NoSuchChannel => NodeAnswer::NoSuchChannel,
    };
    reply.send(node_answer).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_of_all_kinds_are_pending_together_and_each_is_taken_once() {
        let signals = Signals::default();
        KINDS.into_iter().rev().for_each(|signal| signals.raise(signal));
        KINDS.into_iter().rev().for_each(|signal| signals.raise(signal));
        let taken: Vec<_> = std::iter::from_fn(|| signals.take()).collect();
        assert_eq!(taken, KINDS);
    }

    #[test]
    fn the_latest_time_of_connected_elsewhere_is_kept() {
        let signals = Signals::default();
        for connected_at in [7, 9, 8].map(Time) {
            signals.raise(Signal::ConnectedElsewhere { connected_at });
        }
        assert_eq!(signals.take(), Some(Signal::ConnectedElsewhere { connected_at: Time(9) }));
        assert_eq!(signals.take(), None);
        signals.raise(Signal::ConnectedElsewhere { connected_at: Time(5) });
        assert_eq!(signals.take(), Some(Signal::ConnectedElsewhere { connected_at: Time(5) }));
    }

    #[test]
    fn signals_take_16_bytes_of_an_idle_connection() {
        assert!(size_of::<Signals>() <= 16, "{} bytes", size_of::<Signals>());
    }
}
