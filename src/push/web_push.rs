//! `POST /wpush/...`: an application server sends a message (RFC 8030 §5).

use actix_web::http::header::{CONTENT_ENCODING, LINK, LOCATION};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use state_machine::delivery::Outcome;
use state_machine::{Message, Span};

use super::app::LocalEndpoint;
use super::endpoint;
use super::error::PushError;
use super::expected_receipt::ExpectingPush;
use super::port::body::read_body;
use super::push_history::{OVER_LIMIT, PushRecord};
use super::request::push_headers::PushHeaders;
use super::request::receipts::ReceiptWish;
use super::urls::endpoint_token::{EndpointToken, TokenVersion};
use super::vapid::key_hash;
use crate::limits::ReceiptSender;

pub(super) async fn post(
    request: &HttpRequest,
    version: TokenVersion,
    token: &str,
    payload: Payload,
    app: &LocalEndpoint,
) -> Result<HttpResponse, PushError> {
    let (headers, limits) = (request.headers(), &app.common.limits);
    let address = limits.address(request.peer_addr(), headers);
    limits.push_from(address)?;
    let (EndpointToken { uaid, chid }, vapid_key) = endpoint::open(app, request, version, token)?;
    let PushHeaders { ttl, topic, urgency } =
        app.limits.rules.headers(headers, app.limits.ttl_max)?;
    let wish = ReceiptWish::read(headers)?;
    let encoding = headers.get(CONTENT_ENCODING).map_or(&b""[..], |value| value.as_bytes());
    let max_bytes = match encoding.eq_ignore_ascii_case(b"aesgcm") {
        true => app.limits.aesgcm_bytes_max,
        false => app.limits.payload_bytes_max,
    };
    let body = read_body(headers, payload, max_bytes, app.limits.body_timeout).await?;
    let payload = app.limits.rules.payload(headers, body, vapid_key.as_ref())?;
    let key = vapid_key.as_ref().map(key_hash);
    // The body was read, so a refused sender keeps its connection.
    let accepted_at = app.common.clock.now();
    if let Err(refused) = limits.push_to(uaid, chid, key) {
        let (id, took, outcome, reason) = (None, Span::ZERO, OVER_LIMIT, None);
        let push =
            PushRecord { at: accepted_at, took, uaid, chid, id, ttl, urgency, outcome, reason };
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
    let accepted = endpoint::deliver(app, uaid, message, &mut expecting).await;
    let mut response = HttpResponse::Created();
    if let Some(expecting) = expecting {
        if let Ok((Outcome::Stored, _)) = accepted {
            response = HttpResponse::Accepted();
            response.insert_header((LINK, expecting.link(app.origins.own())));
        } else {
            expecting.cancel(app).await;
        }
    }
    let (_, key) = accepted?;
    let location = format!("{}{}", app.origins.own(), app.message_urls.encrypt(uaid, &key));
    Ok(response.insert_header((LOCATION, location)).insert_header(("ttl", ttl.0 / 1000)).finish())
}
