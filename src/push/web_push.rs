//! `POST /wpush/...`: an application server sends a message (RFC 8030 §5).

use std::time::Instant;

use actix_web::http::header::{AUTHORIZATION, CONTENT_ENCODING, HeaderMap, LINK, LOCATION};
use actix_web::web::{self, Data, Path, Payload};
use actix_web::{HttpRequest, HttpResponse, Resource};
use actors::DeliverPush;
use slog::debug;
use state_machine::delivery::Outcome;
use state_machine::{Message, MessageKey, Span, Uaid};

use super::app::{EndpointRole, LocalEndpoint, PushLimits};
use super::body::read_body;
use super::endpoint_token::{EndpointToken, TokenVersion};
use super::push_headers::PushHeaders;
use super::push_history::{OVER_LIMIT, PushRecord};
use super::receipts::{ExpectingPush, ReceiptWish};
use super::request_id::request_id;
use super::routes::preflight_or_refused;
use super::vapid::{Credentials, VapidKey};
use super::{PushError, simplepush};
use crate::limits::ReceiptSender;

/// The resource of an endpoint path whose tokens have this version. With `simplepush` it also accepts PUT.
pub(super) fn resource(path: &'static str, version: TokenVersion, simplepush: bool) -> Resource {
    let push = move |request: HttpRequest,
                     token: Path<String>,
                     payload: Payload,
                     app: Data<EndpointRole>,
                     endpoint: Data<LocalEndpoint>| async move {
        let answer = push(&request, version, &token, payload, &app, &endpoint).await;
        let response = answer.unwrap_or_else(|error| {
            debug!(app.common.log, "refused a push"; "request" => request_id(request.headers()),
                "errno" => error.errno(), "reason" => %error);
            error.closing_response()
        });
        app.counters.count_status(response.status().as_u16());
        response
    };
    let resource = web::resource(path).post(push);
    match simplepush {
        true => resource
            .put(move |request, token, payload, app, endpoint| {
                simplepush::put(request, version, token, payload, app, endpoint)
            })
            .default_service(preflight_or_refused("POST, PUT, OPTIONS")),
        false => resource.default_service(preflight_or_refused("POST, OPTIONS")),
    }
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
    let limits = &app.common.limits;
    let address = limits.address(request.peer_addr(), headers);
    limits.push_from(address)?;
    let (EndpointToken { uaid, chid }, vapid_key) = open(app, headers, version, token)?;
    let PushHeaders { ttl, topic, urgency } =
        app.limits.rules.headers(headers, app.limits.ttl_max)?;
    let wish = ReceiptWish::read(headers)?;
    let max_bytes = max_bytes(headers, &app.limits);
    let body = read_body(headers, payload, max_bytes, app.limits.body_timeout).await?;
    let payload = app.limits.rules.payload(headers, body, vapid_key.as_ref())?;
    let key = vapid_key.map(|key| key.sha256());
    // The body was read, so a refused sender keeps its connection.
    let accepted_at = app.common.clock.now();
    if let Err(refused) = limits.push_to(uaid, chid, key) {
        let (id, took, outcome) = (None, Span::ZERO, OVER_LIMIT);
        let push = PushRecord { at: accepted_at, took, uaid, chid, id, ttl, urgency, outcome };
        app.history.add(push);
        return Err(refused.into());
    }
    let id = app.ids.mint(accepted_at, topic.is_some());
    let mut message =
        Message { id, chid, topic, urgency, accepted_at, ttl, offers: 0, receipt: None, payload };
    let mut expecting = match wish {
        Some(wish) => {
            let sender = ReceiptSender { key, address };
            ExpectingPush::begin(app, wish, sender, uaid, &mut message).await?
        }
        None => None,
    };
    let accepted = deliver(app, endpoint, uaid, message, &mut expecting).await;
    let mut response = match (&accepted, expecting) {
        (Ok((Accepted::Stored, _)), Some(expecting)) => {
            let mut response = HttpResponse::Accepted();
            response.insert_header((LINK, expecting.link(&app.origin)));
            response
        }
        (_, expecting) => {
            if let Some(expecting) = expecting {
                expecting.cancel(app).await;
            }
            HttpResponse::Created()
        }
    };
    let (_, key) = accepted?;
    let location = format!("{}{}", app.origin, app.message_urls.encrypt(uaid, &key));
    Ok(response.insert_header((LOCATION, location)).insert_header(("ttl", ttl.0 / 1000)).finish())
}

/// How a push that succeeded has ended.
pub(super) enum Accepted {
    Delivered,
    Stored,
    Dropped,
}

