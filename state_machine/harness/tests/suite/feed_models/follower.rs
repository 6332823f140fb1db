//! A consumer, the replica that applies its pages, and the part of both that survives a crash.

use crate::feed_models::promises::{Promise, Replica};
use harness::invariants::waits_until;
use state_machine::Time;
use state_machine::feed::{
    Consumer, ConsumerEffect, ConsumerEnd, ConsumerEvent, FeedPage, FeedSyncId,
};
use state_machine::store::StoreFailed;

use super::action::{FollowerIndex, NodeIndex};
use super::mutation::Mutation;
use super::rule::{Call, Outcome, Rule, goes_on};
use super::scenario::Scenario;
use super::world::World;

/// A follower of the feed through a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Follower {
    pub(crate) node: NodeIndex,
    /// None before the start and after a crash.
    pub(crate) running: Option<Running>,
    /// The cursor on disk.
    pub(crate) saved: FeedSyncId,
    /// The replica that applies the pages; on disk too.
    pub(crate) replica: Replica,
}

/// The part of a follower that a crash discards.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Running {
    pub(crate) consumer: Consumer,
    pub(crate) fetch: Option<Rule>,
    pub(crate) handing_on: Option<HandingOn>,
    /// A head that the follower was notified of and has not read.
    pub(crate) told: Option<FeedSyncId>,
}

/// A page between fetch and saved cursor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct HandingOn {
    page: FeedPage,
    /// Whether one of two steps is done: the page is consumed, then the cursor is saved.
    is_half_done: bool,
}

impl Follower {
    pub(crate) fn new(node: NodeIndex) -> Self {
        let (saved, replica) = (FeedSyncId::NONE, Replica::default());
        Self { node, running: None, saved, replica }
    }

    pub(crate) fn told(&mut self, head: FeedSyncId) {
        if let Some(running) = &mut self.running {
            running.told = Some(head);
        }
    }

    pub(crate) fn is_half_way(&self) -> bool {
        let fetch = self.running.as_ref().and_then(|running| running.fetch.as_ref());
        fetch.is_some_and(|fetch| !fetch.answers.is_empty())
    }
}

impl World {
    /// Whether the feed has a follower through this node.
    pub(crate) fn is_followed(&self, node: NodeIndex) -> bool {
        let mut followers = self.followers.iter().filter(|follower| follower.node == node);
        followers.any(|follower| follower.running.is_some())
    }

    /// A follower without a cursor discards what it has: a deletion of that may be forgotten.
    pub(crate) fn starts(&mut self, scenario: &Scenario, at: FollowerIndex) {
        let follower = &mut self.followers[at];
        let is_kept = scenario.mutation == Some(Mutation::KeptWithoutCursor);
        if follower.saved.is_none() && !is_kept {
            follower.replica = Replica::default();
        }
        let consumer = Consumer::new(scenario.consumer, follower.saved);
        let running = Running { consumer, fetch: None, handing_on: None, told: None };
        follower.running = Some(running);
        self.nodes[follower.node].stirred();
        self.step_consumer(scenario, at, ConsumerEvent::Started);
    }

    /// The follower crashes or has ended.
    pub(crate) fn stops(&mut self, at: FollowerIndex) {
        let follower = &mut self.followers[at];
        follower.running = None;
        self.nodes[follower.node].stirred();
    }

    pub(crate) fn reads(&mut self, scenario: &Scenario, at: FollowerIndex) {
        let running = self.followers[at].running.as_mut();
        let Some(fetch) = running.and_then(|running| running.fetch.as_mut()) else { return };
        if let Some(Outcome::Fetched(answer)) = goes_on(fetch, &mut self.store, scenario.mutation) {
            self.fetched(scenario, at, Ok(answer));
        }
    }

    pub(crate) fn fetch_fails(&mut self, scenario: &Scenario, at: FollowerIndex) {
        self.fetched(scenario, at, Err(StoreFailed));
    }

