//! A state: a store, nodes, followers, and the promises made to them.

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
use crate::search::Diary;

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

impl World {
    /// Executes an action, and checks the promises that can be checked after each step.
    pub(crate) fn happens(&mut self, scenario: &Scenario, action: &Action) {
        self.diary.note(|| format!("{action:?}"));
        if let Some(left) = action.bound(&mut self.left) {
            *left -= 1;
        }
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
            Action::Forgets => self.store.forgets(scenario.mutation),
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

    fn changes(&mut self, scenario: &Scenario, node: NodeIndex, at: KeyIndex, change: Change) {
        let (key, mutation) = (&scenario.keys[at], scenario.mutation);
        let kept = match change {
            Change::Write => {
                let value = FeedValue::parse(&format!("{} to go", self.left.writes));
                let value = value.expect("a short text");
                let version = self.store.write(mutation, key, value.clone());
                self.ledger.changed(key.clone(), Some(value), version)
            }
            Change::Republish => {
                let version = self.store.table.republish(key);
                version.map_or(Ok(()), |version| self.ledger.republished(key, version))
            }
            Change::Delete => {
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
        self.diary.note(|| format!("    {outcome:?}: {draft:?}"));
    }

    fn fails(&mut self, scenario: &Scenario, fault: Fault) {
        match fault {
            Fault::NodeCrashes(node) => self.crashes(scenario, node),
            Fault::NodeCrashesAfterWriting(node) => {
                self.goes_astray(node);
                self.crashes(scenario, node);
            }
            Fault::StoreRefuses(node) => self.publish_fails(scenario, node),
            Fault::AckReplyLost(node) => {
                self.goes_astray(node);
                self.publish_fails(scenario, node);
            }
            Fault::FetchFails(follower) => self.fetch_fails(scenario, follower),
            Fault::FollowerCrashes(follower) => self.stops(follower),
        }
    }

    fn crashes(&mut self, scenario: &Scenario, at: NodeIndex) {
        let is_swept = scenario.mutation != Some(Mutation::NoSweepAtStart);
        self.nodes[at] = Node::start(&scenario.publisher, is_swept);
        let is_here = |which: &FollowerIndex| self.followers[*which].node == at;
        let here: Vec<FollowerIndex> = (0..self.followers.len()).filter(is_here).collect();
        for follower in here {
            self.followers[follower].running = None;
        }
    }
}
