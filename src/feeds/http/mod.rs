//! `/v1/feeds`: feeds for other programs. docs/feeds.md is what they read.
//!
//! | request | scope | file |
//! |---|---|---|
//! | `PUT /v1/feeds/{feed}/{key}` | w | `write.rs` |
//! | `DELETE /v1/feeds/{feed}/{key}` | w | `write.rs` |
//! | `POST /v1/feeds/{feed}/{key}/republish` | w | `write.rs` |
//! | `GET /v1/feeds/{feed}` | r | `read.rs`, `events.rs` |
//!
//! Whoever may do nothing learns nothing: the token is checked before anything else of a request is looked at,
//! also before its method. There are no CORS headers: a token is a secret of programs, not of web pages.

mod error;
mod events;
#[cfg(test)]
mod fixture;
mod follow;
mod large;
mod page;
mod query;
mod read;
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
use actors::{Clock, Feeds};
use slog::{Logger, debug, warn};
use state_machine::Span;
use state_machine::feed::FeedName;
use state_machine::store::PageLimit;
use storage::StoreError;
use tokio::sync::Semaphore;

use error::FeedError;
use query::ReadQuery;
use target::{Change, Rest, Target};
use tokens::{FeedTokens, Grant, Scopes};

/// Bytes of values above which a page is a large one: what is less than that has mostly left for the kernel at once.
/// And bytes of updates that are read at a time for somebody who follows; one update is always read. Thousands may
/// follow who do not read what they are sent: each has as much in memory.
pub const FOLLOWED_BYTES_MAX: usize = 64 * 1024;

/// What requests for feeds need.
pub struct FeedService {
    /// The feeds.
    pub feeds: Feeds,
    /// Who may use them.
    pub tokens: FeedTokens,
    /// The limits of a request.
    pub limits: FeedRequestLimits,
    /// A permit for each large page that is on its way.
    pub pages: Arc<Semaphore>,
    /// The clock, by which tokens expire.
    pub clock: Clock,
    /// The log.
    pub log: Logger,
}

/// What bounds one request.
#[derive(Debug, Clone, Copy)]
pub struct FeedRequestLimits {
    /// Bytes of a value.
    pub value_bytes_max: usize,
    /// What a page has at most.
    pub page: PageLimit,
    /// How long a request may wait for an update.
    pub wait_max: Duration,
    /// How long an event stream may be silent.
    pub keepalive: Duration,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// What `Retry-After` says.
    pub retry_after: Span,
}

/// All of it, for an application that has a [`FeedService`] among its data.
pub(crate) fn routes(service: &mut ServiceConfig) {
    service.service(
        web::scope(target::BASE.trim_end_matches('/'))
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
        debug!(service.log, "refused a request for a feed"; "errno" => error.errno(), "reason" => %error);
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
        return match *request.method() {
            Method::GET => {
                grant.needs(Scopes::Read)?;
                let query = ReadQuery::read(request, &service.limits)?;
                read::read(service, grant, query).await
            }
            _ => Err(FeedError::Method { allow: "GET" }),
        };
    };
    change(request, payload, service, grant, &rest).await
}

async fn change(
    request: &HttpRequest,
    payload: Payload,
    service: &FeedService,
    grant: Grant,
    rest: &Rest,
) -> Result<HttpResponse, FeedError> {
    let change = rest.change(request.method())?;
    grant.needs(Scopes::Write)?;
    query::none(request)?;
    let (feed, headers) = (grant.feed, request.headers());
    match change {
        Change::Put(key) => write::put(service, feed, key?, headers, payload).await,
        Change::Delete(key) => write::delete(service, feed, key?).await,
        Change::Republish(key) => write::republish(service, feed, key?).await,
    }
}

impl FeedService {
    /// What the sender of a request may do with the feed that its path names.
    fn admit(&self, headers: &HeaderMap, feed: Option<&str>) -> Result<Grant, FeedError> {
        let token = bearer(headers).ok_or(FeedError::NoToken)?;
        let grant = self.tokens.check(token, self.clock.now())?;
        let is_its_feed = feed == Some(grant.feed.as_str());
        if is_its_feed { Ok(grant) } else { Err(FeedError::OtherFeed) }
    }

    /// What a request is told of a store that failed.
    fn failed(&self, feed: &FeedName, error: &StoreError) -> FeedError {
        match error {
            StoreError::Busy => {
                debug!(self.log, "the store is too busy for a feed"; "feed" => %feed);
            }
            error => {
                warn!(self.log, "the store failed for a feed"; "feed" => %feed, "error" => %error);
            }
        }
        FeedError::Unavailable { retry_after: self.limits.retry_after }
    }
}

impl Grant {
    fn needs(&self, wanted: Scopes) -> Result<(), FeedError> {
        if self.scopes.allow(wanted) { Ok(()) } else { Err(FeedError::Scope(wanted)) }
    }
}

/// The token of `Authorization: Bearer TOKEN` (RFC 6750 §2.1). A token in the URL, where logs would have it, is none.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION);
    let text = values.next()?.to_str().ok()?;
    let (scheme, token) = text.trim().split_once(' ')?;
    let is_alone = values.next().is_none() && scheme.eq_ignore_ascii_case("bearer");
    is_alone.then_some(token.trim())
}
