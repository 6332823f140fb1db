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
pub struct Push {
    /// For whom.
    pub uaid: Uaid,
    /// The message.
    pub message: Message,
    /// Who waits. Dropping it unanswered says *unreachable*.
    pub reply: oneshot::Sender<NodeAnswer>,
}

/// Look at your notices.
#[derive(Debug, Clone, Copy, actix::Message)]
#[rtype(result = "()")]
pub struct Wake;

/// What a connection must hear even if its mailbox is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
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

/// Notices that wait. They coalesce, and they cannot be lost: a connection whose mailbox is full
/// has messages to handle, and it looks here after each of them.
#[derive(Debug, Default)]
pub struct Notices {
    /// A bit for each kind that waits.
    kinds: AtomicU8,
    /// The latest time of those [`Notice::ConnectedElsewhere`] that wait, in ms of Unix time; else 0,
    /// which is before any connection.
    elsewhere_since: AtomicU64,
}

/// A connection's mailbox and notices.
#[derive(Debug, Clone)]
pub struct Reach {
    pushes: Recipient<Push>,
    wake: Recipient<Wake>,
    notices: Arc<Notices>,
}

/// The connection is gone.
#[derive(Debug)]
pub struct Gone;

impl Notices {
    /// Takes the next notice that waits.
    pub(crate) fn take(&self) -> Option<Notice> {
        let kinds = self.kinds.load(Ordering::Acquire);
        let next = KINDS.into_iter().find(|notice| kinds & notice.bit() != 0)?;
        self.kinds.fetch_and(!next.bit(), Ordering::AcqRel);
        Some(match next {
            // After its bit is cleared: of one that is left right now, the time is taken here or found later.
            Notice::ConnectedElsewhere { .. } => {
                let connected_at = Time(self.elsewhere_since.swap(0, Ordering::AcqRel));
                Notice::ConnectedElsewhere { connected_at }
            }
            notice => notice,
        })
    }

    /// Leaves a notice for whoever looks here next.
    pub(crate) fn leave(&self, notice: Notice) {
        if let Notice::ConnectedElsewhere { connected_at } = notice {
            self.elsewhere_since.fetch_max(connected_at.0, Ordering::AcqRel);
        }
        self.kinds.fetch_or(notice.bit(), Ordering::AcqRel);
    }
}

/// The kinds of notices, in the sequence in which they are taken.
const KINDS: [Notice; 5] = [
    Notice::MessageStored,
    Notice::Replaced,
    Notice::ConnectedElsewhere { connected_at: Time(0) },
    Notice::ShutdownBegan,
    Notice::BroadcastsChanged,
];

impl Notice {
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

impl Reach {
    /// How the actor with these mailboxes is reached.
    pub(crate) fn new(
        pushes: Recipient<Push>,
        wake: Recipient<Wake>,
        notices: Arc<Notices>,
    ) -> Self {
        Self { pushes, wake, notices }
    }

    /// Hands a push over. A full mailbox is a busy connection: the endpoint stores the message and
    /// the connection will look for it. Given back where the connection is gone.
    pub fn push(&self, push: Push) -> Result<(), Box<Push>> {
        match self.pushes.try_send(push) {
            Ok(()) => Ok(()),
            Err(SendError::Full(push)) => {
                self.notices.leave(Notice::MessageStored);
                answer(push.reply, PushAnswer::Busy);
                Ok(())
            }
            Err(SendError::Closed(push)) => Err(Box::new(push)),
        }
    }

    /// Leaves a notice.
    pub fn notify(&self, notice: Notice) -> Result<(), Gone> {
        self.notices.leave(notice);
        match self.wake.try_send(Wake) {
            Ok(()) | Err(SendError::Full(Wake)) => Ok(()),
            Err(SendError::Closed(Wake)) => Err(Gone),
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
        let notices = Notices::default();
        KINDS.into_iter().rev().for_each(|notice| notices.leave(notice));
        KINDS.into_iter().rev().for_each(|notice| notices.leave(notice));
        let taken: Vec<_> = std::iter::from_fn(|| notices.take()).collect();
        assert_eq!(taken, KINDS);
    }

    #[test]
    fn of_words_that_an_agent_is_elsewhere_the_latest_is_kept() {
        let notices = Notices::default();
        for connected_at in [7, 9, 8].map(Time) {
            notices.leave(Notice::ConnectedElsewhere { connected_at });
        }
        assert_eq!(notices.take(), Some(Notice::ConnectedElsewhere { connected_at: Time(9) }));
        assert_eq!(notices.take(), None);
        notices.leave(Notice::ConnectedElsewhere { connected_at: Time(5) });
        assert_eq!(notices.take(), Some(Notice::ConnectedElsewhere { connected_at: Time(5) }));
    }

    #[test]
    fn notices_take_two_words_of_an_idle_connection() {
        assert!(size_of::<Notices>() <= 16, "{} bytes", size_of::<Notices>());
    }
}
