//! The feeds of a node: written, published and followed through [`Feeds`].
//!
//! ```text
//!   write ──► store ──► mark_dirty ──► PublisherActor ──► publish ──► store
//!                                      │ head
//!                                      ▼
//!   FeedSubscription::next ◄── page ◄── store  heads, one a followed feed
//! ```
//!
//! - [`publisher`]: one actor a node, which drives a `state_machine::feed::Publisher` for each feed
//!   that has something
//!   to publish or is followed.
//! - [`subscription`]: drives one `state_machine::feed::Consumer`.
//! - [`shared_page`]: one read of a page for all followers at the same cursor.
//!
//! Architecture Invariant: a write is durable before the publisher is notified. What it was not
//! notified of, or what a killed node left unpublished, the sweep publishes.

mod head_watch;
pub mod publisher;
pub mod shared_page;
pub mod subscription;
mod sweep;
mod tombstones;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use actix::MailboxError;
use actix::dev::SendError;
use slog::{Logger, error};
use state_machine::Span;
use state_machine::feed::{
    ConsumerLimits, FeedKey, FeedName, FeedPage, FeedSyncId, FeedValue, PublisherLimits, Version,
    WriteResult,
};
use storage::{FeedTables, StoreAnswer, StoreError, StoreFuture};
use tokio::sync::Semaphore;

use crate::clock::Clock;
use crate::mailbox::BoundedAddr;
use crate::observe::{Observe, PublisherState};
use head_watch::{HeadSubscription, HeadWatch};
use publisher::{FeedDirty, PublisherActor};
pub use shared_page::SharedPage;
use subscription::WhenMissing;
pub(crate) use subscription::pages;
pub use subscription::{FeedSubscription, SubscriptionError, TooManyFollowers};

/// The feeds of a node. Clones share them.
#[derive(Clone)]
pub struct Feeds {
    shared: Arc<FeedsShared>,
    /// One address for all clones: actix grants each address one message beyond the bound of the
    /// mailbox.
    publisher: Arc<BoundedAddr<PublisherActor>>,
}

/// The limits of a node's feeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedLimits {
    /// Page size and retries of the publisher.
    pub publisher: PublisherLimits,
    /// Page size and retries of a follower.
    pub consumer: ConsumerLimits,
    /// Feeds with followers, and feeds without followers that are published, each at most so many
    /// at once. A further write is durable, and a sweep publishes it when there is room.
    pub feeds_open_max: usize,
    /// Keys of one feed, deleted ones included.
    pub keys_max: u64,
    /// Followers of all feeds together, without those of the node itself.
    pub followers_max: usize,
    /// Time between two sweeps, which publish what other nodes left unpublished.
    pub sweep: Span,
    /// How long a deleted key is kept for consumers, at least; for ever if none.
    pub tombstones_keep: Option<Span>,
    /// The bound of the publisher's mailbox, in messages.
    pub mailbox_max: usize,
}

/// What the publisher and the followers of a node share.
struct FeedsShared {
    store: Arc<dyn FeedTables>,
    clock: Clock,
    limits: FeedLimits,
    heads: HeadWatch,
    followers: Arc<Semaphore>,
    /// Followers that are behind, see [`FeedStats::followers_behind`].
    followers_behind: AtomicUsize,
    /// The publisher's mailbox was full: it is to look at all feeds.
    is_overrun: AtomicBool,
    /// Active feeds, see [`FeedStats::open`].
    open: AtomicUsize,
    /// Counts removed tombstones, see [`FeedStats::forgotten`].
    forgotten: AtomicU64,
    log: Logger,
}

/// The feeds of a node in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedStats {
    /// Followers, without those of the node itself.
    pub followers: usize,
    /// Followers that have not received everything that is published, those of the node itself among them.
    pub followers_behind: usize,
    /// Feeds that are followed.
    pub followed: usize,
    /// Feeds that are followed or have something to publish.
    pub open: usize,
    /// Deleted keys that this node has forgotten since it started.
    pub forgotten: u64,
}

impl FeedsShared {
    fn stats(&self) -> FeedStats {
        let Self { limits, followers, followers_behind, heads, open, forgotten, .. } = self;
        FeedStats {
            followers: limits.followers_max - followers.available_permits(),
            followers_behind: followers_behind.load(Ordering::Relaxed),
            followed: heads.len(),
            open: open.load(Ordering::Relaxed),
            forgotten: forgotten.load(Ordering::Relaxed),
        }
    }
}

impl Feeds {
    /// Starts the publisher on the current arbiter. It begins with a sweep of all feeds.
    pub fn start(
        store: Arc<dyn FeedTables>,
        clock: Clock,
        limits: FeedLimits,
        log: Logger,
    ) -> Self {
        let shared = Arc::new(FeedsShared {
            store,
            clock,
            heads: HeadWatch::default(),
            followers: Arc::new(Semaphore::new(limits.followers_max)),
            followers_behind: AtomicUsize::new(0),
            limits,
            is_overrun: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            forgotten: AtomicU64::new(0),
            log,
        });
        let publisher = BoundedAddr::start(PublisherActor::new(Arc::clone(&shared)));
        let feeds = Self { shared, publisher: Arc::new(publisher) };
        let FeedLimits { tombstones_keep, sweep, .. } = feeds.shared.limits;
        if let Some(keep) = tombstones_keep {
            actix::spawn(tombstones::run(feeds.clone(), keep, sweep));
        }
        feeds
    }

