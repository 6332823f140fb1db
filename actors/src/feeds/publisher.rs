//! The publisher of a node: drives a `Publisher` for each feed that has something to publish or is
//! followed here.
//!
//! One alarm is set to the earliest of their deadlines. An idle machine is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use actix::{Actor, AsyncContext, Context, Handler, StreamHandler};
use futures_util::{FutureExt, stream};
use slog::{debug, info, warn};
use state_machine::Time;
use state_machine::feed::{
    FeedName, PublishResult, Publisher, PublisherEffect, PublisherEvent, PublisherLimits,
};
use state_machine::store::StoreFailed;
use storage::StoreError;
use storage::feeds::FeedState;
use tokio::sync::mpsc;

use super::shared::FeedsShared;
use super::sweep::{FEEDS_PER_PAGE, Sweep, SweepOrder};
use crate::alarm::Alarm;
use crate::mailbox::{BoundedActor, Mailbox, Queued};
use crate::observe::{Observe, PublisherState, observed};

/// Answers of the store that may wait for the publisher. Further ones wait in their tasks: one for
/// each active feed, and one for the sweep.
const ANSWERS_MAX: usize = 64;

/// Publishes what was written here, and what other nodes left unpublished.
pub struct PublisherActor {
    shared: Arc<FeedsShared>,
    limits: Arc<PublisherLimits>,
    open: BTreeMap<FeedName, ActiveFeed>,
    /// The deadlines of the active feeds.
    due: BTreeSet<(Time, FeedName)>,
    sweep: Sweep,
    is_sweep_failing: bool,
    /// The channel for the store's answers. Futures of the actor would all be polled whenever one
    /// of them is ready.
    answers: mpsc::Sender<StoreAnswered>,
    answered: Option<mpsc::Receiver<StoreAnswered>>,
    alarm: Alarm,
    mailbox: Mailbox,
}

/// A feed that is followed, or has something to publish.
struct ActiveFeed {
    publisher: Publisher,
    is_watched: bool,
    is_failing: bool,
    due: Option<Time>,
}

/// The publisher is to look at a feed.
#[derive(Debug, Clone, actix::Message)]
#[rtype(result = "()")]
pub struct FeedDirty {
    pub feed: FeedName,
    /// It may have unpublished keys. Otherwise its first follower subscribed, or its last one
    /// unsubscribed.
    pub is_written: bool,
}

/// An answer of the store.
enum StoreAnswered {
    Published(FeedName, Result<Option<PublishResult>, StoreError>),
    Listed(Result<Vec<FeedState>, StoreError>),
}

impl PublisherActor {
    pub(super) fn new(shared: Arc<FeedsShared>) -> Self {
        let (answers, answered) = mpsc::channel(ANSWERS_MAX);
        let limits = Arc::new(shared.limits.publisher.clone());
        let mailbox = Mailbox::new(shared.limits.mailbox_max);
        let sweep = Sweep::new(shared.clock.now(), shared.limits.sweep, limits.retry);
        Self {
            shared,
            limits,
            open: BTreeMap::new(),
            due: BTreeSet::new(),
            sweep,
            is_sweep_failing: false,
            answers,
            answered: Some(answered),
            alarm: Alarm::default(),
            mailbox,
        }
    }

    /// Steps a feed's machine and executes its effects.
    fn feed(&mut self, feed: &FeedName, event: PublisherEvent) {
        let now = self.shared.clock.now();
        let Some(open) = self.open.get_mut(feed) else { return };
        for order in open.publisher.step(now, event) {
            self.execute(feed, order);
        }
        self.note_deadline(feed);
    }

    fn execute(&self, feed: &FeedName, order: PublisherEffect) {
        match order {
            PublisherEffect::Publish { after, limit } => {
                // The store has the operation when this returns.
                let answer = self.shared.store.publish(feed.clone(), after, limit);
                let feed = feed.clone();
                self.forward(answer.map(|answer| StoreAnswered::Published(feed, answer)));
            }
            PublisherEffect::Announce { head } => self.shared.heads.announce(feed, head),
        }
    }

    /// Forwards an answer of the store to the actor.
    fn forward(&self, answer: impl Future<Output = StoreAnswered> + 'static) {
        let answers = self.answers.clone();
        actix::spawn(async move { drop(answers.send(answer.await).await) });
    }

    /// Drops the machine if it is idle, and notes its deadline otherwise.
    fn note_deadline(&mut self, feed: &FeedName) {
        let Some(open) = self.open.get_mut(feed) else { return };
        let due = open.publisher.deadline().map(|(at, _)| at);
        let is_idle = open.publisher.is_idle() && !open.is_watched;
        if due != open.due {
            if let Some(at) = open.due {
                self.due.remove(&(at, feed.clone()));
            }
            self.due.extend(due.map(|at| (at, feed.clone())));
            open.due = due;
        }
        if is_idle {
            self.open.remove(feed);
            self.shared.open.store(self.open.len(), Ordering::Relaxed);
        }
    }

    /// A feed may have unpublished keys.
    fn written(&mut self, feed: &FeedName) {
        if self.is_open(feed) {
            self.feed(feed, PublisherEvent::Written);
        } else {
            // The write is durable. A sweep publishes it when there is room.
            self.sweep.request(self.shared.clock.now());
        }
    }

    /// A feed got its first follower, or lost its last one.
    fn followed(&mut self, feed: &FeedName) {
        let is_watched = self.shared.heads.is_followed(feed);
        if is_watched && !self.is_open(feed) {
            return;
        }
        let open = self.open.get_mut(feed).filter(|open| open.is_watched != is_watched);
        if let Some(open) = open {
            open.is_watched = is_watched;
            self.feed(feed, PublisherEvent::Watched(is_watched));
        }
    }

