//! Two nodes with a publisher and a consumer each, on which random operations are executed and
//! checked.
//!
//! The trial is the worst driver that the machines allow: notifications are late, steps interleave,
//! the store fails, nodes crash. It keeps only what every driver must keep. Each write is signalled
//! to the publisher of its node in the end, a restarted node sweeps, and each announcement reaches
//! the consumer of the node.

use std::collections::BTreeMap;

use harness::feed::transcript::{
    Change, ConsumerName, ConsumerStep, Input, Outcome, PublisherName, PublisherStep, Setup, World,
};
use state_machine::feed::{
    ConsumerEffect, FeedKey, FeedPage, FeedSyncId, FeedValue, PublisherEffect, Version,
};

/// The number of nodes in a trial.
pub(crate) const NODES: u8 = 2;

/// The number of keys that are written.
pub(crate) const KEYS: u8 = 4;

/// A random operation. If it is not possible, nothing happens.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Write {
        node: u8,
        key: u8,
    },
    Republish {
        node: u8,
        key: u8,
    },
    Delete {
        node: u8,
        key: u8,
    },
    /// The publisher of the node is notified of its writes.
    Tell {
        node: u8,
    },
    /// The consumer of the node is notified of the feed's head.
    Hear {
        node: u8,
    },
    Publisher {
        node: u8,
        step: PublisherStep,
    },
    Consumer {
        node: u8,
        step: ConsumerStep,
    },
    /// Time passes until the next deadline.
    ToDeadline,
}

/// A sentence about what the trial found wrong.
pub(crate) type SyntaxError = String;

pub(crate) struct Trial {
    setup: Setup,
    world: World,
    log: String,
    nodes: BTreeMap<u8, Node>,
    /// The value of the next write.
    value: u64,
}

/// The duties of a node's driver, and the updates that its consumer received.
#[derive(Default)]
struct Node {
    is_owed_a_word: bool,
    announced: Option<FeedSyncId>,
    page: FeedPage,
    cursor: FeedSyncId,
    versions: BTreeMap<FeedKey, Version>,
}

impl Trial {
    /// A feed with one key, and nodes that follow it.
    pub(crate) fn new(is_naive: bool, batch_max: usize) -> Result<Self, SyntaxError> {
        let mut setup = Setup::default();
        setup.publisher.batch_max = batch_max;
        setup.consumer.page.rows = 2;
        if is_naive {
            setup.naive = (0..NODES).map(PublisherName).collect();
        }
        let world = World::new(setup.clone());
        let nodes = (0..NODES).map(|node| (node, Node::default())).collect();
        let mut trial = Self { setup, world, log: String::new(), nodes, value: 0 };
        trial.happens(&Op::Write { node: 0, key: 0 })?;
        (0..NODES).try_for_each(|node| trial.publisher_begins(node))?;
        (0..NODES).try_for_each(|node| trial.consumer_begins(node))?;
        Ok(trial)
    }

    /// Executes an operation and checks its results.
    pub(crate) fn happens(&mut self, op: &Op) -> Result<(), SyntaxError> {
        match *op {
            Op::Write { node, key } => {
                self.value += 1;
                let value = FeedValue::parse(&self.value.to_string()).unwrap();
                self.changes(node, Change::Write(key_of(key), value))
            }
            Op::Republish { node, key } => self.changes(node, Change::Republish(key_of(key))),
            Op::Delete { node, key } => self.changes(node, Change::Delete(key_of(key))),
            Op::Tell { node } => self.tells(node).map(|_| ()),
            Op::Hear { node } => self.hears(node).map(|_| ()),
            Op::Publisher { node, step } => {
                self.publishes(node, step)?;
                if step == PublisherStep::Crashes { self.publisher_begins(node) } else { Ok(()) }
            }
            Op::Consumer { node, step } => {
                self.follows(node, step)?;
                if step == ConsumerStep::Crashes { self.consumer_begins(node) } else { Ok(()) }
            }
            Op::ToDeadline => self.waits().map(|_| ()),
        }
    }

    /// Runs to the end with a store that no longer fails. Every change must be numbered because it
    /// was signalled, not because of a periodic sweep, and every consumer must receive every write.
    pub(crate) fn comes_to_rest(&mut self) -> Result<(), SyntaxError> {
        self.watch(false)?;
        self.go_on_for_a_while()?;
        if let Some(waits) = self.world.table().pending(None, 1).first() {
            return Err(format!(
                "{} has no number, and no publisher is about to assign one",
                waits.key
            ));
        }
        self.watch(true)?;
        self.go_on_for_a_while()?;
        self.all_compare()?;
        // The other node's publisher gets no notification of this write: it has to sweep.
        self.happens(&Op::Write { node: 0, key: 0 })?;
        self.go_on_for_a_while()?;
        self.all_compare()
    }

    /// All inputs and results so far, as a history.
    pub(crate) fn history(&self) -> String {
        format!("# Found by chance.\n{}\n{}", self.setup, self.log)
    }

    fn watch(&mut self, is_watched: bool) -> Result<(), SyntaxError> {
        let step = PublisherStep::Watched(is_watched);
        (0..NODES).try_for_each(|node| self.publishes(node, step).map(|_| ()))
    }