    /// Sets a key, as [`FeedTables::write_key`] does, and publishes it.
    pub async fn write(
        &self,
        feed: FeedName,
        key: FeedKey,
        value: FeedValue,
    ) -> Result<WriteResult, StoreError> {
        let keys_max = feed.keys_max(self.shared.limits.keys_max);
        let written = self.shared.store.write_key(feed.clone(), key, value, keys_max);
        self.publish_after(feed, written).await
    }

    /// Publishes a key again, as [`FeedTables::republish_key`] does.
    pub async fn republish(
        &self,
        feed: FeedName,
        key: FeedKey,
    ) -> Result<Option<Version>, StoreError> {
        let written = self.shared.store.republish_key(feed.clone(), key);
        self.publish_after(feed, written).await
    }

    /// Deletes a key, as [`FeedTables::delete_key`] does, and publishes the deletion.
    pub async fn delete(
        &self,
        feed: FeedName,
        key: FeedKey,
    ) -> Result<Option<Version>, StoreError> {
        let written = self.shared.store.delete_key(feed.clone(), key);
        self.publish_after(feed, written).await
    }

    /// Publishes the receipts of messages that the store deletes, also if the caller is dropped.
    pub fn publish_receipts(&self, deleted: StoreFuture<StoreAnswer>) -> StoreFuture<StoreAnswer> {
        let feeds = self.clone();
        let deleted = tokio::spawn(async move {
            let answer = deleted.await;
            if let Ok(StoreAnswer::Deleted(settled)) = &answer {
                feeds.publish(&settled.subscriptions);
            }
            answer
        });
        Box::pin(async { deleted.await.unwrap_or(Err(StoreError::Closed)) })
    }

    /// Publishes feeds that the store has written to.
    pub fn publish(&self, feeds: &[FeedName]) {
        for feed in feeds {
            self.mark_dirty(FeedDirty { feed: feed.clone(), is_written: true });
        }
    }

    /// The store, for reads.
    pub fn store(&self) -> &Arc<dyn FeedTables> {
        &self.shared.store
    }

    pub fn limits(&self) -> &FeedLimits {
        &self.shared.limits
    }

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

    /// Reads a feed from its beginning, page by page. A feed that does not exist has nothing to apply.
    pub(crate) async fn read_all<T: Default>(
        &self,
        feed: FeedName,
        apply: impl Fn(&mut T, FeedPage),
    ) -> Result<T, StoreError> {
        let (mut all, mut after) = (T::default(), FeedSyncId::NONE);
        let limit = self.limits().consumer.page;
        while let Some(page) = self.store().fetch_feed(feed.clone(), after, limit).await? {
            if page.is_too_late(after) {
                (all, after) = (T::default(), FeedSyncId::NONE);
                continue;
            }
            let is_last = page.is_last() || page.cursor <= after;
            after = page.cursor;
            apply(&mut all, page);
            if is_last {
                break;
            }
        }
        Ok(all)
    }

    /// The feeds in numbers.
    pub fn stats(&self) -> FeedStats {
        self.shared.stats()
    }

    /// Asks the publisher for its state.
    pub async fn observe(&self) -> Result<PublisherState, MailboxError> {
        self.publisher.send(Observe::new()).await
    }

    /// Whether the publisher is alive.
    pub fn is_running(&self) -> bool {
        self.publisher.connected()
    }

    /// Ends all subscriptions, later ones too: the node is stopping. Writes are still published.
    pub fn close(&self) {
        self.shared.heads.close();
    }

    /// Awaits a write that the store has accepted, and publishes it even if the caller is dropped.
    /// After an error it may have been written.
    async fn publish_after<T: Send + 'static>(
        &self,
        feed: FeedName,
        written: StoreFuture<T>,
    ) -> Result<T, StoreError> {
        let feeds = self.clone();
        let written = tokio::spawn(async move {
            let answer = written.await;
            feeds.mark_dirty(FeedDirty { feed, is_written: true });
            answer
        });
        written.await.unwrap_or(Err(StoreError::Closed))
    }

    fn subscribed(&self, feed: &FeedName, watch: &HeadSubscription) {
        if watch.is_first {
            self.mark_dirty(FeedDirty { feed: feed.clone(), is_written: false });
        }
    }

    fn unsubscribe(&self, feed: &FeedName) {
        if self.shared.heads.unsubscribe(feed) {
            self.mark_dirty(FeedDirty { feed: feed.clone(), is_written: false });
        }
    }

    /// Notifies the publisher of a feed. A publisher whose mailbox is full has messages to handle,
    /// and checks `is_overrun` after each of them.
    fn mark_dirty(&self, dirty: FeedDirty) {
        match self.publisher.try_send(dirty) {
            Ok(()) => {}
            Err(SendError::Full(dirty)) => {
                self.shared.is_overrun.store(true, Ordering::Release);
                // It may have handled its last message before the flag was set: then there is room
                // now.
                drop(self.publisher.try_send(dirty));
            }
            Err(SendError::Closed(_)) if self.shared.heads.is_closed() => {}
            Err(SendError::Closed(FeedDirty { feed, .. })) => {
                error!(self.shared.log, "the publisher of feeds has stopped, restart the server";
                    "feed" => %feed);
            }
        }
    }
}
