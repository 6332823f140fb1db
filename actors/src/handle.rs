//! The handle by which the rest of the process reaches a client actor, and its mailbox.
//!
//! An address of actix takes 96 bytes for as long as it exists, and a message two allocations. A handle is a pointer.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use futures_util::Stream;
use parking_lot::{Mutex, MutexGuard};
use state_machine::connection::PushAnswer;
use state_machine::delivery::NodeAnswer;
use state_machine::{Message, Time, Uaid};
use tokio::sync::oneshot;

use crate::mailbox::MailboxState;
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
#[derive(Debug)]
pub enum ClientMail {
    Push(DirectPush),
    /// Look at the clock and at the [`Signals`].
    Wake,
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
    /// The access token of the agent was revoked or replaced, or has expired.
    AccessEnded,
}

/// The pending signals of a client. They coalesce, and none is lost: a client looks here after each
/// message.
#[derive(Debug, Default)]
pub struct Signals {
    /// One bit for each pending kind.
    kinds: AtomicU8,
    /// The latest time of the pending [`Signal::ConnectedElsewhere`], in Unix milliseconds; 0 if
    /// none is pending.
    elsewhere_since: AtomicU64,
}

/// The mailbox of a client actor.
#[derive(Debug)]
pub(crate) struct ClientMailbox {
    pub(crate) signals: Signals,
    mail: Mutex<Mail>,
}

#[derive(Debug, Default)]
struct Mail {
    /// The bound of `queue`, in messages.
    max: u32,
    /// None while it would be empty.
    #[expect(clippy::box_collection, reason = "it is mostly absent, and a pointer is smaller")]
    queue: Option<Box<VecDeque<ClientMail>>>,
    /// Whether [`ClientMail::Wake`] follows the queue.
    is_woken: bool,
    /// The client has ended.
    is_closed: bool,
    client: Option<Waker>,
}

/// The handle of a client actor.
#[derive(Debug, Clone)]
pub struct ClientHandle(Arc<ClientMailbox>);

/// What arrives for a client, for the client itself.
pub(crate) struct Inbox(pub(crate) Arc<ClientMailbox>);

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

    /// Whether a signal is pending that ends every session.
    fn must_end(&self) -> bool {
        let ends = Signal::Replaced.bit() | Signal::ShutdownBegan.bit() | Signal::AccessEnded.bit();
        self.kinds.load(Ordering::Acquire) & ends != 0
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
const KINDS: [Signal; 6] = [
    Signal::MessageStored,
    Signal::Replaced,
    Signal::ConnectedElsewhere { connected_at: Time(0) },
    Signal::ShutdownBegan,
    Signal::BroadcastsChanged,
    Signal::AccessEnded,
];

impl Signal {
    fn bit(self) -> u8 {
        match self {
            Self::MessageStored => 1,
            Self::Replaced => 2,
            Self::ConnectedElsewhere { .. } => 4,
            Self::ShutdownBegan => 8,
            Self::BroadcastsChanged => 16,
            Self::AccessEnded => 32,
        }
    }
}

impl ClientMailbox {
    /// A mailbox for `max` messages.
    pub(crate) fn new(max: usize) -> Self {
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        Self { signals: Signals::default(), mail: Mutex::new(Mail { max, ..Mail::default() }) }
    }

    pub(crate) fn state(&self) -> MailboxState {
        let mail = self.mail.lock();
        MailboxState { length: mail.length(), max: mail.max as usize }
    }

    /// Whether the client must end though its peer does not read. If not, the task is woken by what arrives next.
    pub(crate) fn poll_must_end(&self, cx: &Context<'_>) -> bool {
        self.mail.lock().client = Some(cx.waker().clone());
        self.signals.must_end()
    }

    /// Lets the client look at the clock and at its signals, even if the mailbox is full.
    pub(crate) fn wake(&self) -> Result<(), Disconnected> {
        let mut mail = self.mail.lock();
        if mail.is_closed {
            return Err(Disconnected);
        }
        mail.is_woken = true;
        wake_client(mail);
        Ok(())
    }

    /// The client has ended: what is in the mailbox is dropped.
    pub(crate) fn close(&self) {
        let mut mail = self.mail.lock();
        mail.is_closed = true;
        let (queue, client) = (std::mem::take(&mut mail.queue), mail.client.take());
        drop(mail);
        drop((queue, client));
    }

    /// Locks the mailbox, if there is room for a message.
    fn room(&self) -> Result<MutexGuard<'_, Mail>, NoRoom> {
        let mail = self.mail.lock();
        if mail.is_closed {
            return Err(NoRoom::Closed);
        }
        if mail.length() >= mail.max as usize {
            return Err(NoRoom::Full);
        }
        Ok(mail)
    }
}

enum NoRoom {
    Full,
    /// The client has ended.
    Closed,
}

fn send(mut mail: MutexGuard<'_, Mail>, message: ClientMail) {
    // Mostly it is the only one.
    let queue = mail.queue.get_or_insert_with(|| Box::new(VecDeque::with_capacity(1)));
    queue.push_back(message);
    wake_client(mail);
}

fn wake_client(mut mail: MutexGuard<'_, Mail>) {
    let client = mail.client.take();
    drop(mail);
    if let Some(client) = client {
        client.wake();
    }
}

impl Mail {
    fn length(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.len())
    }

    fn take(&mut self) -> Option<ClientMail> {
        let message = self.queue.as_mut().and_then(|queue| queue.pop_front());
        self.queue.take_if(|queue| queue.is_empty());
        message.or_else(|| std::mem::take(&mut self.is_woken).then_some(ClientMail::Wake))
    }
}

impl Stream for Inbox {
    type Item = ClientMail;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ClientMail>> {
        let mut mail = self.0.mail.lock();
        if let Some(message) = mail.take() {
            return Poll::Ready(Some(message));
        }
        mail.client = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl ClientHandle {
    pub(crate) fn new(mailbox: Arc<ClientMailbox>) -> Self {
        Self(mailbox)
    }

    /// Delivers a push. If the mailbox is full, the endpoint is answered *busy* and stores the
    /// message, and the client looks for it in storage. Returns the push if the client has ended.
    pub fn deliver(&self, push: DirectPush) -> Result<(), Box<DirectPush>> {
        match self.0.room() {
            Ok(mail) => send(mail, ClientMail::Push(push)),
            Err(NoRoom::Full) => {
                self.0.signals.raise(Signal::MessageStored);
                answer(push.reply, PushAnswer::Busy);
            }
            Err(NoRoom::Closed) => return Err(Box::new(push)),
        }
        Ok(())
    }

    /// Lets the client look at the clock.
    pub(crate) fn wake(&self) -> Result<(), Disconnected> {
        self.0.wake()
    }

    pub fn signal(&self, signal: Signal) -> Result<(), Disconnected> {
        self.0.signals.raise(signal);
        self.0.wake()
    }

    /// Asks the client for its state. The reply is dropped if the mailbox is full or the client has
    /// ended.
    pub(crate) fn observe(&self, reply: oneshot::Sender<ClientState>) {
        if let Ok(mail) = self.0.room() {
            send(mail, ClientMail::Observe(reply));
        }
    }
}

/// Answers an endpoint. Returns whether it was still waiting.
pub(crate) fn answer(reply: oneshot::Sender<NodeAnswer>, push_answer: PushAnswer) -> bool {
    reply.send(push_answer.into()).is_ok()
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
