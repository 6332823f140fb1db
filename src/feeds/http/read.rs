//! Requests that read: a page at once, a page when there is an update, or a stream.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::web::Data;
use actors::SubscriptionError;
use state_machine::Time;
use state_machine::feed::{ConsumerEnd, FeedName, FeedPage};
use state_machine::store::PageLimit;
use tokio::time::{Instant, timeout_at};

use super::error::FeedError;
use super::query::ReadQuery;
use super::service::{FOLLOWED_BYTES_MAX, FeedService};
use super::tokens::Grant;
use super::{events, large};

/// Answers with the updates behind the cursor.
pub(super) async fn read(
    service: &Data<FeedService>,
    grant: Grant,
    query: ReadQuery,
) -> Result<HttpResponse, FeedError> {
    if query.is_stream {
        let bytes = query.limit.bytes.min(FOLLOWED_BYTES_MAX);
        let query = ReadQuery { limit: PageLimit { bytes, ..query.limit }, ..query };
        let page = first_page(service, &grant.feed, query).await?;
        return events::stream(service, grant, &page, events::text);
    }
    large::answer(service, page(service, grant, query).await?)
}

/// The updates behind the cursor, for which the request may wait.
pub(super) async fn page(
    service: &FeedService,
    grant: Grant,
    query: ReadQuery,
) -> Result<FeedPage, FeedError> {
    let page = first_page(service, &grant.feed, query).await?;
    if page.updates.is_empty() && !query.wait.is_zero() {
        return next_page(service, grant, query, page).await;
    }
    Ok(page)
}

pub(super) async fn first_page(
    service: &FeedService,
    feed: &FeedName,
    query: ReadQuery,
) -> Result<FeedPage, FeedError> {
    let page = service.feeds.store().fetch_feed(feed.clone(), query.after, query.limit).await;
    let page = match page.map_err(|error| service.failed(feed, &error))? {
        Some(page) => page,
        None if feed.is_always_there() => FeedPage::default(),
        None => return Err(FeedError::NoSuchFeed),
    };
    if query.after > page.head {
        return Err(FeedError::CursorFromTheFuture(page.head));
    }
    if page.is_too_late(query.after) {
        return Err(FeedError::CursorTooOld(page.horizon));
    }
    Ok(page)
}

/// The first page with an update, or an empty one when the wait is over or the server stops.
async fn next_page(
    service: &FeedService,
    grant: Grant,
    query: ReadQuery,
    mut page: FeedPage,
) -> Result<FeedPage, FeedError> {
    let until = Instant::now() + query.wait.min(grant.left(service.clock.now()));
    let mut follower = service.follow(grant.feed, page.cursor)?;
    while page.updates.is_empty() {
        match timeout_at(until, follower.next()).await {
            Ok(Ok(next)) => page = next,
            Ok(Err(SubscriptionError::End(end))) => return Err(ended(end)),
            Ok(Err(SubscriptionError::Closed)) | Err(_) => break,
        }
    }
    page.truncate(query.limit.rows);
    Ok(page)
}

fn ended(end: ConsumerEnd) -> FeedError {
    match end {
        ConsumerEnd::NoSuchFeed => FeedError::NoSuchFeed,
        ConsumerEnd::CursorTooOld { horizon } => FeedError::CursorTooOld(horizon),
        ConsumerEnd::CursorFromTheFuture { head } => FeedError::CursorFromTheFuture(head),
    }
}

impl Grant {
    /// The time until it expires.
    pub(super) fn left(&self, now: Time) -> Duration {
        let left = self.expires.map(|expires| Duration::from_millis(expires.since(now).0));
        left.unwrap_or(Duration::MAX)
    }
}
