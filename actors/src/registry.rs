//! The registry actor: looks connections up by uaid. It never waits and has nothing to panic at.

use actix::{Actor, Context, Handler, MessageResult};
use slog::{Logger, debug};
use state_machine::delivery::NodeAnswer;
use state_machine::registry::Registry;
use state_machine::{ConnectionId, Uaid};

use crate::reach::{Gone, Notice, Push, Reach};

/// Who is connected to this node.
pub struct RegistryActor {
    registry: Registry<Reach>,
    mailbox_max: usize,
    is_shutting_down: bool,
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
#[rtype(result = "()")]
pub struct Nudge {
    /// For whom.
    pub uaid: Uaid,
}

/// The node shuts down: every connection is told, those that still come too.
#[derive(actix::Message)]
#[rtype(result = "()")]
pub struct ShutDown;

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
        Self { registry: Registry::new(), mailbox_max, is_shutting_down: false, log }
    }

    /// Leaves a notice, and forgets a connection that is gone without having said so.
    fn notify(&mut self, uaid: Uaid, notice: Notice) {
        if let Some(entry) = self.registry.find(uaid)
            && let Err(Gone) = entry.reach.notify(notice)
        {
            let connection = entry.connection;
            self.registry.leave(uaid, connection);
        }
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
        if self.is_shutting_down {
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
    type Result = ();

    fn handle(&mut self, Nudge { uaid }: Nudge, _: &mut Self::Context) {
        self.notify(uaid, Notice::MessageStored);
    }
}

impl Handler<ShutDown> for RegistryActor {
    type Result = ();

    fn handle(&mut self, ShutDown: ShutDown, _: &mut Self::Context) {
        self.is_shutting_down = true;
        let told = self
            .registry
            .everybody()
            .filter(|entry| entry.reach.notify(Notice::ShutdownBegan).is_ok())
            .count();
        debug!(self.log, "told every connection to close"; "connections" => told);
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
