//! `/v1/feeds`: feeds for other programs. Their requests enter, writes and reads of the store leave, and so do pages and
//! event streams. docs/feeds.md describes it for their authors.
//!
//! | request | scope | file |
//! |---|---|---|
//! | `PUT /v1/feeds/{feed}/{key}` | w | here |
//! | `DELETE /v1/feeds/{feed}/{key}` | w | here |
//! | `POST /v1/feeds/{feed}/{key}/republish` | w | here |
//! | `GET`, `HEAD /v1/feeds/{feed}` | r | `read.rs`, `events.rs` |
//!
//! The receipts of pushes are feeds too, see `receipts.rs`. What all requests share is in `service.rs`.
//!
//! The token is checked first, even before the method: a client without one learns nothing. There are no CORS headers:
//! a token is a secret of programs, not of web pages.

mod error;
mod events;
#[cfg(test)]
mod fixture;
mod query;
mod read;
mod receipts;
pub mod service;
mod target;
#[cfg(test)]
mod tests;
pub mod tokens;

use actix_web::http::header::{CACHE_CONTROL, CONTENT_LENGTH, HeaderMap};
use actix_web::http::{Method, StatusCode};
use actix_web::middleware::DefaultHeaders;
use actix_web::web::{self, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;
use slog::debug;
use state_machine::feed::{FeedKey, FeedName, FeedValue, Version, WriteResult};
use storage::StoreError;
use tokio::time::timeout;

use crate::push::request_id::request_id;
use error::FeedError;
use query::ReadQuery;
use service::FeedService;
use target::{Change, Target};
use tokens::{Grant, Scopes};

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
            "errno" => error.errno().number(), "reason" => %error);
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
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            return Err(FeedError::Method { allow: "GET, HEAD" });
        }
        needs(&grant, Scopes::Read)?;
        let query = ReadQuery::read(request, &service.limits)?;
        return read::read(service, grant, query).await;
    };
    let change = rest.change(request.method())?;
    needs(&grant, Scopes::Write)?;
    query::none(request)?;
    let (feed, headers) = (grant.feed, request.headers());
    match change {
        Change::Put(key) => put(service, feed, key?, headers, payload).await,
        Change::Delete(key) => {
            let deleted = service.feeds.delete(feed.clone(), key?).await;
            changed(service, &feed, deleted)
        }
        Change::Republish(key) => {
            let republished = service.feeds.republish(feed.clone(), key?).await;
            changed(service, &feed, republished)
        }
    }
}

fn needs(grant: &Grant, wanted: Scopes) -> Result<(), FeedError> {
    if grant.scopes.allow(wanted) { Ok(()) } else { Err(FeedError::Scope(wanted)) }
}

/// Sets a key to the body.
async fn put(
    service: &FeedService,
    feed: FeedName,
    key: FeedKey,
    headers: &HeaderMap,
    payload: Payload,
) -> Result<HttpResponse, FeedError> {
    if !feed.may_have(&key) {
        return Err(FeedError::ReservedKey);
    }
    let max_bytes = feed.value_bytes_max(service.limits.value_bytes_max);
    let value = read_value(service, max_bytes, headers, payload).await?;
    let written = service.feeds.write(feed.clone(), key, value).await;
    match written.map_err(|error| service.failed(&feed, &error))? {
        WriteResult::Done(version) if version == Version::default().next() => {
            Ok(with_version(StatusCode::CREATED, version))
        }
        WriteResult::Done(version) => Ok(with_version(StatusCode::OK, version)),
        WriteResult::TooManyKeys => Err(FeedError::TooManyKeys),
    }
}

/// Answers a change of a key that must exist.
fn changed(
    service: &FeedService,
    feed: &FeedName,
    changed: Result<Option<Version>, StoreError>,
) -> Result<HttpResponse, FeedError> {
    let version = changed.map_err(|error| service.failed(feed, &error))?;
    version.map(|version| with_version(StatusCode::OK, version)).ok_or(FeedError::NoSuchKey)
}

fn with_version(status: StatusCode, version: Version) -> HttpResponse {
    HttpResponse::build(status).json(json!({"version": version.0}))
}

/// Reads the body within its limits of size and time.
async fn read_value(
    service: &FeedService,
    max_bytes: usize,
    headers: &HeaderMap,
    payload: Payload,
) -> Result<FeedValue, FeedError> {
    let announced =
        headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: u64| length > max_bytes as u64) {
        return Err(FeedError::TooLarge { max_bytes });
    }
    let read = timeout(service.limits.body_timeout, payload.to_bytes_limited(max_bytes)).await;
    let body = match read {
        Ok(Ok(Ok(body))) => body,
        Ok(Ok(Err(_))) => return Err(FeedError::BodyBroken),
        Ok(Err(_)) => return Err(FeedError::TooLarge { max_bytes }),
        Err(_) => return Err(FeedError::BodySlow),
    };
    let text = std::str::from_utf8(&body).map_err(|_| FeedError::ValueNotText)?;
    FeedValue::parse(text).map_err(|_| FeedError::TooLarge { max_bytes: FeedValue::BYTES_MAX })
}
