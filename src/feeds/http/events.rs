//! A feed as server-sent events (WHATWG HTML §9.2).
//!
//! A page is fetched when the previous one was written to the connection: updates for a slow reader stay in the store.

use std::convert::Infallible;
use std::iter::once;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::header::CONTENT_TYPE;
use actix_web::web::{Bytes, Data};
use actors::socket::EndlessBody;
use actors::{Clock, FeedSubscription};
use futures_util::stream;
use state_machine::feed::{FeedPage, FeedSyncId, Update};
use tokio::time::timeout;

use super::FeedService;
use super::error::FeedError;
use super::tokens::Grant;

/// The reconnection time of a reader.
const RETRY_MS: u32 = 1000;

/// A comment, which readers ignore.
const COMMENT: &str = ":\n\n";

struct Events {
    /// The rest of the last page.
    page: Box<dyn Iterator<Item = String>>,
    follower: FeedSubscription,
    keepalive: Duration,
    grant: Grant,
    clock: Clock,
}

/// A stream whose first page is `page`.
pub(super) fn stream(
    service: &Data<FeedService>,
    grant: Grant,
    page: FeedPage,
) -> Result<HttpResponse, FeedError> {
    let events = Events {
        follower: service.follow(grant.feed.clone(), page.cursor)?,
        page: Box::new(once(format!("retry: {RETRY_MS}\n\n")).chain(texts(page))),
        keepalive: service.limits.keepalive,
        grant,
        clock: service.clock.clone(),
    };
    let texts = stream::unfold(events, |mut events| async {
        let text = events.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(text)), events))
    });
    let mut response = HttpResponse::Ok();
    response.insert_header((CONTENT_TYPE, "text/event-stream"));
    // nginx would buffer the events.
    response.insert_header(("x-accel-buffering", "no"));
    let mut response = response.streaming(texts);
    response.extensions_mut().insert(EndlessBody);
    Ok(response)
}

impl Events {
    /// The next text; none at the end of the stream: its token has expired, or the server stops.
    async fn next(&mut self) -> Option<String> {
        loop {
            let left = self.grant.left(self.clock.now());
            if left.is_zero() {
                return None;
            }
            if let Some(text) = self.page.next() {
                return Some(text);
            }
            match timeout(self.keepalive.min(left), self.follower.next()).await {
                Ok(page) => self.page = Box::new(texts(page.ok()?)),
                Err(_) => return Some(COMMENT.to_owned()),
            }
        }
    }
}

fn texts(page: FeedPage) -> impl Iterator<Item = String> {
    let written = page.updates.last().map_or(FeedSyncId::NONE, |update| update.feed_sync_id);
    // Without data this is no event, but it moves the reader's cursor (§9.2.6).
    let moved = (written < page.cursor).then(|| format!("id: {}\n\n", page.cursor));
    page.updates.into_iter().map(|update| event(&update)).chain(moved)
}

fn event(update: &Update) -> String {
    let kind = if update.value.is_some() { "update" } else { "delete" };
    let json = serde_json::to_string(update);
    let json = json.expect("numbers and texts can be written as JSON");
    format!("id: {}\nevent: {kind}\ndata: {json}\n\n", update.feed_sync_id)
}
