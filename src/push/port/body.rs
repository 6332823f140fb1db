//! Reading the body of a request.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_LENGTH, HeaderMap};
use actix_web::web::{Bytes, Payload};
use tokio::time::timeout;

use crate::push::error::PushError;

/// Reads the body within limits of size and time.
pub(crate) async fn read_body(
    headers: &HeaderMap,
    payload: Payload,
    max_bytes: usize,
    within: Duration,
) -> Result<Bytes, PushError> {
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: u64| length > max_bytes as u64) {
        return Err(PushError::TooLarge { max_bytes });
    }
    match timeout(within, payload.to_bytes_limited(max_bytes)).await {
        Ok(Ok(Ok(body))) => Ok(body),
        Ok(Ok(Err(_))) => Err(PushError::Http(StatusCode::BAD_REQUEST)),
        Ok(Err(_)) => Err(PushError::TooLarge { max_bytes }),
        Err(_) => Err(PushError::Http(StatusCode::REQUEST_TIMEOUT)),
    }
}
