//! A small world around the real machines: a store, three nodes, endpoints, one agent, and a clock.
//!
//! The test chooses the next [`Op`]. Every operation in progress can be overtaken, delayed, lost or
//! repeated, as far as the contracts allow it.

mod agent;
mod connection;
mod endpoints;
mod nodes;
mod notifications;
mod op;
mod push;
mod rest;
mod under_way;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::str::FromStr;
use std::sync::Arc;

use agent::Agent;
use connection::ClientConnection;
pub(crate) use harness::model_store as store;
use harness::transcript::Bindings;
use notifications::Post;
pub(crate) use op::{CHANNELS, EndpointClock, How, Lifetime, NODES, Op, Parting};
use push::Push;
use state_machine::broadcast::Versions;
use state_machine::connection::{Config, ConnectionSeed, Event, Limits};
use state_machine::registry::Registry;
use state_machine::wire::ClientMessage;
use state_machine::{Chid, MessageId, Month, NodeId, Span, Time, Uaid};
use store::Store;

/// A sentence about what the world found wrong.
pub(crate) type SyntaxError = String;

pub(crate) struct World {
    /// Whether the agent speaks SimplePush.
    is_simplepush: bool,
    now: Time,
    store: Store,
    nodes: [Node; NODES],
    connections: Vec<ClientConnection>,
    pushes: Vec<Push>,
    agent: Agent,
    post: Post,
    /// Messages whose acks are settled.
    settled: BTreeSet<MessageId>,
    operations_given: usize,
    /// Whether a notification of a stored message was lost, so that only the next one or the
    /// recheck finds the message.
    is_nudge_lost: bool,
    log: Vec<String>,
}

struct Node {
    config: Arc<Config>,
    registry: Registry<()>,
    /// How far its clock is behind.
    behind: Span,
    /// Whether it was shut down and has not restarted since.
    is_down: bool,
}

/// A time in November.
const BEGIN: Time = Time(1_793_700_000_000);

impl World {
    pub(crate) fn new() -> Self {
        Self::with(&limits(), false)
    }

    /// The agent speaks SimplePush. A connection remembers all its acks.
    pub(crate) fn of_simplepush() -> Self {
        Self::with(&Limits { remembered_acks_max: 1000, ..limits() }, true)
    }

    fn with(limits: &Limits, is_simplepush: bool) -> Self {
        let node = |name: &str, behind| Node {
            config: Arc::new(Config {
                node: NodeId::new(name),
                frozen_month: None,
                simplepush: is_simplepush,
                vapid_keys: [].into(),
                limits: limits.clone(),
            }),
            registry: Registry::new(),
            behind,
            is_down: false,
        };
        Self {
            is_simplepush,
            now: BEGIN,
            store: Store::default(),
            nodes: [
                node("ahead", Span::ZERO),
                node("behind", Span(500)),
                node("between", Span(100)),
            ],
            connections: Vec::new(),
            pushes: Vec::new(),
            agent: Agent::default(),
            post: Post::default(),
            settled: BTreeSet::new(),
            operations_given: 0,
            is_nudge_lost: false,
            log: Vec::new(),
        }
    }

    /// The log of a failed history.
    pub(crate) fn log(&self) -> String {
        self.log.join("\n")
    }

    pub(crate) fn happens(&mut self, op: &Op) -> Result<(), SyntaxError> {
        self.log.push(format!("== {op:?}"));
        match *op {
            Op::Connect { node, parting } => self.connect(node, parting),
            Op::Leave { parting } => self.leave(parting),
            Op::Register { channel } => {
                self.say(ClientMessage::Register { chid: chid(channel), key: None })
            }
            Op::Unregister => self.unregister(),
            Op::Urgency { min } => self.say(ClientMessage::Urgency { min }),
            Op::Push { channel, topic, lifetime, urgency, clock } => {
                self.push(chid(channel), topic, (lifetime, urgency), clock);
                Ok(())
            }
            Op::AckOne { nth } => self.ack(Some(nth)),
            Op::AckAll => self.ack(None),
            Op::Go { which, how } => match self.under_way() {
                things if things.is_empty() => Ok(()),
                things => self.comes_to_pass(things[which % things.len()], how),
            },
            Op::GoAll => self.go_all(),
            Op::Wait { ms } => self.time_passes(self.now + Span(ms)),
            Op::ToDeadline => match self.deadline() {
                Some((at, _)) => self.time_passes(at),
                None => Ok(()),
            },
            Op::NextMonth => self.time_passes(next_month(self.now) + Span(250)),
            Op::ShutDown { node } => self.shut_down(node),
        }
    }

