//! How a connection is reached from elsewhere in the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use actix::Recipient;
use actix::dev::SendError;
use state_machine::connection::PushAnswer;
use state_machine::delivery::NodeAnswer;
use state_machine::{Message, Uaid};
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
    MessageStored = 1,
    /// Its user agent connected again.
    Replaced = 2,
    /// The node is shutting down.
    ShutdownBegan = 4,
    /// Broadcasts changed.
    BroadcastsChanged = 8,
}

impl Notice {
    const ALL: [Self; 4] =
        [Self::MessageStored, Self::Replaced, Self::ShutdownBegan, Self::BroadcastsChanged];
}

/// Notices that wait. They coalesce, and they cannot be lost: a connection whose mailbox is full
/// has messages to handle, and it looks here after each of them.
#[derive(Debug, Default)]
pub struct Notices(AtomicU8);

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
        let bits = self.0.load(Ordering::Acquire);
        let notice = Notice::ALL.into_iter().find(|notice| bits & *notice as u8 != 0)?;
        self.0.fetch_and(!(notice as u8), Ordering::AcqRel);
        Some(notice)
    }

    /// Leaves a notice for whoever looks here next.
    pub(crate) fn leave(&self, notice: Notice) {
        self.0.fetch_or(notice as u8, Ordering::AcqRel);
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
