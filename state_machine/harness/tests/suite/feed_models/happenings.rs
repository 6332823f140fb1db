//! The actions that are possible in a state: operations in progress, choices of writers and
//! followers, and faults.

use state_machine::feed::PublisherWait;

use super::action::{Action, Change, Fault, FollowerIndex, NodeIndex};
use super::node::Publish;
use super::rule::publication;
use super::scenario::Scenario;
use super::world::World;

impl Scenario {
    /// All actions that are possible; none after a broken promise.
    pub(super) fn possible(&self, world: &World, actions: &mut Vec<Action>) {
        if world.broken.is_some() {
            return;
        }
        actions.extend(world.under_way());
        self.changes(world, actions);
        world.choices(actions);
        let mut faults = Vec::new();
        (0..world.nodes.len()).for_each(|node| world.faults_of_node(node, &mut faults));
        (0..world.followers.len()).for_each(|at| world.faults_of_follower(at, &mut faults));
        actions.extend(faults.into_iter().map(Action::Fails));
        let mut left = world.left;
        actions.retain(|action| action.bound(&mut left).is_none_or(|left| *left > 0));
    }

    fn changes(&self, world: &World, actions: &mut Vec<Action>) {
        for key in 0..self.keys.len() {
            if world.store.is_held(&self.keys[key]) {
                continue;
            }
            let row = world.store.feed().keys.get(&self.keys[key]);
            let is_set = row.is_some_and(|row| row.value.is_some());
            let mut add = |change| {
                actions.extend(self.writers.iter().map(|node| Action::Changes(*node, key, change)));
            };
            add(Change::Write);
            if row.is_some() {
                add(Change::Republish);
            }
            if is_set {
                add(Change::Delete);
            }
        }
    }
}

impl World {
    /// The operations in progress: each is executed sooner or later.
    pub(crate) fn under_way(&self) -> Vec<Action> {
        let hidden = self.store.feed().hidden.iter();
        let mut actions: Vec<Action> = hidden.map(|number| Action::IsSeen(*number)).collect();
        actions.extend((0..self.writes.len()).map(Action::WritesOn));
        for (at, node) in self.nodes.iter().enumerate() {
            if node.mail.is_some() {
                actions.push(Action::TakesMail(at));
            }
            if node.publish.is_some() {
                actions.push(Action::Publishes(at));
            }
            if node.waits_for(PublisherWait::Retry) {
                actions.push(Action::PublisherDeadline(at));
            }
        }
        (0..self.followers.len()).for_each(|at| self.follower_under_way(at, &mut actions));
        if self.forgetting.is_some() {
            actions.push(Action::RemovesForgotten);
        }
        if !self.astray.is_empty() {
            actions.push(Action::Arrives);
        }
        actions
    }

    fn follower_under_way(&self, at: FollowerIndex, actions: &mut Vec<Action>) {
        let Some(running) = &self.followers[at].running else { return };
        if running.fetch.is_some() {
            actions.push(Action::Reads(at));
        }
        if running.handing_on.is_some() {
            actions.push(Action::HandsOn(at));
        }
        if running.told.is_some() {
            actions.push(Action::HearsHead(at));
        }
        if running.consumer.deadline().is_some() {
            actions.push(Action::ConsumerDeadline(at));
        }
    }

    /// Consumers that start, and sweeps for the writes of other nodes.
    fn choices(&self, actions: &mut Vec<Action>) {
        let is_away = |at: &FollowerIndex| self.followers[*at].running.is_none();
        actions.extend((0..self.followers.len()).filter(is_away).map(Action::Starts));
        let is_forgetting = self.forgetting.is_some();
        if !is_forgetting && self.store.oldest_tombstone().is_some() {
            actions.push(Action::Forgets);
        }
        if self.left.polls > 0 {
            let may_poll = |at: &NodeIndex| self.nodes[*at].waits_for(PublisherWait::Poll);
            let polls = (0..self.nodes.len()).filter(may_poll);
            actions.extend(polls.map(Action::PublisherDeadline));
        }
    }

    fn faults_of_node(&self, at: NodeIndex, faults: &mut Vec<Fault>) {
        let node = &self.nodes[at];
        let rule = node.publish.as_ref().and_then(Publish::rule);
        let is_sent = rule.and_then(publication).is_some();
        let is_busy = node.mail.is_some() || node.publish.is_some() || self.is_followed(at);
        if is_busy {
            faults.push(Fault::NodeCrashes(at));
            if is_sent {
                faults.push(Fault::NodeCrashesAfterWriting(at));
            }
        }
        if rule.is_some() {
            faults.push(Fault::StoreRefuses(at));
        }
        if is_sent {
            faults.push(Fault::AckReplyLost(at));
        }
    }

    fn faults_of_follower(&self, at: FollowerIndex, faults: &mut Vec<Fault>) {
        let Some(running) = &self.followers[at].running else { return };
        faults.push(Fault::FollowerCrashes(at));
        if running.fetch.is_some() {
            faults.push(Fault::FetchFails(at));
        }
    }
}