    fn go_on_for_a_while(&mut self) -> Result<(), SyntaxError> {
        const DEADLINES: usize = 16;
        for _ in 0..DEADLINES {
            while self.goes_on()? {}
            self.waits()?;
        }
        Ok(())
    }

    fn all_compare(&mut self) -> Result<(), SyntaxError> {
        (0..NODES).try_for_each(|node| self.follows(node, ConsumerStep::Compares).map(|_| ()))
    }

    fn goes_on(&mut self) -> Result<bool, SyntaxError> {
        let mut is_on = false;
        for node in 0..NODES {
            is_on |= self.tells(node)?;
            is_on |= self.publishes(node, PublisherStep::Publishes)?;
            is_on |= self.hears(node)?;
            is_on |= self.follows(node, ConsumerStep::Fetches)?;
            is_on |= self.follows(node, ConsumerStep::Consumed)?;
        }
        Ok(is_on)
    }

    /// A restarted node sweeps, and the feed has a follower there.
    fn publisher_begins(&mut self, node: u8) -> Result<(), SyntaxError> {
        self.node(node).is_owed_a_word = true;
        self.publishes(node, PublisherStep::Watched(true)).map(|_| ())
    }

    fn consumer_begins(&mut self, node: u8) -> Result<(), SyntaxError> {
        self.follows(node, ConsumerStep::Starts(None)).map(|_| ())
    }

    fn changes(&mut self, node: u8, change: Change) -> Result<(), SyntaxError> {
        self.input(&Input::Changed(change))?;
        self.node(node).is_owed_a_word = true;
        Ok(())
    }

    fn tells(&mut self, node: u8) -> Result<bool, SyntaxError> {
        let is_owed = std::mem::take(&mut self.node(node).is_owed_a_word);
        Ok(is_owed && self.publishes(node, PublisherStep::Written)?)
    }

    fn hears(&mut self, node: u8) -> Result<bool, SyntaxError> {
        match self.node(node).announced.take() {
            Some(head) => self.follows(node, ConsumerStep::Hears(head)),
            None => Ok(false),
        }
    }

    fn waits(&mut self) -> Result<bool, SyntaxError> {
        match self.world.until_deadline() {
            Some(span) => self.input(&Input::Wait(span)),
            None => Ok(false),
        }
    }

    fn publishes(&mut self, node: u8, step: PublisherStep) -> Result<bool, SyntaxError> {
        self.input(&Input::Publisher(PublisherName(node), step))
    }

    fn follows(&mut self, node: u8, step: ConsumerStep) -> Result<bool, SyntaxError> {
        let could = self.input(&Input::Consumer(ConsumerName(node), step))?;
        if could && step == ConsumerStep::Consumed {
            self.node(node).consumed();
        }
        Ok(could)
    }

    /// Executes an input if it is possible, and checks its results.
    fn input(&mut self, input: &Input) -> Result<bool, SyntaxError> {
        let Ok(outcomes) = self.world.happens(input) else { return Ok(false) };
        self.log += &format!("{input}\n");
        for outcome in outcomes {
            self.log += &format!("{outcome}\n");
            self.came(outcome)?;
        }
        Ok(true)
    }

    fn came(&mut self, outcome: Outcome) -> Result<(), SyntaxError> {
        let text = outcome.to_string();
        match outcome {
            Outcome::Publisher(name, PublisherEffect::Announce { head }) => {
                self.node(name.0).announced = Some(head);
                Ok(())
            }
            Outcome::Consumer(name, ConsumerEffect::Consume(page)) => {
                self.node(name.0).is_given(page).map_err(|wrong| format!("{text}: {wrong}"))
            }
            Outcome::Consumer(_, ConsumerEffect::End(_)) | Outcome::Misses(..) => Err(text),
            _ => Ok(()),
        }
    }

    fn node(&mut self, node: u8) -> &mut Node {
        self.nodes.get_mut(&node).expect("every node is there from the beginning")
    }
}

impl Node {
    /// The updates of a page are in the order of their numbers, after the consumer's cursor, and
    /// never older than the replica.
    fn is_given(&mut self, page: FeedPage) -> Result<(), SyntaxError> {
        let mut last = self.cursor;
        for update in &page.updates {
            if update.feed_sync_id <= last {
                return Err(format!("{} after {last}", update.feed_sync_id));
            }
            last = update.feed_sync_id;
            if self.versions.get(&update.key).is_some_and(|seen| *seen >= update.version) {
                return Err(format!("{:?} is older than what was seen", update.key));
            }
        }
        if page.cursor < last || page.head < page.cursor {
            return Err("the cursor is not between the last number and the head".to_owned());
        }
        self.page = page;
        Ok(())
    }

    fn consumed(&mut self) {
        let page = std::mem::take(&mut self.page);
        self.cursor = page.cursor;
        self.versions.extend(page.updates.into_iter().map(|update| (update.key, update.version)));
    }
}

fn key_of(key: u8) -> FeedKey {
    FeedKey::parse(&format!("k{key}")).unwrap()
}
