//! `POST /wpush/...`: an application server sends a message (RFC 8030 §5).

use actix_web::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, LOCATION};
use actix_web::web::{self, Bytes, Data, Path, Payload};
use actix_web::{HttpRequest, HttpResponse, Resource};
use actors::DeliverPush;
use slog::debug;
use state_machine::delivery::Outcome;
use state_machine::{Message, MessageKey, Uaid};
use tokio::time::timeout;

use super::PushError;
use super::app::{EndpointRole, LocalEndpoint};
use super::endpoint_token::{EndpointToken, TokenVersion};
use super::push_headers::{self, PushHeaders};
use super::routes::preflight_or_refused;
use super::vapid::Credentials;
use actix_web::http::StatusCode;

/// An endpoint path whose tokens are of `version`.
pub(super) fn resource(path: &'static str, version: TokenVersion) -> Resource {
    let push = move |request: HttpRequest,
                     token: Path<String>,
                     payload: Payload,
                     app: Data<EndpointRole>,
                     endpoint: Data<LocalEndpoint>| async move {
        let answer = push(&request, version, &token, payload, &app, &endpoint).await;
        answer.inspect_err(|error| {
            debug!(app.common.log, "refused a push"; "errno" => error.errno(), "reason" => %error);
        })
    };
    web::resource(path).post(push).default_service(preflight_or_refused("POST, OPTIONS"))
}

async fn push(
    request: &HttpRequest,
    version: TokenVersion,
    token: &str,
    payload: Payload,
    app: &EndpointRole,
    endpoint: &LocalEndpoint,
) -> Result<HttpResponse, PushError> {
    let headers = request.headers();
    let EndpointToken { uaid, chid } = open(app, headers, version, token)?;
    let PushHeaders { ttl, topic, urgency } = PushHeaders::read(headers, app.limits.ttl_max)?;
    let body = read_body(headers, payload, app).await?;
    let payload = push_headers::payload(headers, body)?;
    let accepted_at = app.common.clock.now();
    let id = app.ids.mint(accepted_at, topic.is_some());
    let message = Message { id, chid, topic, urgency, accepted_at, ttl, payload };
    let reference = message.key();
    let outcome = endpoint.address().send(DeliverPush { uaid, message }).await;
    let outcome = outcome.unwrap_or_else(|error| {
        debug!(app.common.log, "the endpoint actor refused a push"; "error" => %error);
        Outcome::Unavailable
    });
    debug!(app.common.log, "took a push"; "outcome" => ?outcome, "ttl_s" => ttl.0 / 1000);
    match refusal(outcome, app) {
        Some(error) => Err(error),
        None => Ok(created(app, uaid, &reference, ttl.0 / 1000)),
    }
}

/// Whose endpoint it is, once the sender has shown that it may use it.
fn open(
    app: &EndpointRole,
    headers: &HeaderMap,
    version: TokenVersion,
    token: &str,
) -> Result<EndpointToken, PushError> {
    let credentials = Credentials::read(headers)?;
    let key = credentials.as_ref().map(Credentials::key);
    let opened = app.tokens.decrypt(version, token, key)?;
    if let Some(credentials) = &credentials {
        app.vapid.verify(credentials, app.common.clock.now())?;
    }
    Ok(opened)
}

/// Reads the body, bounded in bytes and in time.
async fn read_body(
    headers: &HeaderMap,
    payload: Payload,
    app: &EndpointRole,
) -> Result<Bytes, PushError> {
    let limits = &app.limits;
    let is_old_encoding = headers.get(CONTENT_ENCODING).is_some_and(|value| value == "aesgcm");
    let max_bytes =
        if is_old_encoding { limits.aesgcm_bytes_max } else { limits.payload_bytes_max };
    let announced =
        headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: u64| length > max_bytes as u64) {
        return Err(PushError::TooLarge { max_bytes });
    }
    match timeout(limits.body_timeout, payload.to_bytes_limited(max_bytes)).await {
        Ok(Ok(Ok(body))) => Ok(body),
        Ok(Ok(Err(_))) => Err(PushError::Http(StatusCode::BAD_REQUEST)),
        Ok(Err(_)) => Err(PushError::TooLarge { max_bytes }),
        Err(_) => Err(PushError::Http(StatusCode::REQUEST_TIMEOUT)),
    }
}

fn refusal(outcome: Outcome, app: &EndpointRole) -> Option<PushError> {
    match outcome {
        Outcome::Delivered | Outcome::Stored | Outcome::Dropped => None,
        Outcome::NoSuchUser => Some(PushError::UserGone),
        Outcome::UserWentAway => Some(PushError::UserWentAway),
        Outcome::NoSuchChannel => Some(PushError::NoSuchSubscription),
        Outcome::Unavailable => {
            Some(PushError::Unavailable { retry_after: app.common.retry_after })
        }
    }
}

fn created(app: &EndpointRole, uaid: Uaid, message: &MessageKey, ttl_s: u64) -> HttpResponse {
    let mut location = app.origin.clone();
    location.push_str(&app.message_urls.encrypt(uaid, message));
    HttpResponse::Created()
        .insert_header((LOCATION, location))
        .insert_header(("ttl", ttl_s))
        .finish()
}
