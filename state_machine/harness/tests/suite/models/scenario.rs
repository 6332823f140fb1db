//! A scenario: an initial world, and bounds for the actions in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use harness::transcript::Bindings;
use state_machine::connection::{Config, Limits};
use state_machine::feed::{FeedKey, FeedName};
use state_machine::store::StoreOp;
use state_machine::{
    Chid, LastConnect, Message, Month, NodeId, ReceiptRequest, RouterRecord, RouterType, Span,
    Time, Topic, Uaid,
};

use super::action::{NodeIndex, Which};
use super::check::Quarry;
use super::endpoint::Push;
use super::mutation::Mutation;
use super::node::Node;
use super::world::World;
use crate::search::{Search, Sight};

/// The first instant of December 2026.
pub(crate) const DECEMBER: Time = Time(1_796_083_200_000);

/// The last connection before December.
pub(crate) const NOVEMBER: Time = Time(DECEMBER.0 - 60 * 60 * 1000);

/// Milliseconds by which a clock is ahead of the world's; a negative number is behind it.
pub(crate) type Ahead = i64;

/// The most that a clock is ahead or behind.
pub(crate) const APART: Ahead = 500;

/// A lifetime that outlasts every scenario.
const LONG: Span = Span::from_secs(100 * 365 * 24 * 60 * 60);

/// Longer than anything in a scenario takes.
const AFTER_THE_END: Span = Span::from_secs(24 * 60 * 60);

/// A model's name, initial world, bounds and checks.
#[derive(Clone)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) nodes: Vec<NodeTerms>,
    /// The messages of the application servers: each may be pushed once, at any time.
    pub(crate) messages: Vec<Message>,
    /// The message with a greater id as which each outranked push is repeated.
    pub(crate) repeats: BTreeMap<Which, Which>,
    /// The clocks of the endpoints that are not the world's, by their pushes.
    endpoints: BTreeMap<Which, Ahead>,
    /// The initial world of the search.
    pub(crate) start: World,
    pub(crate) freedom: Freedom,
    pub(crate) mutation: Option<Mutation>,
    /// The one promise or rule that the search must violate; the others are then ignored.
    pub(crate) quarry: Option<Quarry>,
    /// States that the search must reach; otherwise the scenario proves nothing.
    pub(crate) sights: Vec<Sight<Self>>,
}

/// The kinds of disorder that a scenario allows. Each doubles a search, so a scenario allows only
/// those of its subject.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Freedom {
    /// Other actions may happen between the store's execution of an operation and its answer.
    pub(crate) answers_travel: bool,
    /// Acks may take so long that deadlines pass.
    pub(crate) acks_tarry: bool,
    /// The agent may reconnect before its node detects the end of the previous connection.
    pub(crate) leaves_unnoticed: bool,
    /// Acks may arrive on a connection that the agent has abandoned.
    pub(crate) acks_come_late: bool,
    /// Messages are pushed in any order, not only after each other.
    pub(crate) pushes_in_any_order: bool,
    /// Notifications between nodes may arrive late, after any other action.
    pub(crate) notifications_travel: bool,
    /// Endpoints and nodes are separate processes. A request outlives its endpoint, an answer may
    /// be lost unnoticed, and the breaker for a node that did not answer is open for a moment.
    pub(crate) endpoints_apart: bool,
    /// A crashed node restarts later, or never.
    pub(crate) nodes_stay_down: bool,
}

/// The settings of a node.
#[derive(Clone)]
pub(crate) struct NodeTerms {
    pub(crate) config: Arc<Config>,
    /// The settings that its connections are checked against: the same, unless a mutation changed
    /// the config.
    pub(crate) rules: Arc<Config>,
    ahead: Ahead,
}

/// How often each action may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Bounds {
    pub(crate) connects: u8,
    pub(crate) hang_ups: u8,
    pub(crate) registers: u8,
    pub(crate) unregisters: u8,
    /// Changes of the agent's minimal urgency.
    pub(crate) urgencies: u8,
    /// Deadlines of an idle connection: a ping, and the end for silence or age.
    pub(crate) idle_deadlines: u8,
    pub(crate) node_crashes: u8,
    pub(crate) drains: u8,
    pub(crate) endpoint_crashes: u8,
    pub(crate) store_refusals: u8,
    /// Writes that the store has no space for.
    pub(crate) no_spaces: u8,
    pub(crate) lost_answers: u8,
}

