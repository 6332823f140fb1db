//! How far each followed feed has come.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use state_machine::feed::{FeedName, FeedSyncId};
use tokio::sync::watch;

/// The heads of the feeds that somebody here follows. A feed that nobody follows any more has no entry.
#[derive(Debug, Default)]
pub(super) struct HeadWatch(Mutex<WatchedFeeds>);

#[derive(Debug, Default)]
struct WatchedFeeds {
    feeds: BTreeMap<FeedName, WatchedFeed>,
    is_closed: bool,
}

#[derive(Debug)]
struct WatchedFeed {
    sender: watch::Sender<FeedSyncId>,
    is_failing: Arc<AtomicBool>,
    followers: usize,
}

/// What a follower has of a feed.
#[derive(Debug)]
pub(super) struct HeadSubscription {
    /// How far the feed has come, as far as is known here. Closed where the node is stopping.
    pub(super) head: watch::Receiver<FeedSyncId>,
    /// Whether the store fails its followers, and the log knows.
    pub(super) is_failing: Arc<AtomicBool>,
    /// Nobody followed it before.
    pub(super) is_first: bool,
}

/// One more feed would be followed than may be.
#[derive(Debug)]
pub(super) struct TooManyFeeds;

impl HeadWatch {
    /// One more follows. Each that entered leaves again, see [`HeadWatch::unsubscribe`].
    pub(super) fn subscribe(&self, feed: &FeedName) -> HeadSubscription {
        self.followed().subscribe(feed)
    }

    /// One more follows, unless its feed would be one more than `feeds_max`.
    pub(super) fn subscribe_within(
        &self,
        feed: &FeedName,
        feeds_max: usize,
    ) -> Result<HeadSubscription, TooManyFeeds> {
        let mut followed = self.followed();
        let is_full = followed.feeds.len() >= feeds_max && !followed.feeds.contains_key(feed);
        if is_full { Err(TooManyFeeds) } else { Ok(followed.subscribe(feed)) }
    }

    /// One less follows. Whether it was the last.
    pub(super) fn unsubscribe(&self, feed: &FeedName) -> bool {
        let mut followed = self.followed();
        let Some(entry) = followed.feeds.get_mut(feed) else { return false };
        entry.followers -= 1;
        let was_last = entry.followers == 0;
        if was_last {
            followed.feeds.remove(feed);
        }
        was_last
    }

    /// Tells a feed's followers how far it has come.
    pub(super) fn announce(&self, feed: &FeedName, head: FeedSyncId) {
        if let Some(entry) = self.followed().feeds.get(feed) {
            entry.sender.send_if_modified(|known| {
                let is_news = head > *known;
                *known = head.max(*known);
                is_news
            });
        }
    }

    /// Whether anybody follows a feed.
    pub(super) fn is_followed(&self, feed: &FeedName) -> bool {
        self.followed().feeds.contains_key(feed)
    }

    /// The feeds that are followed.
    pub(super) fn names(&self) -> Vec<FeedName> {
        self.followed().feeds.keys().cloned().collect()
    }

    /// How many feeds are followed.
    pub(super) fn len(&self) -> usize {
        self.followed().feeds.len()
    }

    /// Whether the node is stopping.
    pub(super) fn is_closed(&self) -> bool {
        self.followed().is_closed
    }

    /// Lets all followers go, those to come too.
    pub(super) fn close(&self) {
        let mut followed = self.followed();
        followed.is_closed = true;
        followed.feeds.clear();
    }

    fn followed(&self) -> MutexGuard<'_, WatchedFeeds> {
        // Nothing in here can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatchedFeeds {
    fn subscribe(&mut self, feed: &FeedName) -> HeadSubscription {
        if self.is_closed {
            return WatchedFeed::default().join();
        }
        self.feeds.entry(feed.clone()).or_default().join()
    }
}

impl Default for WatchedFeed {
    fn default() -> Self {
        let sender = watch::Sender::new(FeedSyncId::NONE);
        Self { sender, is_failing: Arc::default(), followers: 0 }
    }
}

impl WatchedFeed {
    fn join(&mut self) -> HeadSubscription {
        self.followers += 1;
        HeadSubscription {
            head: self.sender.subscribe(),
            is_failing: Arc::clone(&self.is_failing),
            is_first: self.followers == 1,
        }
    }
}
