//! A subscription to a feed: drives a `Consumer`.

use std::future::pending;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{self, Stream};
use parking_lot::Mutex;
use slog::{debug, warn};
use state_machine::Span;
use state_machine::feed::{
    Consumer, ConsumerEffect, ConsumerEnd, ConsumerEvent, FeedName, FeedPage, FeedSyncId,
};
use state_machine::store::StoreFailed;
use storage::StoreError;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;

use super::head_watch::HeadSubscription;
use super::node_feeds::Feeds;
use super::shared_page::{PageFuture, SharedPage};

/// A subscription to one feed, from a cursor on. Dropping it ends it.
pub struct FeedSubscription {
    feeds: Feeds,
    feed: FeedName,
    consumer: Consumer,
    /// The cursor of the last page that was returned.
    cursor: FeedSyncId,
    watch: HeadSubscription,
    /// The page that is being fetched. It is kept here between calls of [`FeedSubscription::next`],
    /// so that a call may be dropped. The mutex is never locked: it makes the subscription `Sync`.
    fetching: Mutex<Option<PageFuture>>,
    /// The page that was fetched, until it is returned.
    fetched: Option<Arc<SharedPage>>,
    /// The event that the next call of [`FeedSubscription::next`] begins with.
    on_next: Option<ConsumerEvent>,
    end: Option<ConsumerEnd>,
    when_missing: WhenMissing,
    /// Whether the feed does not exist yet.
    is_missing: bool,
    /// Whether it is counted in `followers_behind`.
    is_behind: bool,
    _permit: Option<OwnedSemaphorePermit>,
}

/// What a subscription does if the feed does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WhenMissing {
    End,
    Wait,
}

/// `followers_max` or `feeds_open_max` is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many feeds are followed on this node, try again later")]
pub struct TooManyFollowers;

/// Why a subscription has no further page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubscriptionError {
    /// The feed cannot be followed from this cursor.
    #[error("{}", end_text(.0))]
    End(ConsumerEnd),
    /// The node is stopping.
    #[error("the node is stopping, follow the feed on another one")]
    Closed,
}

impl Feeds {
    /// Subscribes to a feed from the number after `after` on. Rejected if there are `followers_max`
    /// followers, or if `feeds_open_max` other feeds are followed. From its beginning, a feed that
    /// always exists is waited for if it was never written.
    pub fn subscribe(
        &self,
        feed: FeedName,
        after: FeedSyncId,
    ) -> Result<FeedSubscription, TooManyFollowers> {
        let permit = Arc::clone(&self.shared.followers).try_acquire_owned();
        let permit = permit.map_err(|_| TooManyFollowers)?;
        let watch = self.shared.heads.subscribe(&feed, self.shared.limits.feeds_open_max);
        let watch = watch.ok_or(TooManyFollowers)?;
        self.subscribed(&feed, &watch);
        let when_missing = match feed.is_always_there() && after == FeedSyncId::NONE {
            true => WhenMissing::Wait,
            false => WhenMissing::End,
        };
        Ok(FeedSubscription::new(self, feed, after, watch, when_missing, Some(permit)))
    }

    /// Subscribes to a feed that may not exist yet, for the node itself. No limit applies: a node
    /// has few such subscriptions.
    pub fn subscribe_when_created(&self, feed: FeedName, after: FeedSyncId) -> FeedSubscription {
        let watch = self.shared.heads.subscribe(&feed, usize::MAX).expect("no limit applies");
        self.subscribed(&feed, &watch);
        FeedSubscription::new(self, feed, after, watch, WhenMissing::Wait, None)
    }
}

impl FeedSubscription {
    fn new(
        feeds: &Feeds,
        feed: FeedName,
        after: FeedSyncId,
        watch: HeadSubscription,
        when_missing: WhenMissing,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self {
            consumer: Consumer::new(feeds.shared.limits.consumer, after),
            feeds: feeds.clone(),
            feed,
            cursor: after,
            watch,
            fetching: Mutex::default(),
            fetched: None,
            on_next: Some(ConsumerEvent::Started),
            end: None,
            when_missing,
            is_missing: false,
            is_behind: false,
            _permit: permit,
        }
    }

    /// The next page: one that has updates, or whose cursor is greater. Waits until there is one.
    /// The call means that the page before was consumed.
    ///
    /// The future may be dropped at any time, in a `select!` for instance: the cursor moves only
    /// when a page is returned, so no update is lost.
    pub async fn next(&mut self) -> Result<FeedPage, SubscriptionError> {
        self.next_shared().await.map(SharedPage::into_page)
    }

    /// Like [`FeedSubscription::next`], for callers that do not change the page.
    pub async fn next_shared(&mut self) -> Result<Arc<SharedPage>, SubscriptionError> {
        let mut event = self.on_next.take();
        loop {
            let page = event.and_then(|event| self.step(event));
            self.count_if_behind(!self.is_caught_up() && !self.is_missing && self.end.is_none());
            if let Some(page) = page {
                return Ok(page);
            }
            if let Some(end) = self.end {
                return Err(SubscriptionError::End(end));
            }
            event = Some(self.event().await?);
        }
    }

    /// The cursor of the last page that was returned.
    pub fn cursor(&self) -> FeedSyncId {
        self.cursor
    }

    /// Whether it has read the feed, and returned all up to the head that it knows.
    pub fn is_caught_up(&self) -> bool {
        self.consumer.is_caught_up()
    }