impl Scenario {
    /// An agent that is away, with one channel in the table of `month`; one node, and no push.
    pub(crate) fn new(name: &'static str, month: Month, messages: Vec<Message>) -> Self {
        let start = World::new(messages.len(), record(month));
        let scenario = Self {
            name,
            nodes: Vec::new(),
            messages,
            repeats: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            start,
            freedom: Freedom::default(),
            mutation: None,
            quarry: None,
            sights: Vec::new(),
        };
        scenario.node("A", 0)
    }

    /// Adds a node with this clock.
    pub(crate) fn node(mut self, name: &str, ahead: Ahead) -> Self {
        let limits = limits();
        let config = Config {
            node: NodeId::new(name),
            frozen_month: None,
            simplepush: false,
            vapid_keys: [].into(),
            limits,
        };
        let config = Arc::new(config);
        self.nodes.push(NodeTerms { rules: Arc::clone(&config), config, ahead });
        self.start.nodes.push(Node::default());
        let freedom = self.freedom;
        self.free(freedom)
    }

    /// Sets the clock of the first node.
    pub(crate) fn first_node(mut self, ahead: Ahead) -> Self {
        self.nodes[0].ahead = ahead;
        self
    }

    /// Sets the clock of the endpoints of these pushes.
    pub(crate) fn endpoints(
        mut self,
        pushes: impl IntoIterator<Item = Which>,
        ahead: Ahead,
    ) -> Self {
        self.endpoints.extend(pushes.into_iter().map(|which| (which, ahead)));
        self
    }

    pub(crate) fn limits(mut self, change: impl Fn(&mut Limits)) -> Self {
        for node in &mut self.nodes {
            let mut config = Config::clone(&node.config);
            change(&mut config.limits);
            node.config = Arc::new(config);
            node.rules = Arc::clone(&node.config);
        }
        self
    }

    /// Seeds a bug, after everything that sets limits.
    pub(super) fn with(mut self, mutation: Mutation) -> Self {
        self.mutation = Some(mutation);
        if self.mutation == Some(Mutation::AcksForgotten) {
            for node in &mut self.nodes {
                let mut config = Config::clone(&node.config);
                config.limits.remembered_acks_max = 1;
                node.config = Arc::new(config);
            }
        }
        self
    }

    /// Whether it is the id of a repeated push.
    pub(crate) fn is_spare(&self, which: Which) -> bool {
        self.repeats.values().any(|spare| *spare == which)
    }

    /// A push that is outranked takes the id of another message.
    pub(crate) fn repeated(mut self, pairs: impl IntoIterator<Item = (Which, Which)>) -> Self {
        self.repeats.extend(pairs);
        for spare in self.repeats.values() {
            self.start.pushes[*spare] = Push::Spare;
        }
        self
    }

    /// Stores these messages in the initial world.
    pub(crate) fn waiting(mut self, messages: impl IntoIterator<Item = Which>) -> Self {
        for which in messages {
            self.start.waits(&self.messages, which);
        }
        self
    }

    /// Bounds the messages that wait in a table.
    pub(crate) fn waiting_max(mut self, max: usize) -> Self {
        self.start.store.waiting_max = Some(max);
        self
    }

    /// Gives the agent a second channel.
    pub(crate) fn second_channel(mut self) -> Self {
        let World { agent, store, .. } = &mut self.start;
        agent.channels.insert(channel(2));
        for RouterRecord { uaid, curmonth: month, .. } in store.records.clone().into_values() {
            store.execute(&StoreOp::AddChannels { uaid, month, channels: agent.channels.clone() });
        }
        self
    }

    /// Connects the agent to a node at `at`, with its registration finished.
    pub(crate) fn connected(mut self, node: NodeIndex, at: Time) -> Self {
        let mut start = World { now: at, ..self.start.clone() };
        start.connects(&self, node);
        start.runs_out(&self);
        self.start = World { now: DECEMBER, ..start };
        self
    }

