//! Tells a session's connection of broadcasts when and as its transcript says.

use std::sync::{Arc, Mutex};

use actix::{Actor, Addr, Context, Handler};
use actors::broadcasts::{BroadcastView, Subscribe, Unsubscribe};
use actors::handle::Signal;
use state_machine::broadcast::Broadcasts;
use state_machine::connection::Effect;
use tokio::sync::watch;

/// The broadcasts of a node, and whoever follows them.
pub(crate) struct Crier {
    now: watch::Sender<Arc<Broadcasts>>,
    place: Addr<Place>,
    /// What was heard of connections since it was last looked at.
    heard: Arc<Mutex<Vec<Effect>>>,
}

/// Where the followers are.
struct Place {
    follower: Option<Subscribe>,
    heard: Arc<Mutex<Vec<Effect>>>,
}

/// Tell whoever follows.
#[derive(actix::Message)]
#[rtype(result = "()")]
struct Cry;

impl Crier {
    pub(crate) fn new() -> Self {
        let heard = Arc::default();
        let place = Place { follower: None, heard: Arc::clone(&heard) }.start();
        Self { now: watch::Sender::default(), place, heard }
    }

    pub(crate) fn view(&self) -> BroadcastView {
        BroadcastView {
            now: self.now.subscribe(),
            subscribe: self.place.clone().recipient(),
            unsubscribe: self.place.clone().recipient(),
        }
    }

    /// The broadcasts are these now.
    pub(crate) fn knows(&self, all: &Arc<Broadcasts>) {
        self.now.send_replace(Arc::clone(all));
    }

    /// Wakes the connection that follows them.
    pub(crate) fn cries(&self) {
        self.place.try_send(Cry).unwrap();
    }

    pub(crate) fn take_heard(&self) -> Vec<Effect> {
        std::mem::take(&mut self.heard.lock().unwrap())
    }
}

impl Actor for Place {
    type Context = Context<Self>;
}

impl Handler<Subscribe> for Place {
    type Result = ();

    fn handle(&mut self, subscribe: Subscribe, _: &mut Self::Context) {
        self.heard.lock().unwrap().push(Effect::SubscribeBroadcasts { last_sent: subscribe.told });
        let before = self.follower.replace(subscribe);
        assert!(before.is_none(), "a connection follows once");
    }
}

impl Handler<Unsubscribe> for Place {
    type Result = ();

    fn handle(&mut self, Unsubscribe { connection, point }: Unsubscribe, _: &mut Self::Context) {
        self.heard.lock().unwrap().push(Effect::UnsubscribeBroadcasts);
        let follower = self.follower.take().expect("only a follower leaves");
        assert_eq!((follower.connection, follower.point), (connection, point));
    }
}

impl Handler<Cry> for Place {
    type Result = ();

    fn handle(&mut self, Cry: Cry, _: &mut Self::Context) {
        if let Some(follower) = &self.follower {
            follower.handle.signal(Signal::BroadcastsChanged).unwrap();
        }
    }
}
