//! A client without a socket: its frames go where a test wants them.

use std::sync::Arc;

use actix::{Actor, ActorContext, Addr, AsyncContext, Context, Handler, Message, WrapFuture};
use actors::{Client, ClientShared, Transport};
use state_machine::Time;
use state_machine::connection::{CloseReason, Connection, ConnectionSeed, Effects, Event};
use tokio::sync::oneshot;

use crate::traces;

/// A transport that hands frames to a function. What its client does is written down in [`traces`].
pub(crate) struct Wire {
    /// Its connection's number there.
    line: usize,
    send: Box<dyn FnMut(Sent)>,
}

/// What a client sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sent {
    Text(String),
    Ping,
    Close(CloseReason),
}

/// What came over the wire.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Came(pub(crate) Event);

/// Stand still, as a client does whose peer does not read, until the other end is dropped.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct StandStill(pub(crate) oneshot::Receiver<()>);

/// Be gone without a word, as an actor is that panicked.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Vanish;

impl Wire {
    /// Starts a client.
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
        Client::new(Arc::clone(shared), seed, Self { line, send: Box::new(send) }).start()
    }
}

impl Transport for Wire {
    type Context = Context<Client<Self>>;

    fn bound_mailbox(ctx: &mut Self::Context, max: usize) {
        ctx.set_mailbox_capacity(max);
    }

    fn text(&mut self, _: &mut Self::Context, json: String) {
        (self.send)(Sent::Text(json));
    }

    fn ping(&mut self, _: &mut Self::Context) {
        (self.send)(Sent::Ping);
    }

    fn close(&mut self, _: &mut Self::Context, reason: CloseReason) {
        (self.send)(Sent::Close(reason));
    }

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
