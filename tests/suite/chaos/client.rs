//! A user agent that moves between nodes, and misbehaves.

use std::cell::RefCell;
use std::time::Instant;

use super::plan::{Habit, Parting, Stay, Stays};
use super::pusher::Pusher;
use super::scene::{Scene, Stage};
use super::visit::{Visit, say_goodbye};
use crate::harness::{Channel, Notification, Socket};

/// Somebody with subscriptions.
pub(super) struct Client {
    pub(super) number: usize,
    pub(super) uaid: String,
    pub(super) channels: RefCell<Vec<Channel>>,
    /// What came and is acked on the next connection.
    pub(super) owed: RefCell<Vec<Notification>>,
    /// A connection that was left open, and is not read any more.
    forgotten: RefCell<Option<Socket>>,
}

/// How many channels one may have.
const CHANNELS_MAX: usize = 3;

impl Client {
    pub(super) fn new(number: usize, uaid: String, channels: Vec<Channel>) -> Self {
        Self {
            number,
            uaid,
            channels: RefCell::new(channels),
            owed: RefCell::default(),
            forgotten: RefCell::default(),
        }
    }

    /// Goes from node to node until the storm is over; then takes what is left, and in the end what `last` sends.
    pub(super) async fn live(&self, scene: &Scene, mut stays: Stays, last: &Pusher) {
        while scene.stage() == Stage::Storm {
            self.stay(scene, stays.next()).await;
        }
        self.forgotten.take();
        while scene.stage() == Stage::Drain {
            let mut visit = Visit::arrive(self, scene, self.number).await;
            scene.is_draining(self.number);
            // Where the connection ends, the next one goes on.
            let _ = visit.until_end_of(Stage::Drain).await;
        }
        self.connect_once_more(scene, last).await;
    }

    async fn stay(&self, scene: &Scene, stay: Stay) {
        let mut visit = Visit::arrive(self, scene, stay.node).await;
        if stay.registers && self.channels.borrow().len() < CHANNELS_MAX {
            visit.register().await;
        }
        if let Habit::Stalled(wait) = stay.habit {
            scene.comebacks().left_home(self.number);
            scene.pause(wait).await;
        }
        let stayed = visit.until(Instant::now() + stay.lasts, stay.habit).await;
        scene.comebacks().left_home(self.number);
        if stayed.is_err() {
            return;
        }
        let socket = visit.left(stay.habit);
        match stay.parting {
            Parting::Goodbye => say_goodbye(socket).await,
            Parting::Vanish => drop(socket),
            Parting::Forget => drop(self.forgotten.replace(Some(socket))),
        }
        scene.pause(stay.away).await;
    }

    /// Takes one last message, and nothing else.
    async fn connect_once_more(&self, scene: &Scene, last: &Pusher) {
        let mut visit = Visit::arrive(self, scene, self.number + 1).await;
        match tokio::join!(last.push_last(scene, self), visit.next()) {
            (Some(last), Ok(came)) if last == came => {}
            (last, came) => {
                let found = format!("{}: {last:?} was the last, and {came:?} came", self.number);
                scene.ledger().found(found);
            }
        }
    }
}
