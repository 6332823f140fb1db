//! A client without a socket: a test gets its frames.

use std::sync::Arc;

use actix::{Actor, ActorContext, Addr, AsyncContext, Context, Handler, Message, WrapFuture};
use actors::handle::DirectPush;
use actors::{Admission, Client, ClientShared, StepObserver, Transport};
use state_machine::connection::{CloseReason, Connection, ConnectionSeed, Effects, Event};
use state_machine::{Time, Uaid};
use tokio::sync::oneshot;

use crate::traces;

/// A transport that hands frames to a function. What its client does is written down in [`traces`].
pub(crate) struct Wire {
    /// Its connection's number there.
    line: usize,
    send: Box<dyn FnMut(Sent)>,
}

/// An admission without limits. `D` is what it holds.
pub(crate) struct Unlimited<D>(pub(crate) D);

impl<D: 'static> Admission for Unlimited<D> {
    fn hello(&self, _: Option<Uaid>) -> Result<(), CloseReason> {
        Ok(())
    }

    fn new_agent(&self) -> bool {
        true
    }

    fn register(&self, _: Uaid) -> bool {
        true
    }
}

/// What a client sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sent {
    Text(String),
    Ping,
    Close(CloseReason),
}

/// An event of the wire.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Came(pub(crate) Event);

/// A push that the registry did not deliver.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Arrived(pub(crate) DirectPush);

/// Stand still, as a client does whose peer does not read, until the other end is dropped.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct StandStill(pub(crate) oneshot::Receiver<()>);

/// Be gone without a word, as an actor is that panicked.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Vanish;

impl Wire {
    pub(crate) fn start(
        shared: &Arc<ClientShared>,
        seed: ConnectionSeed,
        send: impl FnMut(Sent) + 'static,
    ) -> Addr<Client<Self>> {
        Self::start_as(traces::opened(&shared.config), shared, seed, send)
    }

    /// Starts a client whose connection has this number in [`traces`].
    pub(crate) fn start_as(
        line: usize,
        shared: &Arc<ClientShared>,
        seed: ConnectionSeed,
        send: impl FnMut(Sent) + 'static,
    ) -> Addr<Client<Self>> {
        Self::start_limited(line, shared, seed, Box::new(Unlimited(())), send)
    }

    pub(crate) fn start_limited(
        line: usize,
        shared: &Arc<ClientShared>,
        seed: ConnectionSeed,
        admission: Box<dyn Admission>,
        send: impl FnMut(Sent) + 'static,
    ) -> Addr<Client<Self>> {
        let transport = Self { line, send: Box::new(send) };
        Client::new(Arc::clone(shared), seed, admission, transport).start()
    }
}

impl Transport for Wire {
    type Context = Context<Client<Self>>;

    fn text(&mut self, _: &mut Self::Context, json: String) {
        (self.send)(Sent::Text(json));
    }

    fn ping(&mut self, _: &mut Self::Context) {
        (self.send)(Sent::Ping);
    }

    fn close(&mut self, _: &mut Self::Context, reason: CloseReason) {
        (self.send)(Sent::Close(reason));
    }
}

impl StepObserver for Wire {
    fn step(&mut self, connection: &mut Connection, now: Time, event: Event) -> Effects {
        traces::step(self.line, connection, now, event)
    }
}

impl Handler<Came> for Client<Wire> {
    type Result = ();

    fn handle(&mut self, Came(event): Came, ctx: &mut Self::Context) {
        self.feed(event, ctx);
    }
}

impl Handler<Arrived> for Client<Wire> {
    type Result = ();

    fn handle(&mut self, Arrived(push): Arrived, ctx: &mut Self::Context) {
        self.push_arrived(push, ctx);
    }
}

impl Handler<StandStill> for Client<Wire> {
    type Result = ();

    fn handle(&mut self, StandStill(until): StandStill, ctx: &mut Self::Context) {
        ctx.wait(async { drop(until.await) }.into_actor(self));
    }
}

impl Handler<Vanish> for Client<Wire> {
    type Result = ();

    fn handle(&mut self, Vanish: Vanish, ctx: &mut Self::Context) {
        ctx.terminate();
    }
}
