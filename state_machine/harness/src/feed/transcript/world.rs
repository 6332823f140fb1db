//! A feed with publishers and consumers, on which the lines of a history are executed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::iter;
use std::sync::Arc;

use super::follower::Follower;
use super::input::{Change, ConsumerName, Input, PublisherName};
use super::node::Node;
use super::outcome::{OutOfTurn, Outcome};
use crate::script::tokens::span_text;
use crate::script::{self, MachineKind, MachineState};
use state_machine::feed::{
    Consumer, ConsumerEvent, ConsumerLimits, PublisherEvent, PublisherLimits, Table, WriteResult,
};
use state_machine::store::PageLimit;
use state_machine::time::{Span, Time};

/// The initial state of a history, as its head lines set it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// The limits of each publisher.
    pub publisher: PublisherLimits,
    /// The limits of each consumer.
    pub consumer: ConsumerLimits,
    /// The maximum number of keys in the feed.
    pub keys_max: u64,
    /// The publishers that assign `MAX + 1`.
    pub naive: BTreeSet<PublisherName>,
}

/// A feed with its publishers and consumers.
#[derive(Debug, Clone)]
pub struct World {
    setup: Setup,
    now: Time,
    table: Table,
    publishers: BTreeMap<PublisherName, Node>,
    consumers: BTreeMap<ConsumerName, Follower>,
}

impl World {
    /// A feed without any write.
    pub fn new(setup: Setup) -> Self {
        Self {
            setup,
            now: Time(0),
            table: Table::default(),
            publishers: BTreeMap::new(),
            consumers: BTreeMap::new(),
        }
    }

    /// Executes an input and returns all its results.
    pub fn happens(&mut self, input: &Input) -> Result<Vec<Outcome>, OutOfTurn> {
        let now = self.now;
        match input {
            Input::Changed(change) => Ok(vec![self.changed(change.clone())]),
            Input::Publisher(name, step) => {
                let limits = || Arc::new(self.setup.publisher.clone());
                let is_naive = self.setup.naive.contains(name);
                let new = || Node::new(*name, limits(), is_naive);
                let node = self.publishers.entry(*name).or_insert_with(new);
                node.step(now, &mut self.table, *step)
            }
            Input::Consumer(name, step) => {
                let new = || Follower::new(*name, self.setup.consumer);
                let follower = self.consumers.entry(*name).or_insert_with(new);
                follower.step(now, &self.table, *step)
            }
            Input::Forgotten(through) => {
                let count = self.table.forget(*through, usize::MAX).count;
                Ok(vec![Outcome::Forgotten(self.table.sequence().horizon, count)])
            }
            Input::Wait(span) => self.waited(*span),
        }
    }

    /// The table in its present state.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The time to the next deadline; none if there is no deadline.
    pub fn until_deadline(&self) -> Option<Span> {
        self.deadlines().into_iter().map(|(at, _)| at.since(self.now)).min()
    }

    fn changed(&mut self, change: Change) -> Outcome {
        let (key, version) = match change {
            Change::Write(key, value) => {
                match self.table.write(key.clone(), value, self.setup.keys_max) {
                    WriteResult::TooManyKeys => return Outcome::TooManyKeys,
                    WriteResult::Done(version) => (key, Some(version)),
                }
            }
            Change::Republish(key) => (key.clone(), self.table.republish(&key)),
            Change::Delete(key) => (key.clone(), self.table.delete(&key)),
        };
        let row = version.and_then(|_| self.table.row(key.as_str()).cloned());
        row.map_or(Outcome::NoSuchKey, |row| Outcome::Row(key, row))
    }

    fn waited(&mut self, span: Span) -> Result<Vec<Outcome>, OutOfTurn> {
        let until = self.now + span;
        if let Some((_, what)) = self.deadlines().into_iter().find(|(at, _)| *at < until) {
            return Err(OutOfTurn::OverADeadline { until: offset(until), what });
        }
        self.now = until;
        let mut outcomes = Vec::new();
        for node in self.publishers.values_mut() {
            outcomes.extend(node.drive(until, PublisherEvent::TimePassed));
        }
        for follower in self.consumers.values_mut().filter(|one| one.machine.is_some()) {
            outcomes.extend(follower.drive(until, ConsumerEvent::TimePassed)?);
        }
        Ok(outcomes)
    }

