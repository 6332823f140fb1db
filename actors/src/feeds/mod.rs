//! The feeds of a node: whoever writes, publishes or follows one here does it through [`Feeds`].
//!
//! ```text
//!   write ──► store ──► mark_dirty ──► PublisherActor ──► publish ──► store
//!                                      │ head
//!                                      ▼
//!   FeedSubscription::next ◄── page ◄── store  heads, one a followed feed
//! ```
//!
//! - [`publisher`]: one actor a node, which drives a `state_machine::feed::Publisher` for each feed that has something
//!   to publish or is followed.
//! - [`subscription`]: drives one `state_machine::feed::Consumer`.
//!
//! Architecture Invariant: a write is durable before anybody here hears of it. What the publisher could not be told
//! of, or a node that was killed left behind, the sweep finds.

mod head_watch;
pub mod limits;
pub mod publisher;
pub mod subscription;
mod sweep;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use actix::dev::SendError;
use actix::{Actor, Addr};
use slog::{Logger, error};
use state_machine::feed::{FeedKey, FeedName, FeedSyncId, FeedValue, Version, WriteResult};
use storage::{FeedTables, StoreError, StoreFuture};
use tokio::sync::Semaphore;

use crate::clock::Clock;
use head_watch::{HeadSubscription, HeadWatch, TooManyFeeds};
pub use limits::FeedLimits;
use publisher::{FeedDirty, PublisherActor};
use subscription::WhenMissing;
pub use subscription::{FeedSubscription, SubscriptionError, TooManyFollowers};

/// The feeds of a node. Clones are the same.
#[derive(Clone)]
pub struct Feeds {
    shared: Arc<FeedsShared>,
    /// One for all: every clone of an address may send one message more than the mailbox holds.
    publisher: Arc<Addr<PublisherActor>>,
}

/// What the publisher and the followers of a node share.
struct FeedsShared {
    store: Arc<dyn FeedTables>,
    clock: Clock,
    limits: FeedLimits,
    heads: HeadWatch,
    followers: Arc<Semaphore>,
    /// The publisher could not be told something: it had better look at everything.
    is_overrun: AtomicBool,
    /// Feeds that the publisher has a machine for.
    open: AtomicUsize,
    log: Logger,
}

/// How much is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedStats {
    /// Followers, without the node's own.
    pub followers: usize,
    /// Feeds that are followed.
    pub followed: usize,
    /// Feeds that are followed or have something to publish.
    pub open: usize,
}

impl Feeds {
    /// Starts the publisher on the current arbiter. It begins with a sweep over all feeds.
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
            limits,
            is_overrun: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            log,
        });
        let publisher = PublisherActor::new(Arc::clone(&shared)).start();
        Self { shared, publisher: Arc::new(publisher) }
    }

    /// Sets a key, as [`FeedTables::write_key`] does, and has it published.
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

    /// Has a key published again, as [`FeedTables::republish_key`] does.
    pub async fn republish(
        &self,
        feed: FeedName,
        key: FeedKey,
    ) -> Result<Option<Version>, StoreError> {
        let written = self.shared.store.republish_key(feed.clone(), key);
        self.publish_after(feed, written).await
    }

    /// Deletes a key, as [`FeedTables::delete_key`] does, and has that published.
    pub async fn delete(
        &self,
        feed: FeedName,
        key: FeedKey,
    ) -> Result<Option<Version>, StoreError> {
        let written = self.shared.store.delete_key(feed.clone(), key);
        self.publish_after(feed, written).await
    }

    /// The store, for whoever only reads.
    pub fn store(&self) -> &Arc<dyn FeedTables> {
        &self.shared.store
    }

    /// The limits.
    pub fn limits(&self) -> &FeedLimits {
        &self.shared.limits
    }

    /// Follows a feed: what was numbered after `after`, and all that will be. Refused where there are `followers_max`
    /// followers, or `feeds_open_max` feeds are followed and this is not one of them.
    pub fn subscribe(
        &self,
        feed: FeedName,
        after: FeedSyncId,
    ) -> Result<FeedSubscription, TooManyFollowers> {
        let permit = Arc::clone(&self.shared.followers).try_acquire_owned();
        let permit = permit.map_err(|_| TooManyFollowers)?;
        let watch = self.shared.heads.subscribe_within(&feed, self.shared.limits.feeds_open_max);
        let watch = watch.map_err(|TooManyFeeds| TooManyFollowers)?;
        self.entered(&feed, &watch);
        Ok(FeedSubscription::new(self, feed, after, watch, WhenMissing::End, Some(permit)))
    }

    /// Follows a feed that may not be there yet, for the node itself. No limit is in its way: there is one such
    /// follower for each thing that a node does.
    pub fn subscribe_when_created(&self, feed: FeedName, after: FeedSyncId) -> FeedSubscription {
        let watch = self.shared.heads.subscribe(&feed);
        self.entered(&feed, &watch);
        FeedSubscription::new(self, feed, after, watch, WhenMissing::Wait, None)
    }

    /// How much is under way.
    pub fn stats(&self) -> FeedStats {
        let FeedsShared { limits, followers, heads, open, .. } = &*self.shared;
        FeedStats {
            followers: limits.followers_max - followers.available_permits(),
            followed: heads.len(),
            open: open.load(Ordering::Relaxed),
        }
    }

    /// Whether the publisher is alive.
    pub fn is_running(&self) -> bool {
        self.publisher.connected()
    }

    /// Lets all followers go, those to come too: their node is stopping. What is written is still published.
    pub fn close(&self) {
        self.shared.heads.close();
    }

    /// The order is the store's already. Whoever waits for the answer may go away: what was written is published
    /// all the same. An error may leave open whether it was written.
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

    fn entered(&self, feed: &FeedName, watch: &HeadSubscription) {
        if watch.is_first {
            self.mark_dirty(FeedDirty { feed: feed.clone(), is_written: false });
        }
    }

    fn unsubscribe(&self, feed: &FeedName) {
        if self.shared.heads.unsubscribe(feed) {
            self.mark_dirty(FeedDirty { feed: feed.clone(), is_written: false });
        }
    }

    /// Has the publisher look at a feed. One whose mailbox is full has messages to handle, and looks after each of them
    /// whether it missed one.
    fn mark_dirty(&self, dirty: FeedDirty) {
        match self.publisher.try_send(dirty) {
            Ok(()) => {}
            Err(SendError::Full(dirty)) => {
                self.shared.is_overrun.store(true, Ordering::Release);
                // Meanwhile it may have handled its last message, without the flag: then there is room now.
                drop(self.publisher.try_send(dirty));
            }
            Err(SendError::Closed(_)) if self.shared.heads.is_closed() => {}
            Err(SendError::Closed(FeedDirty { feed, .. })) => {
                error!(self.shared.log, "the publisher of feeds is gone, restart the server";
                    "feed" => %feed);
            }
        }
    }
}
