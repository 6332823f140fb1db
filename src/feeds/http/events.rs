//! A feed as server-sent events (WHATWG HTML §9.2).
//!
//! A page is fetched when the previous one was written to the connection: updates for a slow reader stay in the store.
//! Followers at the same cursor share a page and its text.

use std::convert::Infallible;
use std::fmt::Write;
use std::future::ready;
use std::time::Duration;

use actix_web::http::header::CONTENT_TYPE;
use actix_web::web::{Bytes, Data};
use actix_web::{HttpResponse, HttpResponseBuilder};
use actors::socket::EndlessBody;
use actors::{Clock, FeedSubscription, SubscriptionError};
use futures_util::{StreamExt, stream};
use serde::Serialize;
use state_machine::feed::{ConsumerEnd, FeedPage, FeedSyncId, Update};
use tokio::time::timeout;

use super::error::FeedError;
use super::service::FeedService;
use super::tokens::Grant;

/// The reconnection time of a reader, in ms.
const RETRY: Bytes = Bytes::from_static(b"retry: 1000\n\n");

/// A comment, which readers ignore.
const COMMENT: Bytes = Bytes::from_static(b":\n\n");

/// Bytes that are sent at once. The rest of a page is shared until the reader takes it.
const PART_BYTES_MAX: usize = 8 * 1024;

struct Events<F> {
    /// Writes the events of a page.
    write: F,
    /// The rest of the last page.
    page: Bytes,
    follower: FeedSubscription,
    /// Whether the last event was sent.
    is_over: bool,
    keepalive: Duration,
    grant: Grant,
    clock: Clock,
}

/// A stream whose first page is `page`.
pub(super) fn stream(
    service: &Data<FeedService>,
    grant: Grant,
    page: &FeedPage,
    write: impl Fn(&FeedPage) -> String + 'static,
) -> Result<HttpResponse, FeedError> {
    let events = Events {
        follower: service.follow(grant.feed.clone(), page.cursor)?,
        page: write(page).into(),
        write,
        is_over: false,
        keepalive: service.limits.keepalive,
        grant,
        clock: service.clock.clone(),
    };
    let parts = stream::unfold(events, |mut events| async {
        let part = events.next().await?;
        Some((part, events))
    });
    let parts = stream::once(ready(RETRY)).chain(parts).map(Ok::<_, Infallible>);
    let mut response = response().streaming(parts);
    response.extensions_mut().insert(EndlessBody);
    Ok(response)
}

/// The answer to HEAD. actix-http would read an endless stream without an end to send nothing of it.
pub(super) fn head() -> HttpResponse {
    response().streaming(stream::empty::<Result<Bytes, Infallible>>())
}

fn response() -> HttpResponseBuilder {
    let mut response = HttpResponse::Ok();
    response.insert_header((CONTENT_TYPE, "text/event-stream"));
    // nginx would buffer the events.
    response.insert_header(("x-accel-buffering", "no"));
    response
}

impl<F: Fn(&FeedPage) -> String> Events<F> {
    /// The next part; none at the end of the stream: its token has expired, or the server stops.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let left = self.grant.left(self.clock.now());
            if left.is_zero() {
                return None;
            }
            if !self.page.is_empty() {
                return Some(self.page.split_to(self.page.len().min(PART_BYTES_MAX)));
            }
            if self.is_over {
                return None;
            }
            match timeout(self.keepalive.min(left), self.follower.next_shared()).await {
                Ok(Ok(page)) => self.page = page.text(&self.write),
                Ok(Err(SubscriptionError::End(ConsumerEnd::CursorTooOld { horizon }))) => {
                    self.page = gone(horizon);
                    self.is_over = true;
                }
                Ok(Err(_)) => return None,
                Err(_) => return Some(COMMENT),
            }
        }
    }
}

/// The events of a page.
pub(super) fn text(page: &FeedPage) -> String {
    let mut text: String = page.updates.iter().map(of_update).collect();
    move_cursor(&mut text, page);
    text
}

/// Moves the reader's cursor to the end of the page, behind the events of its updates.
pub(super) fn move_cursor(text: &mut String, page: &FeedPage) {
    let written = page.updates.last().map_or(FeedSyncId::NONE, |update| update.feed_sync_id);
    if written < page.cursor {
        // Without data this is no event, but it moves the reader's cursor (§9.2.6).
        let _ = write!(text, "id: {}\n\n", page.cursor);
    }
    // It is kept until a reader has taken all of it.
    text.shrink_to_fit();
}

/// The last event of a stream whose cursor fell below the horizon. It has no id.
fn gone(horizon: FeedSyncId) -> Bytes {
    let error = FeedError::CursorTooOld(horizon);
    let data = serde_json::json!({ "errno": error.errno(), "message": error.to_string() });
    format!("event: gone\ndata: {data}\n\n").into()
}

fn of_update(update: &Update) -> String {
    let kind = if update.value.is_some() { "update" } else { "delete" };
    event(update.feed_sync_id, kind, update)
}

pub(super) fn event(id: FeedSyncId, kind: &str, data: &impl Serialize) -> String {
    let json = serde_json::to_string(data).expect("numbers and texts can be written as JSON");
    format!("id: {id}\nevent: {kind}\ndata: {json}\n\n")
}
