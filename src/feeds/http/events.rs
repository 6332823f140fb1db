//! A feed as server-sent events (WHATWG HTML §9.2).
//!
//! A page is fetched when the one before was written to the connection: what a slow reader has not read stays in
//! the store.

use std::convert::Infallible;
use std::time::Duration;
use std::vec;

use actix_web::HttpResponse;
use actix_web::http::header::CONTENT_TYPE;
use actix_web::web::{Bytes, Data};
use actors::Clock;
use futures_util::stream;
use state_machine::feed::{FeedPage, FeedSyncId, Update};
use tokio::time::timeout;

use super::FeedService;
use super::error::FeedError;
use super::follow::Waiting;
use super::page::ShownUpdate;
use super::tokens::Grant;

/// When a reader whose connection ended is to come back.
const RETRY_MS: u32 = 1000;

/// A line that readers pass over.
const COMMENT: &str = ":\n\n";

/// A stream that is open.
struct Events {
    /// What is still to be written of the page that was fetched last.
    page: Unwritten,
    waiting: Waiting,
    keepalive: Duration,
    grant: Grant,
    clock: Clock,
    /// Goes before everything else.
    greeting: Option<String>,
}

struct Unwritten {
    updates: vec::IntoIter<Update>,
    /// The last number of it that was written.
    at: FeedSyncId,
    /// Where the page ends.
    cursor: FeedSyncId,
}

/// A stream that begins with a page.
pub(super) fn stream(
    service: &Data<FeedService>,
    grant: Grant,
    page: FeedPage,
) -> Result<HttpResponse, FeedError> {
    let events = Events {
        waiting: Waiting::behind(service, grant.feed.clone(), page.cursor)?,
        page: Unwritten::of(page),
        keepalive: service.limits.keepalive,
        grant,
        clock: service.clock.clone(),
        greeting: Some(format!("retry: {RETRY_MS}\n\n")),
    };
    let texts = stream::unfold(events, |mut events| async {
        let text = events.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(text)), events))
    });
    let mut response = HttpResponse::Ok();
    response.insert_header((CONTENT_TYPE, "text/event-stream"));
    // nginx would keep events back until it has a buffer full of them.
    response.insert_header(("x-accel-buffering", "no"));
    Ok(response.streaming(texts))
}

impl Events {
    /// What is written next; none where the stream ends: its token has expired, the server stops.
    async fn next(&mut self) -> Option<String> {
        if let Some(greeting) = self.greeting.take() {
            return Some(greeting);
        }
        loop {
            let left = self.grant.left(self.clock.now());
            if left.is_zero() {
                return None;
            }
            if let Some(text) = self.page.next() {
                return Some(text);
            }
            match timeout(self.keepalive.min(left), self.waiting.next()).await {
                Ok(page) => self.page = Unwritten::of(page.ok()?),
                Err(_) => return Some(COMMENT.to_owned()),
            }
        }
    }
}

impl Unwritten {
    fn of(page: FeedPage) -> Self {
        Self { updates: page.updates.into_iter(), at: FeedSyncId::NONE, cursor: page.cursor }
    }

    fn next(&mut self) -> Option<String> {
        if let Some(update) = self.updates.next() {
            self.at = update.feed_sync_id;
            return Some(event(&update));
        }
        (self.at < self.cursor).then(|| {
            self.at = self.cursor;
            // Without data it is no event, but the reader's cursor moves (§9.2.6).
            format!("id: {}\n\n", self.cursor)
        })
    }
}

fn event(update: &Update) -> String {
    let kind = if update.value.is_some() { "update" } else { "delete" };
    let json = serde_json::to_string(&ShownUpdate::from(update));
    let json = json.expect("numbers and texts can be written as JSON");
    format!("id: {}\nevent: {kind}\ndata: {json}\n\n", update.feed_sync_id)
}