    fn connect(&mut self, node: usize, parting: Parting) -> Result<(), SyntaxError> {
        self.leave(parting)?;
        self.nodes[node].is_down = false;
        let fresh_uaid = named(&format!("U{}", self.connections.len()));
        let at = self.now - self.nodes[node].behind;
        let seed = ConnectionSeed { fresh_uaid, jitter: 0 };
        self.connections.push(ClientConnection::new(
            node,
            Arc::clone(&self.nodes[node].config),
            seed,
            at,
        ));
        self.agent.connection = Some(self.connections.len() - 1);
        self.agent.is_greeted = false;
        let (uaid, broadcasts) = (self.agent.uaid, Versions::new());
        let use_webpush = !self.is_simplepush;
        self.say_unasked(ClientMessage::Hello { uaid, broadcasts, use_webpush })
    }

    fn leave(&mut self, parting: Parting) -> Result<(), SyntaxError> {
        let Some(connection) = self.agent.connection.take() else { return Ok(()) };
        self.connections[connection].is_heard = parting == Parting::Linger;
        if parting == Parting::HangUp {
            self.step(connection, &Event::SocketClosed)
        } else {
            Ok(())
        }
    }

    /// Sends a command of the agent, once hello was answered.
    fn say(&mut self, message: ClientMessage) -> Result<(), SyntaxError> {
        if self.agent.is_greeted { self.say_unasked(message) } else { Ok(()) }
    }

    fn say_unasked(&mut self, message: ClientMessage) -> Result<(), SyntaxError> {
        self.agent
            .connection
            .map_or(Ok(()), |connection| self.step(connection, &Event::MessageReceived(message)))
    }

    fn unregister(&mut self) -> Result<(), SyntaxError> {
        let chid = chid(CHANNELS - 1);
        self.agent.given_up.insert(chid);
        self.say(ClientMessage::Unregister { chid })
    }

    fn ack(&mut self, nth: Option<usize>) -> Result<(), SyntaxError> {
        if !self.agent.is_greeted || self.agent.connection.is_none() {
            return Ok(());
        }
        let updates = self.agent.acks(nth);
        self.say(ClientMessage::Ack { updates })
    }

    fn shut_down(&mut self, node: usize) -> Result<(), SyntaxError> {
        self.nodes[node].is_down = true;
        for connection in 0..self.connections.len() {
            if self.connections[connection].node == node {
                self.step(connection, &Event::ShutdownBegan)?;
            }
        }
        Ok(())
    }

    fn is_down(&self, node: &NodeId) -> bool {
        self.nodes.iter().any(|other| other.config.node == *node && other.is_down)
    }

    fn find(&self, node: &NodeId, uaid: Uaid) -> Option<usize> {
        let node = self.nodes.iter().find(|other| other.config.node == *node)?;
        node.registry.find(uaid).map(|entry| entry.connection.0 as usize)
    }
}

/// Limits that a short history reaches.
fn limits() -> Limits {
    Limits {
        keepalive_interval: Span::from_secs(24 * 60 * 60),
        storage_recheck: Span::from_secs(12 * 60 * 60),
        first_fetch_rows_max: 1,
        fetch_rows_max: 2,
        unacked_max: 4,
        deferred_commands_max: 3,
        remembered_acks_max: 6,
        channels_max: 4,
        last_connect_shards: 1,
        ..harness::transcript::default_limits()
    }
}

fn chid(channel: u8) -> Chid {
    named(&format!("C{channel}"))
}

/// The id of a transcript's name, so that the log has the form of a transcript.
fn named<T: FromStr<Err: Debug>>(name: &str) -> T {
    Bindings::fixed().text(name).expect("a name").parse().expect("an id")
}

fn next_month(time: Time) -> Time {
    const DAY: Span = Span::from_secs(24 * 60 * 60);
    let mut midnight = Time(time.0 - time.0 % DAY.0);
    while Month::of(midnight) == Month::of(time) {
        midnight = midnight + DAY;
    }
    midnight
}
