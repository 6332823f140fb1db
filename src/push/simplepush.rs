//! `PUT /wpush/...`: an application server sends a version of a SimplePush channel (docs/sources.md#simplepush).

use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use state_machine::Message;
use state_machine::delivery::Outcome;

use super::app::LocalEndpoint;
use super::endpoint;
use super::error::PushError;
use super::port::body::read_body;
use super::request::simplepush_form::{self, Form, form_bytes_max};
use super::urls::endpoint_token::{EndpointToken, TokenVersion};
use super::vapid::key_hash;

pub(super) async fn put(
    request: &HttpRequest,
    version: TokenVersion,
    token: &str,
    payload: Payload,
    app: &LocalEndpoint,
) -> Result<HttpResponse, PushError> {
    let (headers, limits) = (request.headers(), &app.common.limits);
    limits.push_from(limits.address(request.peer_addr(), headers))?;
    let (EndpointToken { uaid, chid }, key) = endpoint::open(app, request, version, token)?;
    let key = key.as_ref().map(key_hash);
    let (data_bytes_max, wait) = (app.limits.payload_bytes_max, app.limits.body_timeout);
    let body = read_body(headers, payload, form_bytes_max(data_bytes_max), wait).await?;
    let form = if body.is_empty() { request.query_string().as_bytes() } else { &body };
    let Form { version, data } = Form::read(form, data_bytes_max)?;
    simplepush_form::check(headers, &body)?;
    // The body was read, so a refused sender keeps its connection.
    limits.push_to(uaid, chid, key)?;
    let now = app.common.clock.now();
    let version = version.unwrap_or(now.as_secs());
    let message = Message::of_version(chid, version, data.map(Into::into), now);
    match endpoint::deliver(app, uaid, message, &mut None).await?.0 {
        Outcome::Stored => Ok(HttpResponse::Accepted().body("Notification Stored")),
        _ => Ok(HttpResponse::Ok().body("Delivered")),
    }
}