/// Has the message delivered or stored. Its subscription has been charged. Returns the key that it got in the end.
pub(super) async fn deliver(
    app: &EndpointRole,
    endpoint: &LocalEndpoint,
    uaid: Uaid,
    message: Message,
    expecting: &mut Option<ExpectingPush>,
) -> Result<(Accepted, MessageKey), PushError> {
    let access = &app.common.access;
    if access.has_ended(uaid) {
        return Err(PushError::UserGone);
    }
    let Message { chid, ttl, urgency, accepted_at: at, .. } = message;
    let bytes = message.payload.as_ref().map_or(0, |payload| payload.data.len());
    let began = Instant::now();
    let (outcome, key) = deliver_as_latest(app, endpoint, uaid, message, expecting).await?;
    let took = began.elapsed();
    let name = app.counters.count_outcome(&outcome, took);
    let took = Span(took.as_millis() as u64);
    let id = Some(key.id);
    app.history.add(PushRecord { at, took, uaid, chid, id, ttl, urgency, outcome: name });
    debug!(app.common.log, "processed a push"; "outcome" => ?outcome, "ttl_s" => ttl.0 / 1000);
    if let Outcome::Delivered | Outcome::Stored = outcome {
        access.count_push(uaid, bytes);
    }
    match outcome {
        Outcome::Delivered => Ok((Accepted::Delivered, key)),
        Outcome::Stored => Ok((Accepted::Stored, key)),
        Outcome::Dropped => Ok((Accepted::Dropped, key)),
        Outcome::OtherProtocol => Err(PushError::OtherProtocol),
        Outcome::NoSuchUser => Err(PushError::UserGone),
        Outcome::UserWentAway => Err(PushError::UserWentAway),
        Outcome::NoSuchChannel => Err(PushError::NoSuchSubscription),
        Outcome::Full(scope) => Err(PushError::WaitingFull(scope)),
        Outcome::Bridge(outcome) => Err(PushError::Bridge(outcome)),
        Outcome::Outranked(_) | Outcome::Unavailable => Err(PushError::Unavailable),
    }
}

/// Sends the message to the endpoint actor. If one of its topic with a greater id waits, it is sent once more with an id
/// above that. The clock of the other endpoint was ahead: this push is not answered yet, so it is the later one.
async fn deliver_as_latest(
    app: &EndpointRole,
    endpoint: &LocalEndpoint,
    uaid: Uaid,
    message: Message,
    expecting: &mut Option<ExpectingPush>,
) -> Result<(Outcome, MessageKey), PushError> {
    let (key, again) = (message.key(), message.topic.is_some().then(|| message.clone()));
    let outcome = send(app, endpoint, DeliverPush { uaid, message, is_repeated: false }).await;
    let (Outcome::Outranked(by), Some(again)) = (outcome, again) else { return Ok((outcome, key)) };
    let Some(id) = again.id.above(by) else { return Ok((outcome, key)) };
    debug!(app.common.log, "a message of the topic has a later id, repeating the push with one above it";
        "ahead_ms" => by.minted_at().map(|ahead| ahead.since(again.accepted_at).0));
    let mut message = Message { id, ..again };
    if let Some(before) = expecting.take() {
        *expecting = Some(before.of_new_id(app, uaid, &mut message).await?);
    }
    let key = message.key();
    match send(app, endpoint, DeliverPush { uaid, message, is_repeated: true }).await {
        // Another push has stored its message since. Neither was answered then, so that one may count as the later.
        Outcome::Outranked(_) => {
            if let Some(replaced) = expecting.take() {
                replaced.cancel(app).await;
            }
            Ok((Outcome::Stored, key))
        }
        outcome => Ok((outcome, key)),
    }
}

async fn send(app: &EndpointRole, endpoint: &LocalEndpoint, push: DeliverPush) -> Outcome {
    endpoint.address().send(push).await.unwrap_or_else(|error| {
        debug!(app.common.log, "the endpoint actor refused a push"; "error" => %error);
        Outcome::Unavailable
    })
}

/// Decrypts the token and verifies the sender's credentials. Returns the token's content and the verified key, if there
/// is one.
pub(super) fn open(
    app: &EndpointRole,
    headers: &HeaderMap,
    version: TokenVersion,
    token: &str,
) -> Result<(EndpointToken, Option<VapidKey>), PushError> {
    let has_some = headers.contains_key(AUTHORIZATION);
    let opened = checked(app, headers, version, token);
    app.counters.count_vapid(&opened, has_some);
    opened
}

fn checked(
    app: &EndpointRole,
    headers: &HeaderMap,
    version: TokenVersion,
    token: &str,
) -> Result<(EndpointToken, Option<VapidKey>), PushError> {
    let credentials = Credentials::read(headers)?;
    let key = credentials.as_ref().map(Credentials::key);
    let opened = app.tokens.decrypt(version, token, key)?;
    app.vapid.check_allowed(key)?;
    if let Some(credentials) = &credentials {
        app.vapid.verify(credentials, app.common.clock.now())?;
    }
    Ok((opened, key.copied()))
}

/// The maximum size of the body, by its encoding.
fn max_bytes(headers: &HeaderMap, limits: &PushLimits) -> usize {
    let is_aesgcm = headers
        .get(CONTENT_ENCODING)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"aesgcm"));
    if is_aesgcm { limits.aesgcm_bytes_max } else { limits.payload_bytes_max }
}
