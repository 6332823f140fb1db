//! Tells a session's connection of broadcasts when and as its transcript says.

use std::sync::{Arc, Mutex};

use actix::{Actor, Addr, Context, Handler};
use actors::broadcasts::{BroadcastView, Follow, Unfollow};
use actors::reach::Notice;
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
    follower: Option<Follow>,
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
            follow: self.place.clone().recipient(),
            unfollow: self.place.clone().recipient(),
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

impl Handler<Follow> for Place {
    type Result = ();

    fn handle(&mut self, follow: Follow, _: &mut Self::Context) {
        self.heard.lock().unwrap().push(Effect::FollowBroadcasts { told: follow.told });
        let before = self.follower.replace(follow);
        assert!(before.is_none(), "a connection follows once");
    }
}

impl Handler<Unfollow> for Place {
    type Result = ();

    fn handle(&mut self, Unfollow { connection, point }: Unfollow, _: &mut Self::Context) {
        self.heard.lock().unwrap().push(Effect::LeaveBroadcasts);
        let follower = self.follower.take().expect("only a follower leaves");
        assert_eq!((follower.connection, follower.point), (connection, point));
    }
}

impl Handler<Cry> for Place {
    type Result = ();

    fn handle(&mut self, Cry: Cry, _: &mut Self::Context) {
        if let Some(follower) = &self.follower {
            follower.reach.notify(Notice::BroadcastsChanged).unwrap();
        }
    }
}
