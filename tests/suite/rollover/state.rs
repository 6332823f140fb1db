//! The state that all tasks of a rollover share: the server's address and restarts, the ledger, and
//! the end of the storm.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeSet;
use std::net::SocketAddr;

use tokio::sync::{Notify, watch};

use super::ledger::Ledger;
use crate::harness::{Channel, KillCountdown, Sender};

/// The TTL of messages in seconds, longer than the time from November to December.
const TTL_S: u32 = 30 * 24 * 60 * 60;

/// The shared state of a rollover.
pub(super) struct RunState {
    pub(super) address: SocketAddr,
    ledger: RefCell<Ledger>,
    /// Kills the server after a number of deliveries.
    countdown: RefCell<Option<KillCountdown>>,
    /// The number of restarts of the server.
    restarts: watch::Sender<usize>,
    is_over: watch::Sender<bool>,
    /// The agents that have moved to December since the last restart.
    arrived: RefCell<BTreeSet<usize>>,
    somebody_arrived: Notify,
    /// The number of connections that the server closed.
    connections_closed: Cell<usize>,
}

impl RunState {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            ledger: RefCell::default(),
            countdown: RefCell::default(),
            restarts: watch::Sender::default(),
            is_over: watch::Sender::default(),
            arrived: RefCell::default(),
            somebody_arrived: Notify::new(),
            connections_closed: Cell::default(),
        }
    }

    pub(super) fn ledger(&self) -> RefMut<'_, Ledger> {
        self.ledger.borrow_mut()
    }

    /// Posts a message of the ledger. Returns whether it was accepted, or `None` if the server was
    /// killed before its answer.
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
        let sent = post.try_send().await;
        let answer =
            sent.inspect_err(|error| println!("push {number} has no answer: {error}")).ok()?;
        self.ledger().answered(number, &answer);
        Some(answer.status == 201)
    }

    /// A user agent received a message.
    pub(super) fn delivered(&self, agent: usize, number: usize, version: &str) {
        self.ledger().delivered(agent, number, version);
        if let Some(countdown) = &*self.countdown.borrow() {
            countdown.step();
        }
    }

    pub(super) fn light(&self, countdown: KillCountdown) {
        self.countdown.replace(Some(countdown));
    }

    /// The server was killed and started again.
    pub(super) fn server_restarted(&self) {
        self.ledger().server_died();
        self.countdown.take();
        self.arrived.take();
        self.restarts.send_modify(|restarts| *restarts += 1);
    }

    pub(super) fn restarts(&self) -> usize {
        *self.restarts.borrow()
    }

    /// Waits for a restart after the one with this number.
    pub(super) async fn restart_after(&self, seen: usize) {
        let mut restarts = self.restarts.subscribe();
        restarts.wait_for(|now| *now > seen).await.expect("the run holds the state");
    }

    /// The agent has moved to December.
    pub(super) fn arrived(&self, agent: usize) {
        self.arrived.borrow_mut().insert(agent);
        self.somebody_arrived.notify_one();
    }

    /// Waits until this number of agents has moved since the last restart.
    pub(super) async fn all_arrived(&self, count: usize) {
        while self.arrived.borrow().len() < count {
            self.somebody_arrived.notified().await;
        }
    }

    /// The server closed a connection, which it may do for several reasons.
    pub(super) fn connection_closed(&self, _code: u16) {
        self.connections_closed.set(self.connections_closed.get() + 1);
    }

    pub(super) fn sent_away_count(&self) -> usize {
        self.connections_closed.get()
    }

    /// The storm is over, and the agents may disconnect.
    pub(super) fn end_storm(&self) {
        self.is_over.send_replace(true);
    }

    pub(super) fn is_over(&self) -> bool {
        *self.is_over.borrow()
    }

    /// Becomes `true` at the end of the storm.
    pub(super) fn storm_end(&self) -> watch::Receiver<bool> {
        self.is_over.subscribe()
    }
}