    /// Whether a feed is active. An inactive feed becomes active if it is followed or there is
    /// room.
    fn is_open(&mut self, feed: &FeedName) -> bool {
        let is_open = self.open.contains_key(feed);
        if is_open || !(self.has_room() || self.shared.heads.is_followed(feed)) {
            return is_open;
        }
        let publisher = Publisher::new(Arc::clone(&self.limits));
        let open = ActiveFeed { publisher, is_watched: false, is_failing: false, due: None };
        self.open.insert(feed.clone(), open);
        self.shared.open.store(self.open.len(), Ordering::Relaxed);
        true
    }

    fn has_room(&self) -> bool {
        self.open.len() < self.shared.limits.feeds_open_max + self.shared.heads.len()
    }

    /// Runs after every event.
    fn resume(&mut self, ctx: &mut Context<Self>) {
        if self.shared.is_overrun.swap(false, Ordering::AcqRel) {
            self.resync();
        }
        self.resume_sweep();
        self.set_alarm(ctx);
    }

    /// The mailbox was full: any feed may have been written, and may have got or lost followers.
    fn resync(&mut self) {
        debug!(self.shared.log, "the publisher's mailbox was full, looking at all feeds");
        self.sweep.request(self.shared.clock.now());
        let feeds = self.open.keys().cloned().chain(self.shared.heads.names());
        for feed in feeds.collect::<BTreeSet<_>>() {
            self.followed(&feed);
        }
    }

    fn resume_sweep(&mut self) {
        while let Some(order) = self.sweep.next(self.shared.clock.now(), self.has_room()) {
            match order {
                SweepOrder::Visit(feed) => self.written(&feed),
                SweepOrder::List { after } => {
                    let listed = self.shared.store.feeds(after, FEEDS_PER_PAGE);
                    self.forward(listed.map(StoreAnswered::Listed));
                }
            }
        }
    }

    fn published(&mut self, feed: &FeedName, answer: Result<Option<PublishResult>, StoreError>) {
        let Some(open) = self.open.get_mut(feed) else { return };
        let was_failing = std::mem::replace(&mut open.is_failing, answer.is_err());
        let log = &self.shared.log;
        match (&answer, was_failing) {
            (Err(error), false) => {
                warn!(log, "the store failed to publish a feed, it will be retried";
                    "feed" => %feed, "error" => %error);
            }
            (Err(error), true) => {
                debug!(log, "the store failed to publish a feed again";
                    "feed" => %feed, "error" => %error);
            }
            (Ok(_), true) => info!(log, "a feed is published again"; "feed" => %feed),
            (Ok(_), false) => {}
        }
        self.feed(feed, PublisherEvent::Published(answer.map_err(|_| StoreFailed)));
    }

    fn listed(&mut self, answer: Result<Vec<FeedState>, StoreError>) {
        let was_failing = std::mem::replace(&mut self.is_sweep_failing, answer.is_err());
        if let Err(error) = &answer
            && !was_failing
        {
            warn!(self.shared.log, "the store failed to list the feeds, it will be retried"; "error" => %error);
        }
        let names = |feeds: Vec<FeedState>| feeds.into_iter().map(|feed| feed.name).collect();
        self.sweep.listed(self.shared.clock.now(), answer.map(names).map_err(|_| StoreFailed));
    }

    fn time_passed(&mut self) {
        let now = self.shared.clock.now();
        let due = self.due.iter().take_while(|(at, _)| *at <= now);
        for feed in due.map(|(_, feed)| feed.clone()).collect::<Vec<_>>() {
            self.feed(&feed, PublisherEvent::TimePassed);
        }
    }

    fn state(&self) -> PublisherState {
        let failing = self.open.values().filter(|feed| feed.is_failing).count();
        PublisherState { mailbox: self.mailbox.state(), feeds: self.shared.stats(), failing }
    }

    fn set_alarm(&mut self, ctx: &mut Context<Self>) {
        let first = self.due.first().map(|(at, _)| *at);
        let deadline = first.into_iter().chain(self.sweep.deadline()).min();
        self.alarm.set(deadline, &self.shared.clock, ctx, |publisher: &mut Self, ctx| {
            publisher.alarm.has_fired();
            publisher.time_passed();
            publisher.resume(ctx);
        });
    }
}

impl Actor for PublisherActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if let Some(answered) = self.answered.take() {
            let next = |mut answered: mpsc::Receiver<StoreAnswered>| async move {
                let answer = answered.recv().await?;
                Some((answer, answered))
            };
            ctx.add_stream(stream::unfold(answered, next));
        }
        self.resume(ctx);
    }
}

impl BoundedActor for PublisherActor {
    fn mailbox(&self) -> Mailbox {
        self.mailbox.clone()
    }
}

observed!(PublisherActor, PublisherState);

impl Handler<Queued<FeedDirty>> for PublisherActor {
    type Result = ();

    fn handle(&mut self, dirty: Queued<FeedDirty>, ctx: &mut Self::Context) {
        let FeedDirty { feed, is_written } = dirty.take();
        self.followed(&feed);
        if is_written {
            self.written(&feed);
        }
        self.resume(ctx);
    }
}

impl StreamHandler<StoreAnswered> for PublisherActor {
    fn handle(&mut self, answered: StoreAnswered, ctx: &mut Self::Context) {
        match answered {
            StoreAnswered::Published(feed, answer) => self.published(&feed, answer),
            StoreAnswered::Listed(answer) => self.listed(answer),
        }
        self.resume(ctx);
    }
}
