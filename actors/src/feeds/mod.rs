//! The feeds of a node: whoever writes, publishes or follows one here does it through [`Feeds`].
//!
//! ```text
//!   write ──► store ──► stir ──► PublisherActor ──► publish ──► store
//!                                      │ head
//!                                      ▼
//!   Follower::next ◄── page ◄── store  heads, one a followed feed
//! ```
//!
//! - [`publisher`]: one actor a node, which drives a `state_machine::feed::Publisher` for each feed that has something
//!   to publish or is followed.
//! - [`follower`]: drives one `state_machine::feed::Consumer`.
//!
//! Architecture Invariant: a write is durable before anybody here hears of it. What the publisher could not be told
//! of, or a node that was killed left behind, the sweep finds.

pub mod follower;
mod heads;
pub mod limits;
pub mod publisher;
mod sweep;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use actix::dev::SendError;
use actix::{Actor, Addr};
use slog::{Logger, error};
use state_machine::feed::{FeedKey, FeedName, FeedSyncId, FeedValue, Version, Written};
use storage::{Answer, FeedTables, StoreError};
use tokio::sync::Semaphore;

use crate::clock::Clock;
use follower::IfAbsent;
pub use follower::{FollowError, Follower, TooManyFollowers};
use heads::{Heads, Seat, TooManyFeeds};
pub use limits::FeedLimits;
use publisher::{PublisherActor, Stir};

/// The feeds of a node. Clones are the same.
#[derive(Clone)]
pub struct Feeds {
    shared: Arc<Shared>,
    /// One for all: every clone of an address may send one message more than the mailbox holds.
    publisher: Arc<Addr<PublisherActor>>,
}

/// What the publisher and the followers of a node share.
struct Shared {
    store: Arc<dyn FeedTables>,
    clock: Clock,
    limits: FeedLimits,
    heads: Heads,
    followers: Arc<Semaphore>,
    /// The publisher could not be told something: it had better look at everything.
    is_overrun: AtomicBool,
    /// Feeds that the publisher has a machine for.
    open: AtomicUsize,
    log: Logger,
}

/// How much is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedLoad {
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
        let shared = Arc::new(Shared {
            store,
            clock,
            heads: Heads::default(),
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
    ) -> Result<Written, StoreError> {
        let keys_max = feed.keys_max(self.shared.limits.keys_max);
        let written = self.shared.store.write_key(feed.clone(), key, value, keys_max);
        self.then_publish(feed, written).await
    }

    /// Has a key published again, as [`FeedTables::republish_key`] does.
    pub async fn republish(
        &self,
        feed: FeedName,
        key: FeedKey,
    ) -> Result<Option<Version>, StoreError> {
        let written = self.shared.store.republish_key(feed.clone(), key);
        self.then_publish(feed, written).await
    }

    /// Deletes a key, as [`FeedTables::delete_key`] does, and has that published.
    pub async fn delete(
        &self,
        feed: FeedName,
        key: FeedKey,
    ) -> Result<Option<Version>, StoreError> {
        let written = self.shared.store.delete_key(feed.clone(), key);
        self.then_publish(feed, written).await
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
    pub fn follow(&self, feed: FeedName, after: FeedSyncId) -> Result<Follower, TooManyFollowers> {
        let permit = Arc::clone(&self.shared.followers).try_acquire_owned();
        let permit = permit.map_err(|_| TooManyFollowers)?;
        let seat = self.shared.heads.enter_within(&feed, self.shared.limits.feeds_open_max);
        let seat = seat.map_err(|TooManyFeeds| TooManyFollowers)?;
        self.entered(&feed, &seat);
        Ok(Follower::new(self, feed, after, seat, IfAbsent::End, Some(permit)))
    }

    /// Follows a feed that may not be there yet, for the node itself. No limit is in its way: there is one such
    /// follower for each thing that a node does.
    pub fn follow_when_there(&self, feed: FeedName, after: FeedSyncId) -> Follower {
        let seat = self.shared.heads.enter(&feed);
        self.entered(&feed, &seat);
        Follower::new(self, feed, after, seat, IfAbsent::Wait, None)
    }

    /// How much is under way.
    pub fn load(&self) -> FeedLoad {
        let Shared { limits, followers, heads, open, .. } = &*self.shared;
        FeedLoad {
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
    async fn then_publish<T: Send + 'static>(
        &self,
        feed: FeedName,
        written: Answer<T>,
    ) -> Result<T, StoreError> {
        let feeds = self.clone();
        let written = tokio::spawn(async move {
            let answer = written.await;
            feeds.stir(Stir { feed, is_written: true });
            answer
        });
        written.await.unwrap_or(Err(StoreError::Closed))
    }

    fn entered(&self, feed: &FeedName, seat: &Seat) {
        if seat.is_first {
            self.stir(Stir { feed: feed.clone(), is_written: false });
        }
    }

    fn leave(&self, feed: &FeedName) {
        if self.shared.heads.leave(feed) {
            self.stir(Stir { feed: feed.clone(), is_written: false });
        }
    }

    /// Has the publisher look at a feed. One whose mailbox is full has messages to handle, and looks after each of them
    /// whether it missed one.
    fn stir(&self, stir: Stir) {
        match self.publisher.try_send(stir) {
            Ok(()) => {}
            Err(SendError::Full(stir)) => {
                self.shared.is_overrun.store(true, Ordering::Release);
                // Meanwhile it may have handled its last message, without the flag: then there is room now.
                drop(self.publisher.try_send(stir));
            }
            Err(SendError::Closed(_)) if self.shared.heads.is_closed() => {}
            Err(SendError::Closed(Stir { feed, .. })) => {
                error!(self.shared.log, "the publisher of feeds is gone, restart the server";
                    "feed" => %feed);
            }
        }
    }
}
