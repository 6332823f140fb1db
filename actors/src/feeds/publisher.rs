//! The publisher of a node: drives a `Publisher` for each feed that has something to publish or is followed here.
//!
//! One timer is re-armed from the least of their deadlines. A machine that is idle is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, SpawnHandle, StreamHandler};
use futures_util::stream;
use slog::{debug, info, warn};
use state_machine::Time;
use state_machine::feed::{
    FeedName, PublishResult, Publisher, PublisherEvent, PublisherLimits, PublisherOrder,
};
use state_machine::store::StoreFailed;
use storage::StoreError;
use storage::feeds::FeedState;
use tokio::sync::mpsc;

use super::FeedsShared;
use super::sweep::{PAGE, Sweep, SweepOrder};

/// Answers of the store that may wait for the publisher. Further ones are kept where they came in, which is one task for
/// each feed that is open and one for the sweep.
const ANSWERS_MAX: usize = 64;

/// Publishes what was written here, and what others left behind.
pub struct PublisherActor {
    shared: Arc<FeedsShared>,
    limits: Arc<PublisherLimits>,
    open: BTreeMap<FeedName, ActiveFeed>,
    /// The deadlines of those that are open.
    due: BTreeSet<(Time, FeedName)>,
    sweep: Sweep,
    is_sweep_failing: bool,
    /// The way back for the store's answers. Futures of the actor's own would all be polled whenever one of them is done.
    answers: mpsc::Sender<StoreAnswered>,
    answered: Option<mpsc::Receiver<StoreAnswered>>,
    timer: Option<(Time, SpawnHandle)>,
}

/// A feed with something to do.
struct ActiveFeed {
    publisher: Publisher,
    is_watched: bool,
    is_failing: bool,
    due: Option<Time>,
}

/// Look at a feed.
#[derive(Debug, Clone, actix::Message)]
#[rtype(result = "()")]
pub struct FeedDirty {
    /// Which.
    pub feed: FeedName,
    /// Something may wait in it. Otherwise: its first follower came, or its last one left.
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
            timer: None,
        }
    }

    /// Steps a feed's machine and carries its orders out.
    fn feed(&mut self, feed: &FeedName, event: PublisherEvent) {
        let now = self.shared.clock.now();
        let Some(open) = self.open.get_mut(feed) else { return };
        for order in open.publisher.step(now, event) {
            self.run(feed, order);
        }
        self.note_deadline(feed);
    }

    fn run(&self, feed: &FeedName, order: PublisherOrder) {
        match order {
            PublisherOrder::Publish { after, limit } => {
                // The order is the store's before this returns.
                let answer = self.shared.store.publish(feed.clone(), after, limit);
                let (answers, feed) = (self.answers.clone(), feed.clone());
                actix::spawn(async move {
                    let answer = answer.await;
                    drop(answers.send(StoreAnswered::Published(feed, answer)).await);
                });
            }
            PublisherOrder::Announce { head } => self.shared.heads.announce(feed, head),
        }
    }

    /// Drops a machine that is idle, and takes down when another one has something to do.
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

    /// Something may wait in a feed.
    fn written(&mut self, feed: &FeedName) {
        if self.is_open(feed) {
            self.feed(feed, PublisherEvent::Written);
        } else {
            // It is on disk. There is no room to go after it now, a sweep finds it when there is.
            self.sweep.request(self.shared.clock.now());
        }
    }

    /// Somebody follows a feed, or nobody does any more.
    fn followed(&mut self, feed: &FeedName) {
        let is_watched = self.shared.heads.is_followed(feed);
        if (is_watched && !self.is_open(feed)) || !self.open.contains_key(feed) {
            return;
        }
        let open = self.open.get_mut(feed).filter(|open| open.is_watched != is_watched);
        if let Some(open) = open {
            open.is_watched = is_watched;
            self.feed(feed, PublisherEvent::Watched(is_watched));
        }
    }

    /// Opens a feed where it is not, if there is room for it. For one that is followed there is.
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

    /// What is to be done after every event.
    fn go_on(&mut self, ctx: &mut Context<Self>) {
        if self.shared.is_overrun.swap(false, Ordering::AcqRel) {
            self.resync();
        }
        self.go_on_sweeping();
        self.arm_timer(ctx);
    }

    /// The mailbox was full: anything may have been written, anybody may have come or left.
    fn resync(&mut self) {
        debug!(self.shared.log, "the publisher was overrun, looking at all feeds");
        self.sweep.request(self.shared.clock.now());
        let feeds = self.open.keys().cloned().chain(self.shared.heads.names());
        for feed in feeds.collect::<BTreeSet<_>>() {
            self.followed(&feed);
        }
    }

    fn go_on_sweeping(&mut self) {
        while let Some(order) = self.sweep.next(self.shared.clock.now(), self.has_room()) {
            match order {
                SweepOrder::Look(feed) => self.written(&feed),
                SweepOrder::List { after } => {
                    let (answer, answers) =
                        (self.shared.store.feeds(after, PAGE), self.answers.clone());
                    actix::spawn(async move {
                        let answer = answer.await;
                        drop(answers.send(StoreAnswered::Listed(answer)).await);
                    });
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
                warn!(log, "the store failed to publish a feed, it will be asked again";
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
            warn!(self.shared.log, "cannot list the feeds, will try again"; "error" => %error);
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

    /// One timer at a time. One that is early is kept: it looks around for nothing once.
    fn arm_timer(&mut self, ctx: &mut Context<Self>) {
        let first = self.due.first().map(|(at, _)| *at);
        let Some(deadline) = first.into_iter().chain(self.sweep.deadline()).min() else { return };
        match self.timer {
            Some((at, _)) if at <= deadline => return,
            Some((_, handle)) => drop(ctx.cancel_future(handle)),
            None => {}
        }
        let wait = Duration::from_millis(deadline.since(self.shared.clock.now()).0);
        let handle = ctx.run_later(wait, |publisher, ctx| {
            publisher.timer = None;
            publisher.time_passed();
            publisher.go_on(ctx);
        });
        self.timer = Some((deadline, handle));
    }
}

impl Actor for PublisherActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(self.shared.limits.mailbox_max);
        if let Some(answered) = self.answered.take() {
            let next = |mut answered: mpsc::Receiver<StoreAnswered>| async move {
                let answer = answered.recv().await?;
                Some((answer, answered))
            };
            ctx.add_stream(stream::unfold(answered, next));
        }
        self.go_on(ctx);
    }
}

impl Handler<FeedDirty> for PublisherActor {
    type Result = ();

    fn handle(&mut self, FeedDirty { feed, is_written }: FeedDirty, ctx: &mut Self::Context) {
        self.followed(&feed);
        if is_written {
            self.written(&feed);
        }
        self.go_on(ctx);
    }
}

impl StreamHandler<StoreAnswered> for PublisherActor {
    fn handle(&mut self, answered: StoreAnswered, ctx: &mut Self::Context) {
        match answered {
            StoreAnswered::Published(feed, answer) => self.published(&feed, answer),
            StoreAnswered::Listed(answer) => self.listed(answer),
        }
        self.go_on(ctx);
    }
}
