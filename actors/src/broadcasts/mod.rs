//! The broadcasts of a node: followed from their feed, told to the connections that asked for them.
//!
//! All of them are in memory, in one view that every connection sees. When they change, a `FanoutSchedule` says whom to wake
//! when; a connection that is woken looks at the view itself.

mod load;
mod messages;

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, SpawnHandle, StreamHandler};
use futures_util::stream::{self, Stream};
use slog::{Logger, debug, warn};
use state_machine::broadcast::Broadcasts;
use state_machine::feed::{ConsumerEnd, FeedName, FeedPage, FeedSyncId};
use state_machine::staggered_fanout::FanoutSchedule;
use state_machine::{Span, Time};
use storage::StoreError;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::feeds::{FeedSubscription, Feeds, SubscriptionError};
use crate::handle::{ClientHandle, Signal};

pub use messages::{BroadcastView, Subscribe, Unsubscribe};

/// What bounds the broadcasts of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BroadcastLimits {
    /// How long it takes until every connection was woken after a change. Zero wakes all at once.
    pub spread: Span,
    /// Messages that the actor's mailbox holds.
    pub mailbox_max: usize,
}

/// Follows the broadcasts, and wakes connections when they change.
pub struct BroadcastActor {
    feeds: Feeds,
    view: watch::Sender<Arc<Broadcasts>>,
    fanout: FanoutSchedule<ClientHandle>,
    timer: Option<(Time, SpawnHandle)>,
    mailbox_max: usize,
    clock: Clock,
    log: Logger,
}

/// Reads the broadcasts that are there, and follows them from then on. The store may fail later; it may not fail here.
pub async fn start(
    feeds: &Feeds,
    limits: BroadcastLimits,
    clock: Clock,
    log: Logger,
) -> Result<BroadcastView, StoreError> {
    let loaded = load::load(&**feeds.store(), feeds.limits().consumer.page).await?;
    debug!(log, "read the broadcasts"; "cursor" => loaded.cursor().0);
    let (view, now) = watch::channel(Arc::new(loaded));
    let actor = BroadcastActor {
        feeds: feeds.clone(),
        view,
        fanout: FanoutSchedule::new(limits.spread),
        timer: None,
        mailbox_max: limits.mailbox_max,
        clock,
        log,
    };
    let address = actor.start();
    Ok(BroadcastView {
        now,
        subscribe: address.clone().recipient(),
        unsubscribe: address.recipient(),
    })
}

impl BroadcastActor {
    fn follow_from(&self, cursor: FeedSyncId, ctx: &mut Context<Self>) {
        ctx.add_stream(pages(self.feeds.subscribe_when_created(FeedName::broadcasts(), cursor)));
    }

    fn apply(&mut self, page: FeedPage) {
        let is_news = !page.updates.is_empty();
        self.view.send_modify(|all| Arc::make_mut(all).apply(page));
        if is_news {
            let cursor = self.view.borrow().cursor();
            debug!(self.log, "broadcasts changed"; "cursor" => cursor.0);
            self.fanout.changed(self.clock.now(), cursor);
        }
    }

    fn ended(&mut self, error: SubscriptionError, ctx: &mut Context<Self>) {
        match error {
            // Connections are served from the view to the end.
            SubscriptionError::Closed => {}
            SubscriptionError::End(
                ConsumerEnd::CursorFromTheFuture { .. } | ConsumerEnd::NoSuchFeed,
            ) => {
                warn!(self.log, "the broadcasts are not those that were followed, reading them anew";
                    "error" => %error);
                self.view.send_replace(Arc::default());
                self.follow_from(FeedSyncId::NONE, ctx);
            }
        }
    }

    fn turn(&mut self) {
        let wake = |handle: &ClientHandle| handle.signal(Signal::BroadcastsChanged).is_ok();
        self.fanout.tick(self.clock.now(), wake);
    }

    /// One timer at a time. One that is early is kept.
    fn arm_timer(&mut self, ctx: &mut Context<Self>) {
        let Some(deadline) = self.fanout.deadline() else { return };
        match self.timer {
            Some((at, _)) if at <= deadline => return,
            Some((_, handle)) => drop(ctx.cancel_future(handle)),
            None => {}
        }
        let wait = Duration::from_millis(deadline.since(self.clock.now()).0);
        let handle = ctx.run_later(wait, |broadcasts, ctx| {
            broadcasts.timer = None;
            broadcasts.turn();
            broadcasts.arm_timer(ctx);
        });
        self.timer = Some((deadline, handle));
    }
}

/// The pages of a follower, up to its end.
fn pages(follower: FeedSubscription) -> impl Stream<Item = Result<FeedPage, SubscriptionError>> {
    stream::unfold(Some(follower), async |follower| {
        let mut follower = follower?;
        let page = follower.next().await;
        let rest = page.is_ok().then_some(follower);
        Some((page, rest))
    })
}

impl Actor for BroadcastActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(self.mailbox_max);
        let cursor = self.view.borrow().cursor();
        self.fanout.changed(self.clock.now(), cursor);
        self.follow_from(cursor, ctx);
    }
}

impl StreamHandler<Result<FeedPage, SubscriptionError>> for BroadcastActor {
    fn handle(&mut self, page: Result<FeedPage, SubscriptionError>, ctx: &mut Self::Context) {
        match page {
            Ok(page) => self.apply(page),
            Err(error) => self.ended(error, ctx),
        }
        self.arm_timer(ctx);
    }

    /// Connections are still there, and another stream may be.
    fn finished(&mut self, _: &mut Self::Context) {}
}

impl Handler<Subscribe> for BroadcastActor {
    type Result = ();

    fn handle(&mut self, subscribe: Subscribe, ctx: &mut Self::Context) {
        let Subscribe { connection, point, told, handle } = subscribe;
        self.fanout.subscribe(self.clock.now(), point, connection, told, handle);
        self.arm_timer(ctx);
    }
}

impl Handler<Unsubscribe> for BroadcastActor {
    type Result = ();

    fn handle(&mut self, Unsubscribe { connection, point }: Unsubscribe, _: &mut Self::Context) {
        self.fanout.unsubscribe(point, connection);
    }
}
