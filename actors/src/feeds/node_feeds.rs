//! Writes feeds, and publishes what was written.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use actix::MailboxError;
use actix::dev::SendError;
use slog::error;
use state_machine::feed::{
    FeedKey, FeedName, FeedPage, FeedSyncId, FeedValue, Version, WriteResult,
};
use storage::{FeedTables, StoreAnswer, StoreError, StoreFuture};

use super::head_watch::HeadSubscription;
use super::publisher::{FeedDirty, PublisherActor};
use super::shared::{FeedLimits, FeedsShared};
use crate::mailbox::BoundedAddr;
use crate::observe::{FeedStats, Observe, PublisherState};

/// The feeds of a node. Clones share them.
#[derive(Clone)]
pub struct Feeds {
    pub(super) shared: Arc<FeedsShared>,
    /// One address for all clones: actix grants each address one message beyond the bound of the
    /// mailbox.
    pub(super) publisher: Arc<BoundedAddr<PublisherActor>>,
}

impl Feeds {
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

    pub(super) fn subscribed(&self, feed: &FeedName, watch: &HeadSubscription) {
        if watch.is_first {
            self.mark_dirty(FeedDirty { feed: feed.clone(), is_written: false });
        }
    }

    pub(super) fn unsubscribe(&self, feed: &FeedName) {
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
