//! The registry actor: looks connections up by uaid. It never waits and has nothing to panic at.

use std::time::Duration;

use actix::{
    Actor, ActorFutureExt, AsyncContext, Context, Handler, MessageResult, SpawnHandle, WrapFuture,
};
use slog::{Logger, debug};
use state_machine::delivery::NodeAnswer;
use state_machine::registry::Registry;
use state_machine::{ConnectionId, Time, Uaid};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use crate::farewells::Farewells;
use crate::reach::{Gone, Notice, Push, Reach};

/// Who is connected to this node.
pub struct RegistryActor {
    registry: Registry<Reach>,
    mailbox_max: usize,
    /// Who is still to be told that the node shuts down; none while it does not.
    farewells: Option<Farewells<Reach>>,
    /// What looks for those who are due.
    next_farewell: Option<SpawnHandle>,
    log: Logger,
}

/// A connection is found under `uaid` from now on.
#[derive(actix::Message)]
#[rtype(result = "()")]
pub struct Enter {
    /// Under which name.
    pub uaid: Uaid,
    /// Which connection.
    pub connection: ConnectionId,
    /// How it is reached.
    pub reach: Reach,
}

/// A connection is no longer found under `uaid`.
#[derive(actix::Message)]
#[rtype(result = "()")]
pub struct Leave {
    /// Under which name.
    pub uaid: Uaid,
    /// Which connection.
    pub connection: ConnectionId,
}

/// A message was stored for `uaid`.
#[derive(actix::Message)]
#[rtype(result = "Heard")]
pub struct Nudge {
    /// For whom.
    pub uaid: Uaid,
}

/// The agent is connected to another node. A connection here that is newer does not mind.
#[derive(actix::Message)]
#[rtype(result = "Heard")]
pub struct ConnectedElsewhere {
    /// Who.
    pub uaid: Uaid,
    /// Since when.
    pub connected_at: Time,
}

/// Whether there is a connection that was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// It finds the notice, even if its mailbox is full.
    Told,
    /// The agent is not connected here.
    NotHere,
}

/// The node shuts down: every connection is told at its own moment, those that still come at once.
///
/// The moments lie evenly in `spread`; all are over when it ends. Said again, it can only end earlier.
#[derive(actix::Message)]
#[rtype(result = "()")]
pub struct ShutDown {
    /// How long it takes; with [`Duration::ZERO`] all are told at once.
    pub spread: Duration,
}

/// How many are connected. That it answers shows that the registry is alive.
#[derive(actix::Message)]
#[rtype(result = "usize")]
pub struct Count;

/// Which connection is found under `uaid`, if one is.
#[derive(actix::Message)]
#[rtype(result = "Option<ConnectionId>")]
pub struct Find {
    /// Under which name.
    pub uaid: Uaid,
}

impl RegistryActor {
    /// A registry whose mailbox holds `mailbox_max` messages.
    pub fn new(mailbox_max: usize, log: Logger) -> Self {
        let registry = Registry::new();
        Self { registry, mailbox_max, farewells: None, next_farewell: None, log }
    }

    /// Leaves a notice, and forgets a connection that is gone without having said so.
    fn notify(&mut self, uaid: Uaid, notice: Notice) -> Heard {
        let Some(entry) = self.registry.find(uaid) else { return Heard::NotHere };
        if let Err(Gone) = entry.reach.notify(notice) {
            let connection = entry.connection;
            self.registry.leave(uaid, connection);
            return Heard::NotHere;
        }
        Heard::Told
    }

    /// Tells those whose moment has come, and sees to it that the others are told at theirs.
    fn say_farewell(&mut self, ctx: &mut Context<Self>) {
        let Some(farewells) = &mut self.farewells else { return };
        for reach in farewells.take_due(Instant::now()) {
            // One that is gone needs no telling.
            let _ = reach.notify(Notice::ShutdownBegan);
        }
        let Some(wait) = farewells.wait(Instant::now()) else {
            debug!(self.log, "told every connection to close");
            return;
        };
        let next = pause(wait).into_actor(self).map(|(), registry, ctx| {
            registry.next_farewell = None;
            registry.say_farewell(ctx);
        });
        self.next_farewell = Some(ctx.spawn(next));
    }
}

/// Waits; in any case until others had their turn.
async fn pause(wait: Duration) {
    match wait {
        Duration::ZERO => yield_now().await,
        wait => sleep(wait).await,
    }
}

impl Actor for RegistryActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(self.mailbox_max);
    }
}

impl Handler<Enter> for RegistryActor {
    type Result = ();

    fn handle(&mut self, Enter { uaid, connection, reach }: Enter, _: &mut Self::Context) {
        let displaced = self.registry.enter(uaid, connection, reach);
        // One that is gone needs no telling.
        if let Some(Err(Gone)) = displaced.map(|old| old.reach.notify(Notice::Replaced)) {
            debug!(self.log, "a connection had gone without leaving the registry");
        }
        if self.farewells.is_some() {
            self.notify(uaid, Notice::ShutdownBegan);
        }
    }
}

impl Handler<Leave> for RegistryActor {
    type Result = ();

    fn handle(&mut self, Leave { uaid, connection }: Leave, _: &mut Self::Context) {
        self.registry.leave(uaid, connection);
    }
}

impl Handler<Push> for RegistryActor {
    type Result = ();

    fn handle(&mut self, push: Push, _: &mut Self::Context) {
        let uaid = push.uaid;
        let (push, connection) = match self.registry.find(uaid) {
            None => (push, None),
            Some(entry) => match entry.reach.push(push) {
                Ok(()) => return,
                Err(push) => (*push, Some(entry.connection)),
            },
        };
        if let Some(connection) = connection {
            self.registry.leave(uaid, connection);
        }
        // An endpoint that no longer waits has stored the message by itself.
        let _ = push.reply.send(NodeAnswer::NotHere);
    }
}

impl Handler<Nudge> for RegistryActor {
    type Result = MessageResult<Nudge>;

    fn handle(&mut self, Nudge { uaid }: Nudge, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.notify(uaid, Notice::MessageStored))
    }
}

impl Handler<ConnectedElsewhere> for RegistryActor {
    type Result = MessageResult<ConnectedElsewhere>;

    fn handle(&mut self, moved: ConnectedElsewhere, _: &mut Self::Context) -> Self::Result {
        let ConnectedElsewhere { uaid, connected_at } = moved;
        MessageResult(self.notify(uaid, Notice::ConnectedElsewhere { connected_at }))
    }
}

impl Handler<ShutDown> for RegistryActor {
    type Result = ();

    fn handle(&mut self, ShutDown { spread }: ShutDown, ctx: &mut Self::Context) {
        let now = Instant::now();
        match &mut self.farewells {
            Some(farewells) => farewells.hurry(spread, now),
            None => {
                let all = self.registry.everybody().map(|entry| entry.reach.clone()).collect();
                self.farewells = Some(Farewells::begin(all, spread, now));
            }
        }
        if let Some(next) = self.next_farewell.take() {
            ctx.cancel_future(next);
        }
        self.say_farewell(ctx);
    }
}

impl Handler<Count> for RegistryActor {
    type Result = MessageResult<Count>;

    fn handle(&mut self, Count: Count, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.registry.len())
    }
}

impl Handler<Find> for RegistryActor {
    type Result = MessageResult<Find>;

    fn handle(&mut self, Find { uaid }: Find, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.registry.find(uaid).map(|entry| entry.connection))
    }
}
