//! Waits for updates of a feed.

use std::mem;

use actors::{FeedSubscription, Feeds, SubscriptionError};
use state_machine::feed::{ConsumerEnd, FeedName, FeedPage, FeedSyncId};

use super::FeedService;
use super::error::FeedError;

pub(super) struct Waiting {
    feeds: Feeds,
    feed: FeedName,
    follower: FeedSubscription,
    /// The follower before, which keeps its place among those that are counted.
    place: Option<FeedSubscription>,
}

impl Waiting {
    pub(super) fn behind(
        service: &FeedService,
        feed: FeedName,
        after: FeedSyncId,
    ) -> Result<Self, FeedError> {
        let retry_after = service.limits.retry_after;
        let follower = service.feeds.subscribe(feed.clone(), after);
        let follower = follower.map_err(|_| FeedError::TooManyFollowers { retry_after })?;
        Ok(Self { feeds: service.feeds.clone(), feed, follower, place: None })
    }

    /// Waits for the next page. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<FeedPage, SubscriptionError> {
        loop {
            match self.follower.next().await {
                Err(SubscriptionError::End(ConsumerEnd::NoSuchFeed))
                    if self.feed.is_always_there() =>
                {
                    let cursor = self.follower.cursor();
                    let patient = self.feeds.subscribe_when_created(self.feed.clone(), cursor);
                    self.place = Some(mem::replace(&mut self.follower, patient));
                }
                next => return next,
            }
        }
    }
}
