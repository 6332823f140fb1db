//! A node: its publisher, and the operations in progress for it.

use std::sync::Arc;

use crate::feed_models::promises::Promise;
use harness::invariants::waits_until;
use state_machine::Time;
use state_machine::feed::{
    FeedSyncId, PublishResult, Publisher, PublisherEffect, PublisherEvent, PublisherLimits,
    PublisherWait,
};
use state_machine::store::StoreFailed;

use super::action::NodeIndex;
use super::mutation::Mutation;
use super::rule::{Call, Outcome, Rule, goes_on, publication};
use super::scenario::Scenario;
use super::world::World;

/// A node of the service, with at most one publisher.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) publisher: Publisher,
    pub(crate) publish: Option<Publish>,
    /// The signals that the publisher has not read.
    pub(crate) mail: Option<Mail>,
}

/// A publication that was ordered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Publish {
    UnderWay(Rule),
    /// The answer is on its way to the publisher.
    Answered(Option<PublishResult>),
}

impl Publish {
    /// The rule that is under way.
    pub(crate) fn rule(&self) -> Option<&Rule> {
        if let Self::UnderWay(rule) = self { Some(rule) } else { None }
    }
}

/// Signals that coalesce, as those of the actor do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Mail {
    is_written: bool,
}

impl Node {
    /// Starts a node. It sweeps for keys that the previous process left unpublished.
    pub(crate) fn start(limits: &Arc<PublisherLimits>, is_swept: bool) -> Self {
        let mail = is_swept.then_some(Mail { is_written: true });
        Self { publisher: Publisher::new(Arc::clone(limits)), publish: None, mail }
    }

    /// Signals a write through this node.
    pub(crate) fn written(&mut self) {
        self.mail = Some(Mail { is_written: true });
    }

    /// Signals that the first follower subscribed or the last one unsubscribed.
    pub(crate) fn stirred(&mut self) {
        self.mail.get_or_insert_default();
    }

    pub(crate) fn waits_for(&self, wait: PublisherWait) -> bool {
        self.publisher.deadline().is_some_and(|(_, why)| why == wait)
    }
}

impl World {
    /// The publisher reads its signals.
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

    /// The store executes a step of the publisher's order, or the publisher receives the answer.
    pub(crate) fn publishes(&mut self, scenario: &Scenario, at: NodeIndex) {
        let publish = match self.nodes[at].publish.take() {
            None => return,
            Some(Publish::Answered(answer)) => {
                return self.step_publisher(scenario, at, PublisherEvent::Published(Ok(answer)));
            }
            Some(Publish::UnderWay(mut rule)) => {
                match goes_on(&mut rule, &mut self.store, scenario.mutation) {
                    Some(Outcome::Published(answer)) => Publish::Answered(answer),
                    _ => Publish::UnderWay(rule),
                }
            }
        };
        self.diary.note(|| format!("    {publish:?}"));
        self.nodes[at].publish = Some(publish);
    }

    /// The publisher is notified that the store failed.
    pub(crate) fn publish_fails(&mut self, scenario: &Scenario, at: NodeIndex) {
        self.nodes[at].publish = None;
        self.step_publisher(scenario, at, PublisherEvent::Published(Err(StoreFailed)));
    }

    /// The transaction that was sent to the store arrives later, whether or not a publisher waits
    /// for it.
    pub(crate) fn goes_astray(&mut self, at: NodeIndex) {
        let rule = self.nodes[at].publish.as_ref().and_then(Publish::rule);
        self.astray.extend(rule.and_then(publication).cloned());
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
        self.diary.note(|| format!("    publisher {at} > {event:?}"));
        let now = self.now;
        let orders = self.nodes[at].publisher.step(now, event);
        for order in orders {
            self.diary.note(|| format!("    publisher {at}     < {order:?}"));
            match order {
                PublisherEffect::Publish { after, limit } => {
                    let publish = Publish::UnderWay(scenario.rule(Call::Publish { after, limit }));
                    if self.nodes[at].publish.replace(publish).is_some() {
                        let detail = format!("publisher {at} gives an order during another");
                        self.breaks(scenario, Promise::OneAtATime.broken(detail));
                    }
                }
                PublisherEffect::Announce { head } => self.announces(at, head),
            }
        }
        self.publisher_waits(scenario, at);
        self.forget_if_idle(scenario, at);
    }

    fn publisher_waits(&mut self, scenario: &Scenario, at: NodeIndex) {
        let publisher = &self.nodes[at].publisher;
        let deadline = publisher.deadline().map(|(until, _)| until);
        let pass = |publisher: &mut Publisher, now| publisher.step(now, PublisherEvent::TimePassed);
        if let Err(detail) = waits_until(publisher, deadline, pass) {
            self.breaks(scenario, Promise::NothingDueBeforeDeadline.broken(detail));
        }
    }

    /// Drops a publisher that is idle.
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
