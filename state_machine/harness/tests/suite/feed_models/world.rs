//! A state: a store, nodes, followers, and the promises made to them.

use crate::feed_models::promises::{AcknowledgedWrites, Promise, keeps_its_numbers};
use harness::invariants::Broken;
use state_machine::Time;
use state_machine::feed::{FeedKey, FeedValue};

use super::action::{Action, Change, Fault, FollowerIndex, KeyIndex, NodeIndex};
use super::follower::Follower;
use super::mutation::Mutation;
use super::node::Node;
use super::rule::{Call, Outcome, Rule, goes_on};
use super::scenario::{Bounds, Scenario};
use super::store::Store;
use crate::search::Diary;
use storage_reference::{Commit, Request};

/// A world with one feed, its store, nodes and followers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) store: Store,
    pub(crate) nodes: Vec<Node>,
    pub(crate) followers: Vec<Follower>,
    /// Publications that were sent to the store and that no publisher waits for.
    pub(crate) astray: Vec<Commit>,
    /// Changes of keys whose writers wait for an answer.
    pub(crate) writes: Vec<Write>,
    /// The removal of the oldest tombstone.
    pub(crate) forgetting: Option<Rule>,
    pub(crate) ledger: AcknowledgedWrites,
    pub(crate) left: Bounds,
    pub(crate) broken: Option<Broken<Promise>>,
    pub(crate) diary: Diary,
}

/// A change of a key that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Write {
    node: NodeIndex,
    key: FeedKey,
    change: Change,
    value: Option<FeedValue>,
    pub(crate) rule: Rule,
}

impl World {
    /// Executes an action, and checks the promises that can be checked after each step.
    pub(crate) fn happens(&mut self, scenario: &Scenario, action: &Action) {
        self.diary.note(|| format!("{action:?}"));
        if let Some(left) = action.bound(&mut self.left) {
            *left -= 1;
        }
        let before = self.store.feed().clone();
        match *action {
            Action::Changes(node, key, change) => self.changes(scenario, node, key, change),
            Action::WritesOn(at) => self.writes_on(scenario, at),
            Action::TakesMail(node) => self.takes_mail(scenario, node),
            Action::Publishes(node) => self.publishes(scenario, node),
            Action::PublisherDeadline(node) => self.publisher_deadline(scenario, node),
            Action::Arrives => self.arrives(scenario),
            Action::IsSeen(number) => self.store.is_seen(number),
            Action::Forgets => {
                let forget = self.store.oldest_tombstone().map(Call::Forget);
                self.forgetting = forget.map(|call| scenario.rule(call));
            }
            Action::RemovesForgotten => {
                let forgetting = self.forgetting.as_mut();
                let forgotten =
                    forgetting.and_then(|rule| goes_on(rule, &mut self.store, scenario.mutation));
                if forgotten.is_some() {
                    self.forgetting = None;
                }
            }
            Action::Starts(follower) => self.starts(scenario, follower),
            Action::Reads(follower) => self.reads(scenario, follower),
            Action::HandsOn(follower) => self.hands_on(scenario, follower),
            Action::HearsHead(follower) => self.hears_head(scenario, follower),
            Action::ConsumerDeadline(follower) => self.consumer_deadline(scenario, follower),
            Action::Fails(fault) => self.fails(scenario, fault),
        }
        if let Err(broken) = keeps_its_numbers(&before, self.store.feed()) {
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
        let key = scenario.keys[at].clone();
        let value = FeedValue::parse(&format!("{} to go", self.left.writes));
        let value = value.ok().filter(|_| change == Change::Write);
        let rule = scenario.rule(match change {
            Change::Write => Call::Write(key.clone(), value.clone().expect("a short text")),
            Change::Republish => Call::Republish(key.clone()),
            Change::Delete => Call::Delete(key.clone()),
        });
        self.writes.push(Write { node, key, change, value, rule });
        while !scenario.writes_in_steps && !self.writes.is_empty() {
            self.writes_on(scenario, 0);
        }
    }

    /// The store executes a step of a writer's rule. The last one answers the writer.
    fn writes_on(&mut self, scenario: &Scenario, at: usize) {
        let rule = &mut self.writes[at].rule;
        let Some(outcome) = goes_on(rule, &mut self.store, scenario.mutation) else { return };
        let Write { node, key, change, value, .. } = self.writes.remove(at);
        let kept = match outcome {
            Outcome::Changed(Some(version)) if change == Change::Republish => {
                self.ledger.republished(&key, version)
            }
            Outcome::Changed(Some(version)) => self.ledger.changed(key, value, version),
            _ => Ok(()),
        };
        self.nodes[node].written();
        if let Err(broken) = kept {
            self.breaks(scenario, broken);
        }
    }

    fn arrives(&mut self, scenario: &Scenario) {
        let request = Request::Commit(self.astray.remove(0));
        let answer = self.store.execute(&request, scenario.mutation);
        self.diary.note(|| format!("    {answer:?}: {request:?}"));
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
        self.writes.retain(|write| write.node != at);
        let is_here = |which: &FollowerIndex| self.followers[*which].node == at;
        let here: Vec<FollowerIndex> = (0..self.followers.len()).filter(is_here).collect();
        for follower in here {
            self.followers[follower].running = None;
        }
    }
}
