//! The last published number of each followed feed, and the page that its followers share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use state_machine::feed::{FeedName, FeedSyncId};
use tokio::sync::watch;

use super::shared_page::{PageFuture, SharedRead};

/// The heads of the feeds that are followed here. A feed without followers has no entry.
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
    /// The last page that was read, while followers may join its read: one page of memory.
    read: Option<SharedRead>,
}

/// A follower's subscription to the head of a feed.
#[derive(Debug)]
pub(super) struct HeadSubscription {
    /// The last published number that this node knows. Closed when the node is stopping.
    pub(super) head: watch::Receiver<FeedSyncId>,
    /// Whether the last read of a follower failed and was logged. The followers of a feed share it.
    pub(super) is_failing: Arc<AtomicBool>,
    /// Whether the feed had no followers before.
    pub(super) is_first: bool,
}

impl HeadWatch {
    /// Adds a follower, unless its feed is not followed and `feeds_max` others are. Each is removed
    /// with [`HeadWatch::unsubscribe`].
    pub(super) fn subscribe(&self, feed: &FeedName, feeds_max: usize) -> Option<HeadSubscription> {
        let WatchedFeeds { feeds, is_closed } = &mut *self.0.lock();
        if *is_closed {
            return Some(WatchedFeed::default().join());
        }
        if feeds.len() >= feeds_max && !feeds.contains_key(feed) {
            return None;
        }
        Some(feeds.entry(feed.clone()).or_default().join())
    }

    /// Removes a follower. Returns whether it was the last of its feed.
    pub(super) fn unsubscribe(&self, feed: &FeedName) -> bool {
        let mut followed = self.0.lock();
        let Some(entry) = followed.feeds.get_mut(feed) else { return false };
        entry.followers -= 1;
        let was_last = entry.followers == 0;
        if was_last {
            followed.feeds.remove(feed);
        }
        was_last
    }

    /// Notifies a feed's followers of its head.
    pub(super) fn announce(&self, feed: &FeedName, head: FeedSyncId) {
        if let Some(entry) = self.0.lock().feeds.get(feed) {
            entry.sender.send_if_modified(|known| {
                let is_news = head > *known;
                *known = head.max(*known);
                is_news
            });
        }
    }

    /// Reads the page behind a cursor: once for all followers at it, while the head is the same. `own` reads it for one
    /// follower, and does nothing before it is polled.
    pub(super) fn read(&self, feed: &FeedName, after: FeedSyncId, own: PageFuture) -> PageFuture {
        let mut followed = self.0.lock();
        let Some(entry) = followed.feeds.get_mut(feed) else { return own };
        let head = *entry.sender.borrow();
        if let Some(read) = entry.read.as_mut().filter(|read| read.may_join(after, head)) {
            let page = read.join(own);
            entry.read.take_if(|read| read.is_used_up());
            return page;
        }
        let read = SharedRead::new(after, head, own, entry.followers - 1);
        let page = read.page();
        entry.read = Some(read).filter(|read| !read.is_used_up());
        page
    }

    /// Whether a feed has followers.
    pub(super) fn is_followed(&self, feed: &FeedName) -> bool {
        self.0.lock().feeds.contains_key(feed)
    }

    /// The feeds that have followers.
    pub(super) fn names(&self) -> Vec<FeedName> {
        self.0.lock().feeds.keys().cloned().collect()
    }

    /// The number of feeds that have followers.
    pub(super) fn len(&self) -> usize {
        self.0.lock().feeds.len()
    }

    /// Whether the node is stopping.
    pub(super) fn is_closed(&self) -> bool {
        self.0.lock().is_closed
    }

    /// Ends all subscriptions, later ones too.
    pub(super) fn close(&self) {
        let mut followed = self.0.lock();
        followed.is_closed = true;
        followed.feeds.clear();
    }
}

impl Default for WatchedFeed {
    fn default() -> Self {
        let sender = watch::Sender::new(FeedSyncId::NONE);
        Self { sender, is_failing: Arc::default(), followers: 0, read: None }
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
