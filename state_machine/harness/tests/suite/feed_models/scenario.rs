//! A scenario: an initial world, and bounds for the actions in it.

use std::sync::Arc;

use crate::feed_models::promises::{AcknowledgedWrites, Promise};
use state_machine::feed::{ConsumerLimits, FeedKey, PublisherLimits};
use state_machine::store::PageLimit;
use state_machine::{Span, Time};

use super::action::{Action, Change, KeyIndex, NodeIndex};
use super::follower::Follower;
use super::mutation::Mutation;
use super::node::Node;
use super::rule::{Call, FeedCall, Rule};
use super::store::Store;
use super::world::World;
use crate::search::{Diary, Search, Sight};

/// A model's name, initial world, bounds and checks.
#[derive(Clone)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) publisher: Arc<PublisherLimits>,
    pub(crate) consumer: ConsumerLimits,
    pub(crate) keys: Vec<FeedKey>,
    /// The nodes through which keys are changed.
    pub(crate) writers: Vec<NodeIndex>,
    /// The initial world of the search.
    pub(crate) start: World,
    /// Whether other actions happen between the steps of a change of a key.
    pub(crate) writes_in_steps: bool,
    pub(crate) mutation: Option<Mutation>,
    /// The one promise that the search must violate; the others are then ignored.
    pub(crate) quarry: Option<Promise>,
    /// States that the search must reach; otherwise the scenario proves nothing.
    pub(crate) sights: Vec<Sight<Self>>,
}

/// How often each action may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Bounds {
    pub(crate) writes: u8,
    pub(crate) republishes: u8,
    pub(crate) deletes: u8,
    pub(crate) forgets: u8,
    pub(crate) polls: u8,
    pub(crate) node_crashes: u8,
    pub(crate) follower_crashes: u8,
    pub(crate) refusals: u8,
    pub(crate) lost_answers: u8,
}

impl Scenario {
    /// A feed without writes, of at most `keys` keys, with `nodes` nodes and no follower.
    pub(crate) fn new(name: &'static str, keys: usize, nodes: usize) -> Self {
        let publisher = PublisherLimits { batch_max: 1, retry: Span(100), poll: Span(1000) };
        let publisher = Arc::new(publisher);
        let page = PageLimit { rows: 2, bytes: usize::MAX };
        let key = |at: usize| FeedKey::parse(["a", "b", "c"][at]).expect("a key");
        let start = World {
            now: Time(0),
            store: Store::default(),
            nodes: vec![Node::start(&publisher, false); nodes],
            followers: Vec::new(),
            astray: Vec::new(),
            writes: Vec::new(),
            forgetting: None,
            ledger: AcknowledgedWrites::default(),
            left: Bounds::default(),
            broken: None,
            diary: Diary::default(),
        };
        Self {
            name,
            publisher,
            consumer: ConsumerLimits { page, retry: Span(100) },
            keys: (0..keys).map(key).collect(),
            writers: (0..nodes).collect(),
            start,
            writes_in_steps: false,
            mutation: None,
            quarry: None,
            sights: Vec::new(),
        }
    }

    /// A rule that begins.
    pub(crate) fn rule(&self, call: Call) -> Rule {
        let is_seen_in_part = self.start.store.tables.is_seen_in_part;
        Rule::begin(FeedCall { call, is_seen_in_part, mutation: self.mutation })
    }

    /// Sets the keys per publication. Call it before any action.
    pub(crate) fn batch(mut self, batch_max: usize) -> Self {
        self.publisher = Arc::new(PublisherLimits { batch_max, ..*self.publisher });
        let start = Node::start(&self.publisher, false);
        self.start.nodes.fill(start);
        self
    }

    /// Lets readers see publications in part. Call it before any action.
    pub(crate) fn seen_in_part(mut self) -> Self {
        self.start.store.tables.is_seen_in_part = true;
        self
    }

    /// Lets writers wait for each other, and for publications. Call it after those of the initial world.
    pub(crate) fn writing_in_steps(self) -> Self {
        Self { writes_in_steps: true, ..self }
    }

    /// Sets the updates per page.
    pub(crate) fn page(mut self, rows: usize) -> Self {
        self.consumer.page.rows = rows;
        self
    }

    /// Changes keys through these nodes only.
    pub(crate) fn writers(mut self, nodes: &[NodeIndex]) -> Self {
        self.writers = nodes.to_vec();
        self
    }

    /// Adds a follower through a node, which has not started.
    pub(crate) fn follower(mut self, node: NodeIndex) -> Self {
        self.start.followers.push(Follower::new(node));
        self
    }

    /// Writes and publishes these keys, one after the other, in the initial world.
    pub(crate) fn published(mut self, keys: &[KeyIndex]) -> Self {
        let mut start = self.start.clone();
        for key in keys {
            start.left.writes = 10;
            start.happens(&self, &Action::Changes(0, *key, Change::Write));
            start.runs_out(&self);
        }
        self.start = start;
        self
    }

    /// All followers have started, and have every write.
    pub(crate) fn followed(mut self) -> Self {
        let mut start = self.start.clone();
        for follower in 0..start.followers.len() {
            start.happens(&self, &Action::Starts(follower));
        }
        start.runs_out(&self);
        self.start = start;
        self
    }

    /// Sets the bounds. Call it last.
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
}
