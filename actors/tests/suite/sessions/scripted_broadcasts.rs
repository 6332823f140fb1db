//! Notifies a session's connection of broadcasts as its transcript prescribes.

use std::sync::{Arc, Mutex};

use actix::{Actor, ActorContext, Context, Handler};
use actors::BoundedAddr;
use actors::broadcasts::{BroadcastView, Subscribe, Unsubscribe};
use actors::handle::Signal;
use actors::mailbox::{BoundedActor, Mailbox, Queued};
use actors::observe::{BroadcastState, Observe};
use state_machine::broadcast::Broadcasts;
use state_machine::connection::Effect;
use tokio::sync::watch;

/// The broadcasts of a node, and their subscriber.
pub(crate) struct ScriptedBroadcasts {
    now: watch::Sender<Arc<Broadcasts>>,
    place: BoundedAddr<Place>,
    /// What was heard of connections since it was last looked at.
    heard: Arc<Mutex<Vec<Effect>>>,
}

/// Where the followers are.
struct Place {
    mailbox: Mailbox,
    follower: Option<Subscribe>,
    heard: Arc<Mutex<Vec<Effect>>>,
}

#[derive(actix::Message)]
#[rtype(result = "()")]
enum Cry {
    Signal,
    Stop,
}

impl ScriptedBroadcasts {
    pub(crate) fn new() -> Self {
        Self::within(16)
    }

    /// The same, whose mailbox has this bound.
    pub(crate) fn within(mailbox_max: usize) -> Self {
        let (mailbox, heard) = (Mailbox::new(mailbox_max), Arc::default());
        let place = Place { mailbox, follower: None, heard: Arc::clone(&heard) };
        Self { now: watch::Sender::default(), place: BoundedAddr::start(place), heard }
    }

    pub(crate) async fn stop(&self) {
        self.place.send(Cry::Stop).await.unwrap();
    }

    pub(crate) fn view(&self) -> BroadcastView {
        BroadcastView {
            now: self.now.subscribe(),
            subscribe: self.place.recipient(),
            unsubscribe: self.place.recipient(),
            observe: self.place.recipient(),
        }
    }

    /// The broadcasts are these now.
    pub(crate) fn publish(&self, all: &Arc<Broadcasts>) {
        self.now.send_replace(Arc::clone(all));
    }

    /// Wakes the connection that follows them.
    pub(crate) fn signal(&self) {
        self.place.try_send(Cry::Signal).unwrap();
    }

    pub(crate) fn take_requests(&self) -> Vec<Effect> {
        std::mem::take(&mut self.heard.lock().unwrap())
    }
}

impl Actor for Place {
    type Context = Context<Self>;
}

impl BoundedActor for Place {
    fn mailbox(&self) -> Mailbox {
        self.mailbox.clone()
    }
}

impl Handler<Queued<Observe<BroadcastState>>> for Place {
    type Result = BroadcastState;

    fn handle(
        &mut self,
        _: Queued<Observe<BroadcastState>>,
        _: &mut Self::Context,
    ) -> BroadcastState {
        unreachable!("a session does not observe it")
    }
}

impl Handler<Queued<Subscribe>> for Place {
    type Result = ();

    fn handle(&mut self, subscribe: Queued<Subscribe>, _: &mut Self::Context) {
        let subscribe = subscribe.take();
        self.heard
            .lock()
            .unwrap()
            .push(Effect::SubscribeBroadcasts { last_sent: subscribe.last_sent });
        let before = self.follower.replace(subscribe);
        assert!(before.is_none(), "a connection follows once");
    }
}

impl Handler<Queued<Unsubscribe>> for Place {
    type Result = ();

    fn handle(&mut self, unsubscribe: Queued<Unsubscribe>, _: &mut Self::Context) {
        let Unsubscribe { connection, slot } = unsubscribe.take();
        self.heard.lock().unwrap().push(Effect::UnsubscribeBroadcasts);
        let follower = self.follower.take().expect("only a follower leaves");
        assert_eq!((follower.connection, follower.slot), (connection, slot));
    }
}

impl Handler<Queued<Cry>> for Place {
    type Result = ();

    fn handle(&mut self, cry: Queued<Cry>, ctx: &mut Self::Context) {
        match (cry.take(), &self.follower) {
            (Cry::Signal, None) => {}
            (Cry::Signal, Some(follower)) => {
                follower.handle.signal(Signal::BroadcastsChanged).unwrap();
            }
            (Cry::Stop, _) => ctx.stop(),
        }
    }
}
