//! What every request to an endpoint does: it opens the token, has its message delivered, and is answered.

use std::time::Instant;

use actix_web::http::header::{AUTHORIZATION, HeaderMap};
use actix_web::{HttpMessage, HttpRequest, HttpResponse};
use actors::{DeliverPush, PushEnd};
use serde_json::json;
use slog::debug;
use state_machine::delivery::Outcome;
use state_machine::wire::VapidKey;
use state_machine::{Message, MessageKey, Span, Uaid};

use super::app::{EndpointRole, LocalEndpoint};
use super::error::PushError;
use super::expected_receipt::ExpectingPush;
use super::port::request_id::request_id;
use super::push_history::{PushRecord, stored_for};
use super::urls::endpoint_token::{EndpointToken, TokenVersion};
use super::vapid::Credentials;

/// Decrypts the token and verifies the sender's credentials. Returns the token's content and the verified key, if there
/// is one.
pub(super) fn open(
    app: &EndpointRole,
    headers: &HeaderMap,
    version: TokenVersion,
    token: &str,
) -> Result<(EndpointToken, Option<VapidKey>), PushError> {
    let open = || {
        let credentials = Credentials::read(headers)?;
        let key = credentials.as_ref().map(Credentials::key);
        let opened = app.tokens.decrypt(version, token, key)?;
        app.vapid.check_allowed(key)?;
        if let Some(credentials) = &credentials {
            app.vapid.verify(credentials, app.common.clock.of_machine())?;
        }
        Ok((opened, key.cloned()))
    };
    let opened = open();
    app.counters.count_vapid(&opened, headers.contains_key(AUTHORIZATION));
    opened
}

/// The answer to apps of UnifiedPush that ask whether a URL is an endpoint (docs/unifiedpush.md#clauses). Nothing is
/// read from the store, so an endpoint that has ended has it too.
pub(super) fn discover(
    request: &HttpRequest,
    version: TokenVersion,
    token: &str,
    app: &EndpointRole,
) -> HttpResponse {
    let limits = &app.common.limits;
    let within = limits.push_from(limits.address(request.peer_addr(), request.headers()));
    let opened =
        within.map_err(PushError::from).and_then(|()| Ok(app.tokens.inspect(version, token)?));
    match opened {
        Ok(_) => HttpResponse::Ok().json(json!({"unifiedpush": {"version": 1}})),
        Err(error) => error.closing_response(),
    }
}

/// Has the message delivered or stored. Its subscription has been charged. Returns how it ended, delivered, stored or
/// dropped, and the key that it got in the end.
pub(super) async fn deliver(
    app: &LocalEndpoint,
    uaid: Uaid,
    message: Message,
    expecting: &mut Option<ExpectingPush>,
) -> Result<(Outcome, MessageKey), PushError> {
    let access = &app.common.access;
    if access.has_ended(uaid) {
        return Err(PushError::UserGone);
    }
    let Message { chid, ttl, urgency, accepted_at: at, .. } = message;
    let wants_receipt = message.receipt.is_some();
    let bytes = message.payload.as_ref().map_or(0, |payload| payload.data.len());
    let began = Instant::now();
    let (PushEnd { outcome, node }, key) = deliver_as_latest(app, uaid, message, expecting).await?;
    let took = began.elapsed();
    let name = app.counters.count_outcome(&outcome, took);
    let took = Span(took.as_millis() as u64);
    let id = Some(key.id);
    let reason = matches!(outcome, Outcome::Stored).then(|| stored_for(wants_receipt, node));
    app.history.add(PushRecord { at, took, uaid, chid, id, ttl, urgency, outcome: name, reason });
    debug!(app.common.log, "processed a push"; "outcome" => ?outcome, "ttl_s" => ttl.0 / 1000);
    if let Outcome::Delivered | Outcome::Stored = outcome {
        access.count_push(uaid, bytes);
    }
    Err(match outcome {
        Outcome::Delivered | Outcome::Stored | Outcome::Dropped => return Ok((outcome, key)),
        Outcome::OtherProtocol => PushError::OtherProtocol,
        Outcome::NoSuchUser => PushError::UserGone,
        Outcome::UserWentAway => PushError::UserWentAway,
        Outcome::NoSuchChannel => PushError::NoSuchSubscription,
        Outcome::Full(scope) => PushError::WaitingFull(scope),
        Outcome::Bridge(outcome) => PushError::Bridge(outcome),
        Outcome::Outranked(_) | Outcome::Unavailable => PushError::Unavailable,
    })
}

/// Sends the message to the endpoint actor. If one of its topic with a greater id waits, it is sent once more with an
/// id above that. The clock of the other endpoint was ahead: this push is not answered yet, so it is the later one.
async fn deliver_as_latest(
    app: &LocalEndpoint,
    uaid: Uaid,
    message: Message,
    expecting: &mut Option<ExpectingPush>,
) -> Result<(PushEnd, MessageKey), PushError> {
    let (key, again) = (message.key(), message.topic.is_some().then(|| message.clone()));
    let end = send(app, DeliverPush { uaid, message, is_repeated: false }).await;
    let (Outcome::Outranked(by), Some(again)) = (end.outcome, again) else { return Ok((end, key)) };
    let Some(id) = again.id.above(by) else { return Ok((end, key)) };
    debug!(app.common.log, "a message of the topic has a later id, repeating the push with one above it";
        "ahead_ms" => by.minted_at().map(|ahead| ahead.since(again.accepted_at).0));
    let mut message = Message { id, ..again };
    if let Some(before) = expecting.take() {
        *expecting = Some(before.of_new_id(app, uaid, &mut message).await?);
    }
    let key = message.key();
    match send(app, DeliverPush { uaid, message, is_repeated: true }).await.outcome {
        // Another push has stored its message since. Neither was answered then, so that one may count as the later.
        Outcome::Outranked(_) => {
            if let Some(replaced) = expecting.take() {
                replaced.cancel(app).await;
            }
            Ok((PushEnd { outcome: Outcome::Stored, ..end }, key))
        }
        // The second one asks no node.
        outcome => Ok((PushEnd { outcome, ..end }, key)),
    }
}

async fn send(app: &LocalEndpoint, push: DeliverPush) -> PushEnd {
    app.address().send(push).await.unwrap_or_else(|error| {
        debug!(app.common.log, "the endpoint actor refused a push"; "error" => %error);
        PushEnd { outcome: Outcome::Unavailable, node: None }
    })
}

/// The response to a request, whose status is counted. `what` is what a refused request was to send to the token.
pub(super) fn answer(
    app: &EndpointRole,
    request: &HttpRequest,
    (what, version, token): (&str, TokenVersion, &str),
    answer: Result<HttpResponse, PushError>,
) -> HttpResponse {
    let response = answer.unwrap_or_else(|error| {
        // A refused request may not have got as far as its token, which says whose it is.
        if let Ok((of, _)) = app.tokens.inspect(version, token) {
            request.extensions_mut().insert(of);
        }
        debug!(app.common.log, "refused a {}", what; "request" => request_id(request.headers()),
            "errno" => error.errno().number(), "reason" => %error);
        error.closing_response()
    });
    app.counters.count_status(response.status());
    response
}
