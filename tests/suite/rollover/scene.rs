//! What everybody shares: the server's address and its lives, the ledger, and the end of the storm.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeSet;
use std::net::SocketAddr;

use tokio::sync::{Notify, watch};

use super::ledger::Ledger;
use crate::harness::{Channel, Fuse, Sender};

/// How long a message is kept: longer than from November to December.
const TTL_S: u32 = 30 * 24 * 60 * 60;

/// The scene of the whole story.
pub(super) struct Scene {
    pub(super) address: SocketAddr,
    ledger: RefCell<Ledger>,
    /// Kills the server when so many messages came.
    fuse: RefCell<Option<Fuse>>,
    /// How often the server was started again.
    life: watch::Sender<usize>,
    is_over: watch::Sender<bool>,
    /// Who is in December, in this life.
    arrived: RefCell<BTreeSet<usize>>,
    somebody_arrived: Notify,
    /// Connections that the server closed by itself.
    sent_away: Cell<usize>,
}

impl Scene {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            ledger: RefCell::default(),
            fuse: RefCell::default(),
            life: watch::Sender::default(),
            is_over: watch::Sender::default(),
            arrived: RefCell::default(),
            somebody_arrived: Notify::new(),
            sent_away: Cell::default(),
        }
    }

    pub(super) fn ledger(&self) -> RefMut<'_, Ledger> {
        self.ledger.borrow_mut()
    }

    /// Posts a message that is in the ledger. Answers whether it was accepted: none where the server did
    /// not live to answer.
    pub(super) async fn push(
        &self,
        sender: &Sender,
        number: usize,
        channel: &Channel,
    ) -> Option<bool> {
        let mut post = sender.post(&channel.endpoint).ttl(TTL_S).body(number.to_string());
        let topic = self.ledger().topic(number);
        if let Some(topic) = topic {
            post = post.header("topic", topic);
        }
        let answer = post.try_send().await.ok()?;
        self.ledger().answered(number, &answer);
        Some(answer.status == 201)
    }

    /// A message came to a user agent.
    pub(super) fn came(&self, traveller: usize, number: usize, version: &str) {
        self.ledger().came(traveller, number, version);
        if let Some(fuse) = &*self.fuse.borrow() {
            fuse.burn();
        }
    }

    pub(super) fn light(&self, fuse: Fuse) {
        self.fuse.replace(Some(fuse));
    }

    /// The server was killed, and was started again.
    pub(super) fn server_lives_again(&self) {
        self.ledger().server_died();
        self.fuse.take();
        self.arrived.take();
        self.life.send_modify(|life| *life += 1);
    }

    pub(super) fn life(&self) -> usize {
        *self.life.borrow()
    }

    /// Waits for a server that was started after that of this life.
    pub(super) async fn life_after(&self, life: usize) {
        let mut lives = self.life.subscribe();
        lives.wait_for(|now| *now > life).await.expect("the scene is there");
    }

    /// A user agent's move is over.
    pub(super) fn arrived(&self, traveller: usize) {
        self.arrived.borrow_mut().insert(traveller);
        self.somebody_arrived.notify_one();
    }

    /// Waits until so many have arrived in this life.
    pub(super) async fn all_arrived(&self, count: usize) {
        while self.arrived.borrow().len() < count {
            self.somebody_arrived.notified().await;
        }
    }

    /// The server closed a connection, for which there may be a reason, and only sometimes.
    pub(super) fn sent_away(&self, _code: u16) {
        self.sent_away.set(self.sent_away.get() + 1);
    }

    pub(super) fn sent_away_count(&self) -> usize {
        self.sent_away.get()
    }

    /// The storm is over: everybody may go.
    pub(super) fn ends(&self) {
        self.is_over.send_replace(true);
    }

    pub(super) fn is_over(&self) -> bool {
        *self.is_over.borrow()
    }

    /// Tells of the end once.
    pub(super) fn end(&self) -> watch::Receiver<bool> {
        self.is_over.subscribe()
    }
}
