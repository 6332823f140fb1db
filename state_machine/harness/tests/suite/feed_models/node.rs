//! A node: its publisher, and what is under way for it.

use std::sync::Arc;

use harness::feed::promises::Promise;
use state_machine::Time;
use state_machine::feed::{
    FeedSyncId, Publisher, PublisherEvent, PublisherLimits, PublisherOrder, PublisherWait,
};
use state_machine::store::StoreFailed;

use super::action::NodeIndex;
use super::mutation::Mutation;
use super::publish::{Publish, Stage};
use super::scenario::Scenario;
use super::world::World;

/// A node of the service.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) publisher: Publisher,
    pub(crate) publish: Option<Publish>,
    /// What the publisher has to look at.
    pub(crate) mail: Option<Mail>,
}

/// Flags that coalesce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Mail {
    is_written: bool,
}

impl Node {
    /// A node that has just started: it looks for what was left behind.
    pub(crate) fn start(limits: &Arc<PublisherLimits>, is_swept: bool) -> Self {
        let mail = is_swept.then_some(Mail { is_written: true });
        Self { publisher: Publisher::new(Arc::clone(limits)), publish: None, mail }
    }

    /// Something was written here.
    pub(crate) fn written(&mut self) {
        self.mail = Some(Mail { is_written: true });
    }

    /// The first follower came, or the last one left.
    pub(crate) fn stirred(&mut self) {
        self.mail.get_or_insert_default();
    }

    pub(crate) fn waits_for(&self, wait: PublisherWait) -> bool {
        self.publisher.deadline().is_some_and(|(_, why)| why == wait)
    }
}

impl World {
    /// The publisher looks at its mail.
    pub(crate) fn takes_mail(&mut self, scenario: &Scenario, at: NodeIndex) {
        let Some(mail) = self.nodes[at].mail.take() else { return };
        if scenario.mutation != Some(Mutation::WatchForgotten) {
            let is_watched = self.is_followed(at);
            self.step_publisher(scenario, at, PublisherEvent::Watched(is_watched));
        }
        let is_busy = self.nodes[at].publish.is_some();
        let is_forgotten = is_busy && scenario.mutation == Some(Mutation::WrittenForgotten);
        if mail.is_written && !is_forgotten {
            self.step_publisher(scenario, at, PublisherEvent::Written);
        }
    }

    /// The store goes on with the publisher's order, or the publisher hears the answer.
    pub(crate) fn publishes(&mut self, scenario: &Scenario, at: NodeIndex) {
        let Some(mut publish) = self.nodes[at].publish.take() else { return };
        if let Stage::Answered(answer) = publish.stage {
            return self.step_publisher(scenario, at, PublisherEvent::Published(answer));
        }
        publish.goes_on(&mut self.store, scenario.mutation);
        self.note(|| format!("    {:?}", publish.stage));
        self.nodes[at].publish = Some(publish);
    }

    /// The publisher hears that the store failed.
    pub(crate) fn publish_fails(&mut self, scenario: &Scenario, at: NodeIndex) {
        self.nodes[at].publish = None;
        self.step_publisher(scenario, at, PublisherEvent::Published(Err(StoreFailed)));
    }

    /// The transaction that was sent to the store is there sometime, whoever waits for it.
    pub(crate) fn goes_astray(&mut self, at: NodeIndex) {
        let draft = self.nodes[at].publish.as_ref().and_then(Publish::draft).cloned();
        self.astray.extend(draft);
    }

    pub(crate) fn publisher_deadline(&mut self, scenario: &Scenario, at: NodeIndex) {
        let Some((until, wait)) = self.nodes[at].publisher.deadline() else { return };
        if wait == PublisherWait::Poll {
            self.left.polls = self.left.polls.saturating_sub(1);
        }
        self.now = Time::max(self.now, until);
        self.step_publisher(scenario, at, PublisherEvent::TimePassed);
    }

    fn step_publisher(&mut self, scenario: &Scenario, at: NodeIndex, event: PublisherEvent) {
        self.note(|| format!("    publisher {at} > {event:?}"));
        let now = self.now;
        let orders = self.nodes[at].publisher.step(now, event);
        for order in orders {
            self.note(|| format!("    publisher {at}     < {order:?}"));
            match order {
                PublisherOrder::Publish { after, limit } => {
                    let publish = Publish::new(after, limit);
                    if self.nodes[at].publish.replace(publish).is_some() {
                        let detail = format!("publisher {at} gives an order during another");
                        self.breaks(scenario, Promise::OneAtATime.broken(detail));
                    }
                }
                PublisherOrder::Announce { head } => self.announces(at, head),
            }
        }
        self.forget_if_idle(scenario, at);
    }

    /// A publisher that has nothing to do is not kept.
    fn forget_if_idle(&mut self, scenario: &Scenario, at: NodeIndex) {
        let node = &mut self.nodes[at];
        if node.publisher.is_idle() && node.publish.is_none() {
            node.publisher = Publisher::new(Arc::clone(&scenario.publisher));
        }
    }

    fn announces(&mut self, at: NodeIndex, head: FeedSyncId) {
        let followers = self.followers.iter_mut().filter(|follower| follower.node == at);
        followers.for_each(|follower| follower.told(head));
    }
}
