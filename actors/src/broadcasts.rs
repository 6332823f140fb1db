//! The broadcasts of a node: read from their feed, sent by the connections that subscribed to them.
//!
//! All of them are in memory, in one view that every connection sees. When they change, the fan-out
//! wakes one subscriber after the other, and each looks at the view.

use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, Handler, StreamHandler};
use slog::{Logger, debug, warn};
use state_machine::broadcast::Broadcasts;
use state_machine::feed::{FeedName, FeedPage, FeedSyncId};
use state_machine::staggered_fanout::FanoutSchedule;
use state_machine::{ConnectionId, Span};
use storage::StoreError;
use tokio::sync::watch;

use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::feeds::{Feeds, SubscriptionError, pages};
use crate::handle::{ClientHandle, Signal};
use crate::mailbox::{BoundedActor, BoundedAddr, BoundedRecipient, Mailbox, Queued};
use crate::observe::{BroadcastState, Observe, observed};

/// The limits of the broadcast actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BroadcastLimits {
    /// The time over which a change wakes all subscribers. Zero wakes them at once.
    pub spread: Span,
    /// The bound of its mailbox, in messages.
    pub mailbox_max: usize,
}

/// A connection is to be woken when broadcasts change.
#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
pub struct Subscribe {
    pub connection: ConnectionId,
    /// Its slot in the fan-out: its own random number, so that connections are woken one after the
    /// other.
    pub slot: u32,
    /// The last change that its agent knows.
    pub last_sent: FeedSyncId,
    /// The handle that wakes it.
    pub handle: ClientHandle,
}

/// A connection is no longer to be woken.
#[derive(Debug, Clone, Copy, actix::Message)]
#[rtype(result = "()")]
pub struct Unsubscribe {
    pub connection: ConnectionId,
    /// The slot that it subscribed with.
    pub slot: u32,
}

/// The broadcasts of a node, as connections see them.
#[derive(Debug, Clone)]
pub struct BroadcastView {
    /// All broadcasts, up to the last change that the node knows.
    pub now: watch::Receiver<Arc<Broadcasts>>,
    /// Subscribes a connection to changes.
    pub subscribe: BoundedRecipient<Subscribe>,
    pub unsubscribe: BoundedRecipient<Unsubscribe>,
    pub observe: BoundedRecipient<Observe<BroadcastState>>,
}

impl BroadcastView {
    /// Whether the broadcast actor is alive.
    pub fn is_running(&self) -> bool {
        self.subscribe.connected()
    }
}

/// The broadcast actor: reads the broadcasts' feed, and wakes subscribers when it changes.
pub struct BroadcastActor {
    feeds: Feeds,
    view: watch::Sender<Arc<Broadcasts>>,
    fanout: FanoutSchedule<ClientHandle>,
    alarm: Alarm,
    mailbox: Mailbox,
    clock: Clock,
    log: Logger,
}

/// Reads all broadcasts and subscribes to their changes. Fails if the store does; later failures
/// are retried.
pub async fn start(
    feeds: &Feeds,
    limits: BroadcastLimits,
    clock: Clock,
    log: Logger,
) -> Result<BroadcastView, StoreError> {
    let loaded = feeds.read_all(FeedName::broadcasts(), Broadcasts::apply).await?;
    debug!(log, "read the broadcasts"; "cursor" => loaded.cursor().0);
    let (view, now) = watch::channel(Arc::new(loaded));
    let actor = BroadcastActor {
        feeds: feeds.clone(),
        view,
        fanout: FanoutSchedule::new(limits.spread),
        alarm: Alarm::default(),
        mailbox: Mailbox::new(limits.mailbox_max),
        clock,
        log,
    };
    let addr = BoundedAddr::start(actor);
    let (subscribe, unsubscribe) = (addr.recipient(), addr.recipient());
    Ok(BroadcastView { now, subscribe, unsubscribe, observe: addr.recipient() })
}

impl BroadcastActor {
    fn subscribe_from(&self, cursor: FeedSyncId, ctx: &mut Context<Self>) {
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
            // The node is stopping: connections are served from the view to the end.
            SubscriptionError::Closed => {}
            SubscriptionError::End(_) => {
                warn!(self.log, "cannot follow the broadcasts' feed from here, reading it from the beginning";
                    "error" => %error);
                self.view.send_replace(Arc::default());
                self.subscribe_from(FeedSyncId::NONE, ctx);
            }
        }
    }

    fn tick(&mut self) {
        let wake = |handle: &ClientHandle| handle.signal(Signal::BroadcastsChanged).is_ok();
        self.fanout.tick(self.clock.now(), wake);
    }

    fn state(&self) -> BroadcastState {
        let (subscribers, cursor) = (self.fanout.len(), self.view.borrow().cursor());
        BroadcastState { mailbox: self.mailbox.state(), subscribers, cursor }
    }

    fn set_alarm(&mut self, ctx: &mut Context<Self>) {
        self.alarm.set(self.fanout.deadline(), &self.clock, ctx, |broadcasts: &mut Self, ctx| {
            broadcasts.alarm.has_fired();
            broadcasts.tick();
            broadcasts.set_alarm(ctx);
        });
    }
}

impl Actor for BroadcastActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let cursor = self.view.borrow().cursor();
        self.fanout.changed(self.clock.now(), cursor);
        self.subscribe_from(cursor, ctx);
    }
}

impl BoundedActor for BroadcastActor {
    fn mailbox(&self) -> Mailbox {
        self.mailbox.clone()
    }
}

impl StreamHandler<Result<FeedPage, SubscriptionError>> for BroadcastActor {
    fn handle(&mut self, page: Result<FeedPage, SubscriptionError>, ctx: &mut Self::Context) {
        match page {
            Ok(page) => self.apply(page),
            Err(error) => self.ended(error, ctx),
        }
        self.set_alarm(ctx);
    }

    /// Keeps the actor alive: connections are still there, and another stream may be.
    fn finished(&mut self, _: &mut Self::Context) {}
}

impl Handler<Queued<Subscribe>> for BroadcastActor {
    type Result = ();

    fn handle(&mut self, subscribe: Queued<Subscribe>, ctx: &mut Self::Context) {
        let Subscribe { connection, slot, last_sent, handle } = subscribe.take();
        self.fanout.subscribe(self.clock.now(), slot, connection, last_sent, handle);
        self.set_alarm(ctx);
    }
}

impl Handler<Queued<Unsubscribe>> for BroadcastActor {
    type Result = ();

    fn handle(&mut self, unsubscribe: Queued<Unsubscribe>, _: &mut Self::Context) {
        let Unsubscribe { connection, slot } = unsubscribe.take();
        self.fanout.unsubscribe(slot, connection);
    }
}

observed!(BroadcastActor, BroadcastState);
