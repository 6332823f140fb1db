//! What a case starts from: a store that is empty, nodes on it, and a look into it.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use state_machine::connection::Limits;
use state_machine::{Chid, Message, MessageId, Month, RouterRecord, Span, Time, Uaid};
use storage::Store;

use super::agent::Agent;
use crate::engines::Engine;
use crate::node::{Bounds, Ground, Node, stored_messages};
use crate::traces;

/// A store. All its methods are this one's.
pub(crate) struct World {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) ground: Ground,
    nodes: Cell<u64>,
}

/// The months that most cases are about.
pub(crate) const OLD: &str = "2026_11";
pub(crate) const NEW: &str = "2026_12";

/// How long the old month's acks are waited for. Time is real here, and this is longer than a test.
pub(crate) const DRAIN_WAIT: Span = Span::from_secs(600);

/// How long an ack is waited for: the same.
pub(crate) const ACK_WAIT: Span = Span::from_secs(300);

/// How long an order that failed waits to be given again: less than anybody waits for an ack.
pub(crate) const STORE_RETRY: Span = Span::from_secs(60);

const YEAR: Span = Span::from_secs(365 * 24 * 60 * 60);

impl World {
    /// With tables for [`OLD`] and [`NEW`].
    pub(crate) async fn open(engine: impl Engine) -> Self {
        let store: Arc<dyn Store> = engine.open();
        let world =
            Self { engine: Box::new(engine), ground: Ground::of(store), nodes: Cell::new(0) };
        world.has_months([OLD, NEW]).await;
        world
    }

    pub(crate) async fn has_months<const N: usize>(&self, months: [&str; N]) {
        for name in months {
            self.ensure_month(month(name)).await.unwrap();
        }
    }

    /// The same store after it was closed.
    pub(crate) async fn restart(self) -> Self {
        let store = self.engine.open();
        Self { ground: self.ground.with(store), ..self }
    }

    /// A node whose clock shows the middle of a month.
    pub(crate) fn node_in(&self, name: &str) -> Node {
        self.node(in_month(name), |_| {})
    }

    /// A node that is different somehow. Its clock shows a minute more than that of the one before,
    /// so that later connections are newer.
    pub(crate) fn node(&self, now: Time, differ: impl FnOnce(&mut Bounds)) -> Node {
        const MINUTE: Span = Span::from_secs(60);
        self.nodes.set(self.nodes.get() + 1);
        let now = now + Span(MINUTE.0 * self.nodes.get());
        let mut bounds = Bounds { limits: limits(), now, ..Bounds::default() };
        bounds.endpoint.answer_wait = Duration::from_millis(ACK_WAIT.0 * 2);
        differ(&mut bounds);
        Node::on(&self.ground, &bounds)
    }

    /// An agent with its channel in [`OLD`], where messages wait for it.
    pub(crate) async fn agent_of_last_month(
        &self,
        node: &Node,
        number: u8,
        messages: usize,
    ) -> (Uaid, Vec<MessageId>) {
        it_becomes(node, OLD);
        let uaid = Agent::subscribes(node, number).await;
        let mut waiting = Vec::new();
        for _ in 0..messages {
            waiting.push(stores(node, uaid).await);
        }
        assert_eq!(self.rows(uaid).await, in_table(OLD, &waiting));
        (uaid, waiting)
    }

    /// A node in [`OLD`], and an agent with its channel, for which messages wait.
    pub(crate) async fn agent_with(&self, messages: usize) -> (Node, Uaid, Vec<MessageId>) {
        let node = self.node_in(OLD);
        let (uaid, waiting) = self.agent_of_last_month(&node, 1, messages).await;
        (node, uaid, waiting)
    }

    /// The same, after which it becomes [`NEW`].
    pub(crate) async fn agent_to_move(&self, messages: usize) -> (Node, Uaid, Vec<MessageId>) {
        let (node, uaid, waiting) = self.agent_with(messages).await;
        it_becomes(&node, NEW);
        (node, uaid, waiting)
    }

    /// An agent visits a node, gets exactly these, and is done.
    pub(crate) async fn is_done_after_visit(
        &self,
        node: &Node,
        uaid: Uaid,
        messages: &[MessageId],
        name: &str,
    ) {
        assert_eq!(Agent::visits(node, uaid).await, messages);
        self.is_done_with(uaid, name).await;
    }

    pub(crate) async fn record_of(&self, uaid: Uaid) -> RouterRecord {
        self.record(uaid).await.unwrap().unwrap()
    }

    /// Every row of an agent, and where it is.
    pub(crate) async fn rows(&self, uaid: Uaid) -> Vec<(Month, MessageId)> {
        let mut rows = Vec::new();
        for month in self.months().await.unwrap() {
            let messages = stored_messages(&**self, uaid, month, Time(0)).await;
            rows.extend(messages.into_iter().map(|message| (month, message.id)));
        }
        rows
    }

    /// The channels of an agent in a month: none where it has no row.
    pub(crate) async fn channels_in(&self, uaid: Uaid, name: &str) -> Option<BTreeSet<Chid>> {
        self.channels(uaid, month(name)).await.unwrap()
    }

    /// An agent has got all there was, and its record is where it belongs.
    pub(crate) async fn is_done_with(&self, uaid: Uaid, name: &str) {
        let record = self.record_of(uaid).await;
        traces::rests(uaid, record.clone(), self.rows(uaid).await);
        assert_eq!((record.curmonth, record.oldmonth), (month(name), None));
        assert_eq!(self.rows(uaid).await, []);
        assert_ne!(self.channels_in(uaid, name).await, None);
    }
}

impl Deref for World {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.ground.store
    }
}

/// An application server sends a message for an agent that is offline: it is stored.
pub(crate) async fn stores(node: &Node, uaid: Uaid) -> MessageId {
    let message = lasting(node);
    let outcome = node.send(uaid, message.clone()).await.unwrap();
    assert_eq!(outcome, state_machine::delivery::Outcome::Stored);
    message.id
}

/// A message that outlasts every test.
pub(crate) fn lasting(node: &Node) -> Message {
    Message { ttl: Span(YEAR.0 * 10), ..node.message() }
}

/// A node's clock jumps to the middle of a month.
pub(crate) fn it_becomes(node: &Node, name: &str) {
    node.clients.clock.set(in_month(name));
}

/// The middle of a month.
pub(crate) fn in_month(name: &str) -> Time {
    const DAY: Span = Span::from_secs(24 * 60 * 60);
    const BEGIN: Time = Time(1_767_700_000_000);
    let mut time = BEGIN;
    while Month::of(time) < month(name) {
        time = time + DAY;
    }
    time + Span(DAY.0 * 14)
}

pub(crate) fn month(name: &str) -> Month {
    name.parse().unwrap()
}

/// These messages, in this month's table.
pub(crate) fn in_table(name: &str, messages: &[MessageId]) -> Vec<(Month, MessageId)> {
    messages.iter().map(|id| (month(name), *id)).collect()
}

/// No deadline passes unless a test advances the clock.
fn limits() -> Limits {
    Limits {
        hello_timeout: ACK_WAIT,
        ack_wait: ACK_WAIT,
        drain_wait: DRAIN_WAIT,
        keepalive_interval: YEAR,
        session_max: Span(YEAR.0 * 10),
        storage_recheck: YEAR,
        store_retry: STORE_RETRY,
        ..harness::transcript::default_limits()
    }
}
