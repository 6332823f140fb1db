//! A state: a store, nodes, followers, and the promises made to them.

use std::hash::{Hash, Hasher};

use crate::feed_models::promises::{AcknowledgedWrites, Promise, keeps_its_numbers};
use harness::invariants::Broken;
use state_machine::Time;
use state_machine::feed::FeedValue;

use super::action::{Action, Change, Fault, FollowerIndex, KeyIndex, NodeIndex};
use super::follower::Follower;
use super::mutation::Mutation;
use super::node::Node;
use super::scenario::{Bounds, Scenario};
use super::store::{Draft, Store};

/// A world with one feed, its store, nodes and followers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) store: Store,
    pub(crate) nodes: Vec<Node>,
    pub(crate) followers: Vec<Follower>,
    /// Publications that were sent to the store and that no publisher waits for.
    pub(crate) astray: Vec<Draft>,
    pub(crate) ledger: AcknowledgedWrites,
    pub(crate) left: Bounds,
    pub(crate) broken: Option<Broken<Promise>>,
    pub(crate) diary: Diary,
}

/// The log of a counterexample, written only when one is printed. It is not part of a state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Diary(Option<Vec<String>>);

impl World {
    /// Executes an action, and checks the promises that can be checked after each step.
    pub(crate) fn happens(&mut self, scenario: &Scenario, action: &Action) {
        self.note(|| format!("{action:?}"));
        let before = self.store.table.clone();
        match *action {
            Action::Changes(node, key, change) => self.changes(scenario, node, key, change),
            Action::TakesMail(node) => self.takes_mail(scenario, node),
            Action::Publishes(node) => self.publishes(scenario, node),
            Action::PublisherDeadline(node) => self.publisher_deadline(scenario, node),
            Action::Arrives => self.arrives(scenario),
            Action::IsSeen(number) => {
                self.store.hidden.remove(&number);
            }
            Action::Forgets => {
                self.left.forgets -= 1;
                self.store.forgets(scenario.mutation);
            }
            Action::RemovesForgotten => self.store.removes_forgotten(),
            Action::Starts(follower) => self.starts(scenario, follower),
            Action::Reads(follower) => self.reads(scenario, follower),
            Action::HandsOn(follower) => self.hands_on(scenario, follower),
            Action::HearsHead(follower) => self.hears_head(scenario, follower),
            Action::ConsumerDeadline(follower) => self.consumer_deadline(scenario, follower),
            Action::Fails(fault) => self.fails(scenario, fault),
        }
        if let Err(broken) = keeps_its_numbers(&before, &self.store.table) {
            self.breaks(scenario, broken);
        }
    }

    /// Records the first broken promise; in a search for one promise, only that one.
    pub(crate) fn breaks(&mut self, scenario: &Scenario, broken: Broken<Promise>) {
        let counts = scenario.quarry.is_none_or(|quarry| quarry == broken.rule);
        if counts && self.broken.is_none() {
            self.broken = Some(broken);
        }
    }

    pub(crate) fn has_broken(&self, promise: Promise) -> bool {
        self.broken.as_ref().is_some_and(|broken| broken.rule == promise)
    }

    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.diary.0 {
            lines.push(line());
        }
    }

    fn changes(&mut self, scenario: &Scenario, node: NodeIndex, at: KeyIndex, change: Change) {
        let (key, mutation) = (&scenario.keys[at], scenario.mutation);
        let kept = match change {
            Change::Write => {
                self.left.writes -= 1;
                let value = FeedValue::parse(&format!("{} to go", self.left.writes));
                let value = value.expect("a short text");
                let version = self.store.write(mutation, key, value.clone());
                self.ledger.changed(key.clone(), Some(value), version)
            }
            Change::Republish => {
                self.left.republishes -= 1;
                let version = self.store.table.republish(key);
                version.map_or(Ok(()), |version| self.ledger.republished(key, version))
            }
            Change::Delete => {
                self.left.deletes -= 1;
                let version = self.store.delete(mutation, key);
                version.map_or(Ok(()), |version| self.ledger.changed(key.clone(), None, version))
            }
        };
        self.nodes[node].written();
        if let Err(broken) = kept {
            self.breaks(scenario, broken);
        }
    }

    fn arrives(&mut self, scenario: &Scenario) {
        let draft = self.astray.remove(0);
        let outcome = self.store.commit(scenario.mutation, &draft);
        self.note(|| format!("    {outcome:?}: {draft:?}"));
    }

    fn fails(&mut self, scenario: &Scenario, fault: Fault) {
        match fault {
            Fault::NodeCrashes(node) => self.crashes(scenario, node),
            Fault::NodeCrashesAfterWriting(node) => {
                self.goes_astray(node);
                self.crashes(scenario, node);
            }
            Fault::StoreRefuses(node) => {
                self.left.refusals -= 1;
                self.publish_fails(scenario, node);
            }
            Fault::AckReplyLost(node) => {
                self.left.lost_answers -= 1;
                self.goes_astray(node);
                self.publish_fails(scenario, node);
            }
            Fault::FetchFails(follower) => {
                self.left.refusals -= 1;
                self.fetch_fails(scenario, follower);
            }
            Fault::FollowerCrashes(follower) => {
                self.left.follower_crashes -= 1;
                self.stops(follower);
            }
        }
    }

    fn crashes(&mut self, scenario: &Scenario, at: NodeIndex) {
        self.left.node_crashes -= 1;
        let is_swept = scenario.mutation != Some(Mutation::NoSweepAtStart);
        self.nodes[at] = Node::start(&scenario.publisher, is_swept);
        let is_here = |which: &FollowerIndex| self.followers[*which].node == at;
        let here: Vec<FollowerIndex> = (0..self.followers.len()).filter(is_here).collect();
        for follower in here {
            self.followers[follower].running = None;
        }
    }
}

impl Diary {
    /// A diary that is written.
    pub(crate) fn open() -> Self {
        Self(Some(Vec::new()))
    }

    pub(crate) fn text(self) -> String {
        self.0.unwrap_or_default().join("\n")
    }
}

impl PartialEq for Diary {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Diary {}

impl Hash for Diary {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
