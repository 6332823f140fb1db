//! Requests that read: a page at once, a page when there is an update, or a stream.
//!
//! A client that does not read keeps its page in memory, so pages that are too large to be written at once are counted. Each
//! of them is turned into JSON while it is sent.

use std::convert::Infallible;
use std::iter::{from_fn, once};
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::header::ContentType;
use actix_web::web::{Bytes, Data};
use actors::SubscriptionError;
use futures_util::stream;
use state_machine::Time;
use state_machine::feed::{ConsumerEnd, FeedName, FeedPage, Update};
use state_machine::store::PageLimit;
use tokio::time::{Instant, timeout_at};

use super::error::FeedError;
use super::events;
use super::query::ReadQuery;
use super::service::{FOLLOWED_BYTES_MAX, FeedService};
use super::tokens::Grant;

/// Size of one part, in bytes, unless one update is larger.
const PART_BYTES: usize = 16 * 1024;

/// Answers with the updates behind the cursor.
pub(super) async fn read(
    service: &Data<FeedService>,
    grant: Grant,
    query: ReadQuery,
) -> Result<HttpResponse, FeedError> {
    if query.is_stream {
        let query = ReadQuery { limit: followed(query.limit), ..query };
        let page = first_page(service, &grant.feed, query).await?;
        if query.is_head {
            return Ok(events::head());
        }
        return events::stream(service, grant, &page, events::text);
    }
    answer(service, page(service, grant, query).await?)
}

/// The updates behind the cursor, for which the request may wait.
/// The first page of a stream is as large as the others, which all followers share.
fn followed(limit: PageLimit) -> PageLimit {
    PageLimit { bytes: limit.bytes.min(FOLLOWED_BYTES_MAX), ..limit }
}

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
    ConsumerEnd::of(&page, query.after).map_or(Ok(page), |end| Err(ended(end)))
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

/// Answers with a page. A large one is refused while too many are being sent.
fn answer(service: &FeedService, page: FeedPage) -> Result<HttpResponse, FeedError> {
    if !is_large(&page) {
        return Ok(HttpResponse::Ok().json(page));
    }
    let permit = service.pages.clone().try_acquire_owned();
    let permit = permit.map_err(|_| FeedError::Unavailable)?;
    let parts = parts(page).map(move |part| {
        // Released when the page is sent or the client is gone.
        let _held = &permit;
        Ok::<_, Infallible>(Bytes::from(part))
    });
    Ok(HttpResponse::Ok().insert_header(ContentType::json()).streaming(stream::iter(parts)))
}

fn is_large(page: &FeedPage) -> bool {
    let bytes = |update: &Update| {
        let value = update.value.as_ref().map_or(0, |value| value.as_str().len());
        update.key.as_str().len() + value
    };
    page.updates.iter().map(bytes).sum::<usize>() > FOLLOWED_BYTES_MAX
}

/// The page as JSON, as serde writes it.
fn parts(page: FeedPage) -> impl Iterator<Item = String> {
    let end = format!(r#"],"cursor":{},"head":{}}}"#, page.cursor, page.head);
    let updates = page.updates.into_iter().enumerate().map(|(at, update)| {
        let json = serde_json::to_string(&update).expect("numbers and texts can be JSON");
        if at == 0 { json } else { format!(",{json}") }
    });
    let mut texts = once(r#"{"updates":["#.to_owned()).chain(updates).chain(once(end));
    from_fn(move || {
        let mut part = texts.next()?;
        while part.len() < PART_BYTES
            && let Some(text) = texts.next()
        {
            part.push_str(&text);
        }
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use actix_web::body::{MessageBody, to_bytes};
    use serde_json::{Value, json};
    use state_machine::feed::{FeedKey, FeedSyncId, FeedValue, Version};

    use super::super::fixture::{PAGES, Scene};
    use super::super::tokens::Scopes;
    use super::*;

    fn page(updates: u64, bytes: usize) -> FeedPage {
        let update = |number| Update {
            feed_sync_id: FeedSyncId(number),
            key: FeedKey::parse(&format!("key {number}")).unwrap(),
            version: Version(2),
            value: FeedValue::parse(&"\"".repeat(bytes)).ok(),
        };
        let cursor = FeedSyncId(updates);
        let updates = (1..=updates).map(update).collect();
        FeedPage { updates, cursor, head: FeedSyncId(1000), ..FeedPage::default() }
    }

    async fn json_of(answer: HttpResponse) -> Value {
        let body = to_bytes(answer.into_body()).await.unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    #[actix_web::test]
    async fn a_large_page_has_the_same_json_and_is_counted_until_it_is_sent() {
        let scene = Scene::new();
        let places = &scene.service.pages;
        let free = places.available_permits();
        for (updates, bytes, is_large) in [
            (0, 0, false),
            (3, 10, false),
            (63, 1024, false),
            (64, 1024, true),
            (65, 1024, true),
            (1, 200_000, true),
            (700, 100, true),
        ] {
            let told = answer(&scene.service, page(updates, bytes)).unwrap();
            let taken = free - places.available_permits();
            assert_eq!(taken, usize::from(is_large), "{updates} of {bytes}");
            let expected = json!(page(updates, bytes));
            assert_eq!(json_of(told).await, expected, "{updates} of {bytes}");
            assert_eq!(places.available_permits(), free);
        }
    }

    #[actix_web::test]
    async fn one_large_page_too_many_is_refused_and_a_small_one_never() {
        let scene = Scene::new();
        let large = || answer(&scene.service, page(2, 100_000));
        let unread: Vec<_> = (0..PAGES).map(|_| large().unwrap()).collect();
        assert!(matches!(large(), Err(FeedError::Unavailable)));
        assert!(answer(&scene.service, page(2, 100)).is_ok());
        drop(unread);
        assert!(large().is_ok());
    }

    #[test]
    fn a_large_page_is_written_in_parts() {
        let parts: Vec<usize> = parts(page(100, 1024)).map(|part| part.len()).collect();
        let most = PART_BYTES + 2 * 1024 + 200;
        assert!(parts.len() > 10 && parts.iter().all(|part| *part < most), "{parts:?}");
    }

    #[test]
    fn the_first_page_of_a_stream_has_as_many_bytes_as_the_others() {
        for (asked, given) in [(1000, 1000), (65_536, 65_536), (65_537, 65_536)] {
            assert_eq!(
                followed(PageLimit { rows: 3, bytes: asked }),
                PageLimit { rows: 3, bytes: given }
            );
        }
    }

    #[actix_web::test]
    async fn a_page_of_a_stream_is_sent_in_parts() {
        let scene = Scene::with_a().await;
        let (feed, scopes) = (FeedName::parse("x").unwrap(), Scopes::Read);
        let grant = Grant { feed, scopes, expires: None };
        let stream = events::stream(&scene.service, grant, &page(20, 1024), events::text).unwrap();
        let mut body = Box::pin(stream.into_body());
        let mut sizes = Vec::new();
        while sizes.iter().sum::<usize>() < 20 * 1024 {
            let part = poll_fn(|cx| body.as_mut().poll_next(cx)).await.unwrap();
            sizes.push(part.unwrap().len());
        }
        assert!(sizes.iter().all(|size| *size <= 8192), "{sizes:?}");
    }
}