    /// Allows disorder. Call it before the agent connects: an ack that is never late needs no
    /// deadline.
    pub(crate) fn free(self, freedom: Freedom) -> Self {
        let Limits { ack_wait, drain_wait, .. } = harness::transcript::default_limits();
        let waits = [ack_wait, drain_wait];
        let [ack_wait, drain_wait] =
            if freedom.acks_tarry { waits } else { waits.map(|_| AFTER_THE_END) };
        let scenario = self.limits(|limits| {
            (limits.ack_wait, limits.drain_wait) = (ack_wait, drain_wait);
        });
        Self { freedom, ..scenario }
    }

    pub(crate) fn bound(mut self, bounds: Bounds) -> Self {
        self.start.left = bounds;
        self
    }

    pub(crate) fn seen(
        mut self,
        name: &'static str,
        sight: fn(&Search<Self>, &World) -> bool,
    ) -> Self {
        self.sights.push((name, sight));
        self
    }

    /// The time by a node's clock.
    pub(crate) fn clock(&self, node: NodeIndex, now: Time) -> Time {
        shifted(now, self.nodes[node].ahead)
    }

    /// When a node's clock shows that time.
    pub(crate) fn when(&self, node: NodeIndex, shown: Time) -> Time {
        shifted(shown, -self.nodes[node].ahead)
    }

    /// The time by the clock of a push's endpoint.
    pub(crate) fn endpoint_clock(&self, which: Which, now: Time) -> Time {
        shifted(now, self.endpoints.get(&which).copied().unwrap_or(0))
    }

    pub(crate) fn node_named(&self, name: &NodeId) -> Option<NodeIndex> {
        self.nodes.iter().position(|node| node.config.node == *name)
    }
}

fn shifted(time: Time, ahead: Ahead) -> Time {
    Time(time.0.saturating_add_signed(ahead))
}

/// Whether the message does not expire by any clock, as long as no deadline passes.
pub(crate) fn outlasts_clocks(message: &Message) -> bool {
    shifted(DECEMBER, APART) + Span(10) < message.expires_at()
}

/// Limits that a search reaches. Only the subject of a scenario has a deadline.
fn limits() -> Limits {
    Limits {
        keepalive_interval: AFTER_THE_END,
        session_max: AFTER_THE_END,
        storage_recheck: AFTER_THE_END,
        fetch_rows_max: 2,
        unacked_max: 4,
        remembered_acks_max: 6,
        ..harness::transcript::default_limits()
    }
}

pub(crate) fn uaid() -> Uaid {
    id("U1").parse().expect("a uaid")
}

pub(crate) fn fresh_uaid() -> Uaid {
    id("U9").parse().expect("a uaid")
}

pub(crate) fn channel(number: u8) -> Chid {
    id(&format!("C{number}")).parse().expect("a channel")
}

/// A message without a topic, pushed to the first channel in December.
pub(crate) fn message(which: usize) -> Message {
    let id = id(&format!("M{which}")).parse().expect("a message id");
    Message::new(id, channel(1), DECEMBER, LONG)
}

/// A message that a later one of its topic replaces.
pub(crate) fn message_with_topic(which: usize) -> Message {
    let id = id(&format!("M{which}t")).parse().expect("a message id");
    Message { id, topic: Topic::parse("topic").ok(), ..message(which) }
}

/// A message that an endpoint with this clock accepted in the first instant of December, or `ago` milliseconds before.
pub(crate) fn message_for(which: usize, ahead: Ahead, ago: i64, ttl: Span) -> Message {
    Message { accepted_at: shifted(DECEMBER, ahead - ago), ttl, ..message(which) }
}

/// The message, whose sender wants a receipt.
pub(crate) fn wanting(message: Message) -> Message {
    let id = message.id.with_receipt(true);
    let key = FeedKey::parse(&id.to_string()).expect("an id is a key");
    let subscription = FeedName::receipts(DECEMBER, 1);
    let receipt = Some(Box::new(ReceiptRequest { subscription, key }));
    Message { id, receipt, ..message }
}

/// The record of an agent that is away.
fn record(curmonth: Month) -> RouterRecord {
    RouterRecord {
        uaid: uaid(),
        router_type: RouterType::WebPush,
        node: None,
        connected_at: NOVEMBER,
        last_connect: LastConnect::of(NOVEMBER, uaid(), LastConnect::SHARDS),
        curmonth,
        oldmonth: None,
    }
}

/// The id of a transcript's name, so that counterexamples use the same names.
fn id(name: &str) -> String {
    Bindings::fixed().text(name).expect("a name")
}