    /// The deadline of each machine, and its reason.
    fn deadlines(&self) -> Vec<(Time, String)> {
        let publishers = self.publishers.iter().filter_map(|(name, node)| {
            let (at, wait) = node.machine.deadline()?;
            Some((at, format!("{name}: {wait} at {}", offset(at))))
        });
        let consumers = self.consumers.iter().filter_map(|(name, follower)| {
            let at = follower.machine.as_ref()?.deadline()?;
            Some((at, format!("{name}: retry at {}", offset(at))))
        });
        publishers.chain(consumers).collect()
    }
}

impl script::World for World {
    type Input = Input;

    fn happens(&mut self, input: &Input) -> Result<Vec<String>, String> {
        let outcomes = Self::happens(self, input).map_err(|reason| reason.to_string())?;
        Ok(outcomes.iter().map(Outcome::to_string).collect())
    }

    fn elapsed_ms(&self) -> u64 {
        self.now.0
    }

    fn machines(&self) -> Vec<MachineState> {
        let publishers = self.publishers.iter().map(|(name, node)| {
            let deadline = node.machine.deadline().map(|(at, wait)| (at, wait.to_string()));
            MachineState::new(name.to_string(), MachineKind::Publisher, &node.machine.phase())
                .with_deadlines(deadline.into_iter(), Time(0))
        });
        let consumers = self.consumers.iter().map(|(name, follower)| {
            let machine = follower.machine.as_ref();
            let deadline = machine.and_then(Consumer::deadline).map(|at| (at, "retry".to_owned()));
            let phase = machine.map_or("New".to_owned(), Consumer::phase);
            MachineState::new(name.to_string(), MachineKind::Consumer, &phase)
                .with_deadlines(deadline.into_iter(), Time(0))
        });
        publishers.chain(consumers).collect()
    }

    fn facts(&self) -> Vec<String> {
        let sequence = self.table.sequence();
        let cursors = self.consumers.iter().filter_map(|(name, follower)| {
            Some(format!("cursor of {name}: {}", follower.machine.as_ref()?.cursor()))
        });
        let table = format!("keys {}, sequence {}", sequence.keys, sequence.value);
        iter::once(table).chain(cursors).collect()
    }
}

fn offset(time: Time) -> String {
    format!("+{}", span_text(time.since(Time(0))))
}

impl Default for Setup {
    fn default() -> Self {
        const RETRY: Span = Span::from_secs(1);
        let poll = Span::from_secs(60);
        let page = PageLimit { rows: 10, bytes: usize::MAX };
        Self {
            publisher: PublisherLimits { batch_max: 10, retry: RETRY, poll },
            consumer: ConsumerLimits { page, retry: RETRY },
            keys_max: 1000,
            naive: BTreeSet::new(),
        }
    }
}

impl Setup {
    /// The limits by name.
    fn limits(&self) -> [(&'static str, String); 5] {
        let Self { publisher, consumer, keys_max, .. } = self;
        [
            ("batch", publisher.batch_max.to_string()),
            ("page", consumer.page.rows.to_string()),
            ("keys", keys_max.to_string()),
            ("retry", span_text(publisher.retry)),
            ("poll", span_text(publisher.poll)),
        ]
    }
}

/// The head lines in the form that the parser reads; none if everything is the default.
impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.limits().into_iter().zip(Self::default().limits());
        let set = pairs.filter(|(limit, default)| limit != default);
        let set: Vec<String> = set.map(|((name, value), _)| format!(" {name}={value}")).collect();
        if !set.is_empty() {
            writeln!(f, "limits{}", set.concat())?;
        }
        if !self.naive.is_empty() {
            let names: Vec<String> = self.naive.iter().map(|name| format!(" {name}")).collect();
            writeln!(f, "naive{}", names.concat())?;
        }
        Ok(())
    }
}
