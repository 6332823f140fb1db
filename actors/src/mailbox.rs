//! Mailboxes with a bound and a length.
//!
//! actix's default bound is 16 messages, and it does not expose how many messages wait. An actor of
//! this crate is a [`BoundedActor`], and its messages travel as [`Queued`], which its [`Mailbox`]
//! counts. A client is not: its mailbox is smaller ([`handle`](crate::handle)).

use std::fmt;
use std::sync::{Arc, Weak};

use actix::dev::{RecipientRequest, Request, SendError};
use actix::{Actor, Addr, Context, Handler, Message, Recipient};

/// An actor whose mailbox has a bound.
pub trait BoundedActor: Actor<Context = Context<Self>> {
    /// The mailbox: always the same one, so that every sender counts in one place.
    fn mailbox(&self) -> Mailbox;
}

/// The bound and the length of one mailbox. Clones are the same mailbox.
#[derive(Clone)]
pub struct Mailbox {
    max: usize,
    /// Each queued message has a weak reference to it, so that a message that is dropped unhandled
    /// is not counted either.
    counter: Arc<()>,
}

/// How full a mailbox is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MailboxState {
    /// Messages that were sent and whose handler has not begun. Those that wait for room in the
    /// mailbox are included, so that it can exceed `max`.
    pub length: usize,
    /// The bound, in messages. Beyond it, actix grants each sender one message more.
    pub max: usize,
}

impl Mailbox {
    /// A mailbox for `max` messages.
    pub fn new(max: usize) -> Self {
        Self { max, counter: Arc::new(()) }
    }

    /// How full it is now.
    pub fn state(&self) -> MailboxState {
        MailboxState { length: Arc::weak_count(&self.counter), max: self.max }
    }

    fn queue<M>(&self, message: M) -> Queued<M> {
        Queued { message, _counted: Arc::downgrade(&self.counter) }
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state().fmt(f)
    }
}

/// A message on its way to a handler, counted by the mailbox until [`Queued::take`] or until it is
/// dropped.
pub struct Queued<M> {
    message: M,
    _counted: Weak<()>,
}

impl<M> Queued<M> {
    /// Ends the wait and returns the message.
    pub fn take(self) -> M {
        self.message
    }
}

impl<M: Message> Message for Queued<M> {
    type Result = M::Result;
}

/// A message for an actor on any thread.
pub trait Mail: Message<Result: Send> + Send + 'static {}

impl<M: Message<Result: Send> + Send + 'static> Mail for M {}

/// The address of a bounded actor. Every message that is sent through it is counted.
pub struct BoundedAddr<A: Actor> {
    addr: Addr<A>,
    mailbox: Mailbox,
}

impl<A: BoundedActor> BoundedAddr<A> {
    /// Starts an actor on the current arbiter, with the bound of its mailbox.
    pub fn start(actor: A) -> Self {
        let mailbox = actor.mailbox();
        let addr = A::create(|ctx| {
            ctx.set_mailbox_capacity(mailbox.max);
            actor
        });
        Self { addr, mailbox }
    }

    /// Sends a message, unless the mailbox is full or closed.
    pub fn try_send<M: Mail>(&self, message: M) -> Result<(), SendError<M>>
    where
        A: Handler<Queued<M>>,
    {
        self.addr.try_send(self.mailbox.queue(message)).map_err(returned)
    }

    /// Sends a message: waits for room if the mailbox is full, then for the answer.
    pub fn send<M: Mail>(&self, message: M) -> Request<A, Queued<M>>
    where
        A: Handler<Queued<M>>,
    {
        self.addr.send(self.mailbox.queue(message))
    }

    /// An address for one type of message.
    pub fn recipient<M: Mail>(&self) -> BoundedRecipient<M>
    where
        A: Handler<Queued<M>>,
    {
        let (recipient, mailbox) = (self.addr.clone().recipient(), self.mailbox.clone());
        BoundedRecipient { recipient, mailbox }
    }

    /// Whether the actor is alive.
    pub fn connected(&self) -> bool {
        self.addr.connected()
    }
}

impl<A: Actor> Clone for BoundedAddr<A> {
    fn clone(&self) -> Self {
        Self { addr: self.addr.clone(), mailbox: self.mailbox.clone() }
    }
}

/// The address of a bounded actor for one type of message.
pub struct BoundedRecipient<M: Message<Result: Send> + Send> {
    recipient: Recipient<Queued<M>>,
    mailbox: Mailbox,
}

impl<M: Mail> BoundedRecipient<M> {
    /// Sends a message, unless the mailbox is full or closed.
    pub fn try_send(&self, message: M) -> Result<(), SendError<M>> {
        self.recipient.try_send(self.mailbox.queue(message)).map_err(returned)
    }

    /// Sends a message: waits for room if the mailbox is full, then for the answer.
    pub fn send(&self, message: M) -> RecipientRequest<Queued<M>> {
        self.recipient.send(self.mailbox.queue(message))
    }

    /// Whether the actor is alive.
    pub fn connected(&self) -> bool {
        self.recipient.connected()
    }
}

impl<M: Message<Result: Send> + Send> Clone for BoundedRecipient<M> {
    fn clone(&self) -> Self {
        Self { recipient: self.recipient.clone(), mailbox: self.mailbox.clone() }
    }
}

impl<M: Message<Result: Send> + Send> fmt::Debug for BoundedRecipient<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundedRecipient").field("mailbox", &self.mailbox).finish()
    }
}

fn returned<M>(error: SendError<Queued<M>>) -> SendError<M> {
    match error {
        SendError::Full(queued) => SendError::Full(queued.take()),
        SendError::Closed(queued) => SendError::Closed(queued.take()),
    }
}
