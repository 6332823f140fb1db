//! `/v1/feeds`: feeds for other programs. docs/feeds.md describes it for their authors.
//!
//! | request | scope | file |
//! |---|---|---|
//! | `PUT /v1/feeds/{feed}/{key}` | w | `write.rs` |
//! | `DELETE /v1/feeds/{feed}/{key}` | w | `write.rs` |
//! | `POST /v1/feeds/{feed}/{key}/republish` | w | `write.rs` |
//! | `GET /v1/feeds/{feed}` | r | `read.rs`, `events.rs` |
//!
//! The receipts of pushes are feeds too, see `receipts.rs`.
//!
//! The token is checked first, even before the method: a client without one learns nothing. There are no CORS headers:
//! a token is a secret of programs, not of web pages.

mod error;
mod events;
#[cfg(test)]
mod fixture;
mod large;
mod query;
mod read;
mod receipts;
mod target;
#[cfg(test)]
mod tests;
pub mod tokens;
mod write;

use std::sync::Arc;
use std::time::Duration;

use actix_web::http::Method;
use actix_web::http::header::{AUTHORIZATION, CACHE_CONTROL, HeaderMap};
use actix_web::middleware::DefaultHeaders;
use actix_web::web::{self, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use actors::{Clock, FeedSubscription, Feeds};
use slog::{Logger, debug, warn};
use state_machine::feed::{FeedName, FeedSyncId};
use state_machine::store::PageLimit;
use storage::StoreError;
use tokio::sync::Semaphore;

use crate::push::request_id::request_id;
use error::FeedError;
use query::ReadQuery;
use target::{Change, Target};
use tokens::{FeedTokens, Grant, Scopes};

/// A page with more bytes of values is large: a smaller one mostly fits into the kernel's buffer at once. Also the page
/// size for followers, of which each may keep one unread page in memory; one update is always read.
pub const FOLLOWED_BYTES_MAX: usize = 64 * 1024;

pub struct FeedService {
    pub feeds: Feeds,
    pub tokens: FeedTokens,
    pub limits: FeedRequestLimits,
    /// A permit for each large page that is being sent.
    pub pages: Arc<Semaphore>,
    /// The clock by which tokens expire.
    pub clock: Clock,
    pub log: Logger,
}

/// The limits of one request.
#[derive(Debug, Clone, Copy)]
pub struct FeedRequestLimits {
    pub value_bytes_max: usize,
    pub page: PageLimit,
    /// How long a request may wait for an update.
    pub wait_max: Duration,
    /// How long an event stream may be silent.
    pub keepalive: Duration,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
}

/// Answers requests for feeds with `feeds`.
pub(crate) fn routes(feeds: &Data<FeedService>, service: &mut ServiceConfig) {
    receipts::routes(feeds, service);
    service.service(
        web::scope(target::BASE.trim_end_matches('/'))
            .app_data(feeds.clone())
            .wrap(DefaultHeaders::new().add((CACHE_CONTROL, "no-store")))
            .default_service(web::route().to(answer)),
    );
}

async fn answer(
    request: HttpRequest,
    payload: Payload,
    service: Data<FeedService>,
) -> Result<HttpResponse, FeedError> {
    let answer = serve(&request, payload, &service).await;
    answer.inspect_err(|error| {
        debug!(service.log, "refused a request for a feed"; "request" => request_id(request.headers()),
            "errno" => error.errno(), "reason" => %error);
    })
}

async fn serve(
    request: &HttpRequest,
    payload: Payload,
    service: &Data<FeedService>,
) -> Result<HttpResponse, FeedError> {
    let Target { feed, rest } = Target::read(request.uri().path());
    let grant = service.admit(request.headers(), feed.as_deref())?;
    let Some(rest) = rest else {
        if *request.method() != Method::GET {
            return Err(FeedError::Method { allow: "GET" });
        }
        grant.needs(Scopes::Read)?;
        let query = ReadQuery::read(request, &service.limits)?;
        return read::read(service, grant, query).await;
    };
    let change = rest.change(request.method())?;
    grant.needs(Scopes::Write)?;
    query::none(request)?;
    let (feed, headers) = (grant.feed, request.headers());
    match change {
        Change::Put(key) => write::put(service, feed, key?, headers, payload).await,
        Change::Delete(key) => {
            let deleted = service.feeds.delete(feed.clone(), key?).await;
            write::changed(service, &feed, deleted)
        }
        Change::Republish(key) => {
            let republished = service.feeds.republish(feed.clone(), key?).await;
            write::changed(service, &feed, republished)
        }
    }
}

impl FeedService {
    /// Checks the token of a request against the feed in its path.
    fn admit(&self, headers: &HeaderMap, feed: Option<&str>) -> Result<Grant, FeedError> {
        let token = bearer(headers).ok_or(FeedError::NoToken)?;
        let grant = self.tokens.check(token, self.clock.now())?;
        let is_its_feed = feed == Some(grant.feed.as_str());
        if is_its_feed { Ok(grant) } else { Err(FeedError::OtherFeed) }
    }

    /// Logs a failure of the store; the answer to the request.
    fn failed(&self, feed: &FeedName, error: &StoreError) -> FeedError {
        match error {
            StoreError::Busy => {
                debug!(self.log, "the store is too busy for a feed"; "feed" => %feed);
            }
            error => {
                warn!(self.log, "the store failed for a feed"; "feed" => %feed, "error" => %error);
            }
        }
        FeedError::Unavailable
    }

    fn follow(&self, feed: FeedName, after: FeedSyncId) -> Result<FeedSubscription, FeedError> {
        self.feeds.subscribe(feed, after).map_err(|_| FeedError::TooManyFollowers)
    }
}

impl Grant {
    fn needs(&self, wanted: Scopes) -> Result<(), FeedError> {
        if self.scopes.allow(wanted) { Ok(()) } else { Err(FeedError::Scope(wanted)) }
    }
}

/// The token of `Authorization: Bearer TOKEN` (RFC 6750 §2.1). A token in the URL is not accepted: logs would have it.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION);
    let text = values.next()?.to_str().ok()?;
    let (scheme, token) = text.trim().split_once(' ')?;
    let is_alone = values.next().is_none() && scheme.eq_ignore_ascii_case("bearer");
    is_alone.then_some(token.trim())
}