    /// Steps the machine. Returns the page to be consumed.
    fn step(&mut self, event: ConsumerEvent) -> Option<Arc<SharedPage>> {
        let now = self.feeds.shared.clock.now();
        for order in self.consumer.step(now, event) {
            match order {
                ConsumerEffect::Fetch { after, limit } => {
                    let (store, feed) = (Arc::clone(&self.feeds.shared.store), self.feed.clone());
                    let own = async move {
                        let page = store.fetch_feed(feed, after, limit).await?;
                        Ok(page.map(|page| Arc::new(page.into())))
                    };
                    let page = self.feeds.shared.heads.read(&self.feed, after, own.boxed());
                    self.fetching = Mutex::new(Some(page));
                }
                ConsumerEffect::Consume(FeedPage { cursor, .. }) => {
                    self.cursor = cursor;
                    self.on_next = Some(ConsumerEvent::Consumed);
                    return self.fetched.take();
                }
                ConsumerEffect::End(end) => self.ended(end),
            }
        }
        self.fetched = None;
        None
    }

    fn count_if_behind(&mut self, is_behind: bool) {
        let followers = &self.feeds.shared.followers_behind;
        match (mem::replace(&mut self.is_behind, is_behind), is_behind) {
            (false, true) => followers.fetch_add(1, Ordering::Relaxed),
            (true, false) => followers.fetch_sub(1, Ordering::Relaxed),
            _ => return,
        };
    }

    fn ended(&mut self, end: ConsumerEnd) {
        if end == ConsumerEnd::NoSuchFeed && self.when_missing == WhenMissing::Wait {
            self.consumer = Consumer::new(self.feeds.shared.limits.consumer, self.cursor);
            self.is_missing = true;
        } else {
            self.end = Some(end);
        }
    }

    /// Waits for the machine's next event. Dropping the future loses nothing.
    async fn event(&mut self) -> Result<ConsumerEvent, SubscriptionError> {
        let deadline = self.consumer.deadline();
        let wait = deadline.map(|at| at.since(self.feeds.shared.clock.now()));
        tokio::select! {
            moved = self.watch.head.changed() => moved.map_err(|_| SubscriptionError::Closed).map(|()| self.head_advanced()),
            answer = answer(&mut self.fetching) => {
                self.fetching = Mutex::default();
                Ok(ConsumerEvent::Fetched(self.checked(answer).map(|page| self.keep(page))))
            }
            () = sleep_for(wait) => Ok(ConsumerEvent::TimePassed),
        }
    }

    /// Keeps a page until the machine has it consumed. The machine decides by its numbers, and gets no updates.
    fn keep(&mut self, page: Option<Arc<SharedPage>>) -> Option<FeedPage> {
        self.fetched = page;
        let page = self.fetched.as_ref()?;
        let (cursor, head, horizon) = (page.cursor, page.head, page.horizon);
        Some(FeedPage { updates: Vec::new(), cursor, head, horizon })
    }

    /// The feed has a greater head, or was created.
    fn head_advanced(&mut self) -> ConsumerEvent {
        let head = *self.watch.head.borrow_and_update();
        match mem::take(&mut self.is_missing) {
            true => ConsumerEvent::Started,
            false => ConsumerEvent::HeadMoved(head),
        }
    }

    /// Logs a failure: the first of a feed, whichever of its followers had it, as a warning.
    fn checked(
        &self,
        answer: Result<Option<Arc<SharedPage>>, StoreError>,
    ) -> Result<Option<Arc<SharedPage>>, StoreFailed> {
        let log = &self.feeds.shared.log;
        let was_failing = self.watch.is_failing.load(Ordering::Relaxed);
        if was_failing != answer.is_err() {
            self.watch.is_failing.store(answer.is_err(), Ordering::Relaxed);
        }
        answer.map_err(|error| {
            if was_failing {
                debug!(log, "the store failed to read a feed again"; "feed" => %self.feed, "error" => %error);
            } else {
                warn!(log, "the store failed to read a feed, it will be retried";
                    "feed" => %self.feed, "error" => %error);
            }
            StoreFailed
        })
    }
}

/// The pages of a subscription, up to its end.
pub(crate) fn pages(
    follower: FeedSubscription,
) -> impl Stream<Item = Result<FeedPage, SubscriptionError>> {
    stream::unfold(Some(follower), async |follower| {
        let mut follower = follower?;
        let page = follower.next().await;
        let rest = page.is_ok().then_some(follower);
        Some((page, rest))
    })
}

impl Drop for FeedSubscription {
    fn drop(&mut self) {
        self.count_if_behind(false);
        self.feeds.unsubscribe(&self.feed);
    }
}

/// Waits for an answer; for ever if nothing is being fetched.
async fn answer(
    fetching: &mut Mutex<Option<PageFuture>>,
) -> Result<Option<Arc<SharedPage>>, StoreError> {
    match fetching.get_mut() {
        Some(answer) => answer.await,
        None => pending().await,
    }
}

/// Sleeps; for ever if there is no deadline.
async fn sleep_for(wait: Option<Span>) {
    match wait {
        Some(Span(ms)) => sleep(Duration::from_millis(ms)).await,
        None => pending().await,
    }
}

fn end_text(end: &ConsumerEnd) -> String {
    match end {
        ConsumerEnd::NoSuchFeed => "there is no such feed".to_owned(),
        ConsumerEnd::CursorTooOld { horizon } => {
            format!("the cursor is too old, the feed has forgotten its entries up to {horizon}")
        }
        ConsumerEnd::CursorFromTheFuture { head } => {
            format!("the cursor is from the future, the feed is at {head}")
        }
    }
}
