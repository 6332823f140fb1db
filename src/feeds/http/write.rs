//! Requests that change a key. They are answered when the change is durable; it is published later.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_LENGTH, HeaderMap};
use actix_web::web::Payload;
use serde_json::json;
use state_machine::feed::{FeedKey, FeedName, FeedValue, Version, WriteResult};
use storage::StoreError;
use tokio::time::timeout;

use super::FeedService;
use super::error::FeedError;

/// Sets a key to the body.
pub(super) async fn put(
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
pub(super) fn changed(
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