    fn fetched(
        &mut self,
        scenario: &Scenario,
        at: FollowerIndex,
        answer: Result<Option<FeedPage>, StoreFailed>,
    ) {
        if let Some(running) = &mut self.followers[at].running {
            running.fetch = None;
        }
        self.step_consumer(scenario, at, ConsumerEvent::Fetched(answer));
    }

    /// A page is consumed, and then its cursor saved: each is a step.
    pub(crate) fn hands_on(&mut self, scenario: &Scenario, at: FollowerIndex) {
        let follower = &mut self.followers[at];
        let Some(running) = &mut follower.running else { return };
        let Some(HandingOn { page, is_half_done }) = running.handing_on.take() else { return };
        let cursor = running.consumer.cursor();
        let is_saved_first = scenario.mutation == Some(Mutation::CursorBeforeConsuming);
        let mut kept = Ok(());
        if is_half_done == is_saved_first {
            kept = follower.replica.apply(cursor, &page);
        } else {
            follower.saved = page.cursor;
        }
        if !is_half_done {
            running.handing_on = Some(HandingOn { page, is_half_done: true });
        }
        if let Err(broken) = kept {
            self.breaks(scenario, broken);
        }
        if is_half_done {
            self.step_consumer(scenario, at, ConsumerEvent::Consumed);
        }
    }

    pub(crate) fn hears_head(&mut self, scenario: &Scenario, at: FollowerIndex) {
        let running = self.followers[at].running.as_mut();
        if let Some(head) = running.and_then(|running| running.told.take()) {
            self.step_consumer(scenario, at, ConsumerEvent::HeadMoved(head));
        }
    }

    pub(crate) fn consumer_deadline(&mut self, scenario: &Scenario, at: FollowerIndex) {
        let running = self.followers[at].running.as_ref();
        let deadline = running.and_then(|running| running.consumer.deadline());
        if let Some(until) = deadline {
            self.now = Time::max(self.now, until);
            self.step_consumer(scenario, at, ConsumerEvent::TimePassed);
        }
    }

    fn step_consumer(&mut self, scenario: &Scenario, at: FollowerIndex, event: ConsumerEvent) {
        let now = self.now;
        self.diary.note(|| format!("    consumer {at} > {event:?}"));
        let Some(running) = &mut self.followers[at].running else { return };
        for order in running.consumer.step(now, event) {
            self.diary.note(|| format!("    consumer {at}     < {order:?}"));
            self.obeys(scenario, at, order);
        }
        self.consumer_waits(scenario, at);
    }

    fn consumer_waits(&mut self, scenario: &Scenario, at: FollowerIndex) {
        let Some(Running { consumer, .. }) = &self.followers[at].running else { return };
        let pass = |consumer: &mut Consumer, now| consumer.step(now, ConsumerEvent::TimePassed);
        if let Err(detail) = waits_until(consumer, consumer.deadline(), pass) {
            self.breaks(scenario, Promise::NothingDueBeforeDeadline.broken(detail));
        }
    }

    fn obeys(&mut self, scenario: &Scenario, at: FollowerIndex, order: ConsumerEffect) {
        let Some(running) = &mut self.followers[at].running else { return };
        if running.fetch.is_some() || running.handing_on.is_some() {
            let detail = format!("consumer {at} gives an order during another");
            return self.breaks(scenario, Promise::OneAtATime.broken(detail));
        }
        match order {
            ConsumerEffect::Fetch { after, limit } => {
                running.fetch = Some(scenario.rule(Call::Fetch { after, limit }));
            }
            ConsumerEffect::Consume(page) => {
                running.handing_on = Some(HandingOn { page, is_half_done: false });
            }
            ConsumerEffect::End(ConsumerEnd::CursorTooOld { .. }) => {
                self.followers[at].saved = FeedSyncId::NONE;
                self.stops(at);
            }
            ConsumerEffect::End(_) => self.stops(at),
        }
    }
}
