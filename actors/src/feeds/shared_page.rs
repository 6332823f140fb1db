//! One read of a page for all followers at the same cursor.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::Shared;
use state_machine::feed::{FeedPage, FeedSyncId};
use storage::StoreFuture;

/// A page of a feed, which its followers share.
#[derive(Debug, PartialEq, Eq)]
pub struct SharedPage {
    page: FeedPage,
    text: OnceLock<Bytes>,
}

pub(super) type PageFuture = StoreFuture<Option<Arc<SharedPage>>>;

/// A read that followers share, pending or complete.
#[derive(Debug)]
pub(super) struct SharedRead {
    after: FeedSyncId,
    /// The head that was announced when the read began. The page has all updates up to it.
    announced: FeedSyncId,
    page: Shared<PageFuture>,
    /// Followers that may still join.
    joiners_max: usize,
}

impl SharedPage {
    /// The page as text, which the first call writes for all followers.
    pub fn text(&self, write: impl FnOnce(&FeedPage) -> String) -> Bytes {
        self.text.get_or_init(|| write(&self.page).into()).clone()
    }

    pub(super) fn into_page(self: Arc<Self>) -> FeedPage {
        Arc::try_unwrap(self).map_or_else(|shared| shared.page.clone(), |alone| alone.page)
    }
}

impl From<FeedPage> for SharedPage {
    fn from(page: FeedPage) -> Self {
        Self { page, text: OnceLock::new() }
    }
}

impl Deref for SharedPage {
    type Target = FeedPage;

    fn deref(&self) -> &FeedPage {
        &self.page
    }
}

impl SharedRead {
    pub(super) fn new(
        after: FeedSyncId,
        announced: FeedSyncId,
        page: PageFuture,
        joiners_max: usize,
    ) -> Self {
        Self { after, announced, page: page.shared(), joiners_max }
    }

    /// The page for the follower that began the read.
    pub(super) fn page(&self) -> PageFuture {
        self.page.clone().boxed()
    }

    /// Whether a follower at this cursor may join. Not if a greater head was announced since the read began: it may
    /// lack updates of which the follower is not notified again.
    pub(super) fn may_join(&self, after: FeedSyncId, announced: FeedSyncId) -> bool {
        self.after == after && self.announced == announced && self.joiners_max > 0
    }

    /// The page for a follower that joins. If the page does not move its cursor, its own read follows: the shared one
    /// failed, or began before the follower had its cursor.
    pub(super) fn join(&mut self, own: PageFuture) -> PageFuture {
        self.joiners_max -= 1;
        let (after, page) = (self.after, self.page.clone());
        let joined = async move {
            match page.await {
                Ok(Some(page)) if page.cursor > after => Ok(Some(page)),
                _ => own.await,
            }
        };
        joined.boxed()
    }

    /// Whether all followers have taken the page. Then it can be dropped.
    pub(super) fn is_used_up(&self) -> bool {
        self.joiners_max == 0
    }
}
