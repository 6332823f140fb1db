//! How a connection is reached from elsewhere in the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use actix::Recipient;
use actix::dev::SendError;
use state_machine::connection::PushAnswer;
use state_machine::delivery::NodeAnswer;
use state_machine::{Message, Time, Uaid};
use tokio::sync::oneshot;

/// A push for a connection, with the way back to its endpoint.
#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
pub struct DirectPush {
    /// For whom.
    pub uaid: Uaid,
    /// The message.
    pub message: Message,
    /// Who waits. Dropping it unanswered says *unreachable*.
    pub reply: oneshot::Sender<NodeAnswer>,
}

/// Look at your signals.
#[derive(Debug, Clone, Copy, actix::Message)]
#[rtype(result = "()")]
pub struct SignalsPending;

/// What a connection must hear even if its mailbox is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// A message was stored for it.
    MessageStored,
    /// Its user agent connected again, to this node.
    Replaced,
    /// Its user agent is connected to another node.
    ConnectedElsewhere {
        /// Since when.
        connected_at: Time,
    },
    /// The node is shutting down.
    ShutdownBegan,
    /// Broadcasts changed.
    BroadcastsChanged,
}

/// Signals that wait. They coalesce, and they cannot be lost: a connection whose mailbox is full
/// has messages to handle, and it looks here after each of them.
#[derive(Debug, Default)]
pub struct Signals {
    /// A bit for each kind that waits.
    kinds: AtomicU8,
    /// The latest time of those [`Signal::ConnectedElsewhere`] that wait, in ms of Unix time; else 0,
    /// which is before any connection.
    elsewhere_since: AtomicU64,
}

/// A connection's mailbox and signals.
#[derive(Debug, Clone)]
pub struct ClientHandle {
    pushes: Recipient<DirectPush>,
    wake: Recipient<SignalsPending>,
    signals: Arc<Signals>,
}

/// The connection is gone.
#[derive(Debug)]
pub struct Disconnected;

impl Signals {
    /// Takes the next signal that waits.
    pub(crate) fn take(&self) -> Option<Signal> {
        let kinds = self.kinds.load(Ordering::Acquire);
        let next = KINDS.into_iter().find(|signal| kinds & signal.bit() != 0)?;
        self.kinds.fetch_and(!next.bit(), Ordering::AcqRel);
        Some(match next {
            // After its bit is cleared: of one that is left right now, the time is taken here or found later.
            Signal::ConnectedElsewhere { .. } => {
                let connected_at = Time(self.elsewhere_since.swap(0, Ordering::AcqRel));
                Signal::ConnectedElsewhere { connected_at }
            }
            signal => signal,
        })
    }

    /// Leaves a signal for whoever looks here next.
    pub(crate) fn raise(&self, signal: Signal) {
        if let Signal::ConnectedElsewhere { connected_at } = signal {
            self.elsewhere_since.fetch_max(connected_at.0, Ordering::AcqRel);
        }
        self.kinds.fetch_or(signal.bit(), Ordering::AcqRel);
    }
}

/// The kinds of signals, in the sequence in which they are taken.
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
    /// How the actor with these mailboxes is reached.
    pub(crate) fn new(
        pushes: Recipient<DirectPush>,
        wake: Recipient<SignalsPending>,
        signals: Arc<Signals>,
    ) -> Self {
        Self { pushes, wake, signals }
    }

    /// Hands a push over. A full mailbox is a busy connection: the endpoint stores the message and
    /// the connection will look for it. Given back where the connection is gone.
    pub fn deliver(&self, push: DirectPush) -> Result<(), Box<DirectPush>> {
        match self.pushes.try_send(push) {
            Ok(()) => Ok(()),
            Err(SendError::Full(push)) => {
                self.signals.raise(Signal::MessageStored);
                answer(push.reply, PushAnswer::Busy);
                Ok(())
            }
            Err(SendError::Closed(push)) => Err(Box::new(push)),
        }
    }

    /// Leaves a signal.
    pub fn signal(&self, signal: Signal) -> Result<(), Disconnected> {
        self.signals.raise(signal);
        match self.wake.try_send(SignalsPending) {
            Ok(()) | Err(SendError::Full(SignalsPending)) => Ok(()),
            Err(SendError::Closed(SignalsPending)) => Err(Disconnected),
        }
    }
}

/// Answers an endpoint; whether it was still there.
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
    fn notices_of_every_kind_wait_side_by_side_and_each_is_taken_once() {
        let signals = Signals::default();
        KINDS.into_iter().rev().for_each(|signal| signals.raise(signal));
        KINDS.into_iter().rev().for_each(|signal| signals.raise(signal));
        let taken: Vec<_> = std::iter::from_fn(|| signals.take()).collect();
        assert_eq!(taken, KINDS);
    }

    #[test]
    fn of_words_that_an_agent_is_elsewhere_the_latest_is_kept() {
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
    fn notices_take_two_words_of_an_idle_connection() {
        assert!(size_of::<Signals>() <= 16, "{} bytes", size_of::<Signals>());
    }
}
