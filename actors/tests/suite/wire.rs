//! A client without a socket: its frames go where a test wants them.

use std::sync::Arc;

use actix::{Actor, ActorContext, Addr, AsyncContext, Context, Handler, Message, WrapFuture};
use actors::{Client, ClientShared, Transport};
use state_machine::connection::{CloseReason, Event, Luck};
use tokio::sync::oneshot;

/// A transport that hands frames to a function.
pub(crate) struct Wire(Box<dyn FnMut(Sent)>);

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
        luck: Luck,
        send: impl FnMut(Sent) + 'static,
    ) -> Addr<Client<Self>> {
        Client::new(Arc::clone(shared), luck, Self(Box::new(send))).start()
    }
}

impl Transport for Wire {
    type Context = Context<Client<Self>>;

    fn bound_mailbox(ctx: &mut Self::Context, max: usize) {
        ctx.set_mailbox_capacity(max);
    }

    fn text(&mut self, _: &mut Self::Context, json: String) {
        self.0(Sent::Text(json));
    }

    fn ping(&mut self, _: &mut Self::Context) {
        self.0(Sent::Ping);
    }

    fn close(&mut self, _: &mut Self::Context, reason: CloseReason) {
        self.0(Sent::Close(reason));
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
