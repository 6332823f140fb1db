//! `GET /` and `GET /u/TOKEN`: upgrades the connection of a user agent to a WebSocket, and answers a browser with a
//! page.

use std::borrow::Cow;

use actix_web::http::header::{HeaderMap, HeaderValue, SEC_WEBSOCKET_KEY, UPGRADE};
use actix_web::http::{ConnectionType, StatusCode};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use actors::access::WithAccess;
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use serde_json::json;
use state_machine::Uaid;
use state_machine::connection::ConnectionSeed;
use uuid::Uuid;

use super::app::{AppState, WebSocketRole};
use super::error::PushError;
use super::web::{closed, wants_page};

/// Accepts bits that belong to no byte, as other servers do.
const KEY_TEXT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

pub(super) async fn connect(request: HttpRequest, app: Data<WebSocketRole>) -> HttpResponse {
    let answer = match request.headers().contains_key(UPGRADE) {
        true => upgrade(&request, &app),
        false => without_upgrade(&request, &app).await,
    };
    answer.unwrap_or_else(|error| error.closing_response())
}

/// The page for a browser, and 426 for others. A browser without a valid token of a closed server gets a page of its own.
async fn without_upgrade(
    request: &HttpRequest,
    app: &WebSocketRole,
) -> Result<HttpResponse, PushError> {
    let (common, headers) = (&app.common, request.headers());
    let Some(page) = app.page.as_ref().filter(|_| wants_page(headers)) else {
        return Ok(no_page(request, app));
    };
    common.limits.connect_from(common.limits.address(request.peer_addr(), headers))?;
    let token = request.match_info().get("token");
    // Of a token that is in use as often as it may be, this is the address all the same.
    if let Err(PushError::Access) = app.access.try_admit(token, common.clock.now(), &common.log) {
        return Ok(closed());
    }
    let node = request.app_data::<Data<AppState>>().expect("each port has the node");
    let state = match common.is_draining() {
        true => (false, "This server is stopping: devices connect again by themselves.".into()),
        false => match node.judge().await.outages().next() {
            None => (true, Cow::Borrowed("This server is running.")),
            Some(outage) => {
                let means = outage.check.for_visitors().unwrap_or("This server does not work.");
                (false, Cow::Owned(format!("{means} Only its operator can mend it.")))
            }
        },
    };
    let state = (state.0, &*state.1);
    Ok(page.answer((request.path(), headers), state, common.clock.of_machine()))
}

fn no_page(request: &HttpRequest, app: &WebSocketRole) -> HttpResponse {
    // `kalends doctor` reads which address limits see.
    let client = app.common.limits.client(request.peer_addr(), request.headers());
    let error = PushError::Http(StatusCode::UPGRADE_REQUIRED);
    let mut answer = error.response_with(&error, &json!({ "client": client }));
    answer.head_mut().set_connection_type(ConnectionType::Close);
    answer
}

fn upgrade(request: &HttpRequest, app: &WebSocketRole) -> Result<HttpResponse, PushError> {
    let common = &app.common;
    // A web page must not use up the connects of its visitor.
    if !app.origin_check.try_admit(request.headers(), common.clock.now(), &common.log) {
        return Err(PushError::OtherOrigin);
    }
    let address = common.limits.address(request.peer_addr(), request.headers());
    common.limits.connect_from(address)?;
    // A refused agent has caused no storage request and no session yet.
    if common.is_draining() || !common.limits.has_room_for_connect() {
        return Err(PushError::TooManyConnections);
    }
    let token = request.match_info().get("token");
    let slot = app.access.try_admit(token, common.clock.now(), &common.log)?;
    let (uaid, noise) = (Uuid::new_v4(), Uuid::new_v4());
    let jitter = u16::from_be_bytes([noise.as_bytes()[0], noise.as_bytes()[1]]);
    let fresh_uaid = match &slot {
        Some(slot) => Uaid::with_access(uaid.into_bytes(), slot.id()),
        None => Uaid(uaid.into_bytes()),
    };
    if !is_key_valid(request.headers()) {
        return Err(PushError::HandshakeKey);
    }
    let seed = ConnectionSeed { fresh_uaid, jitter };
    let of_address =
        common.limits.of_agent(request.peer_addr(), address).ok_or(PushError::AddressFull)?;
    let admission = match slot {
        Some(slot) => Box::new(WithAccess { of_address, slot }),
        None => of_address,
    };
    actors::socket::upgrade(app.clients.clone(), seed, admission, request)
        .map_err(|error| PushError::Handshake(error.error_response().status()))
}

/// Whether the key of a handshake has 16 bytes (RFC 6455 §4.2.1). One without a key is refused later.
fn is_key_valid(headers: &HeaderMap) -> bool {
    let is_valid = |key: &HeaderValue| KEY_TEXT.decode(key).is_ok_and(|key| key.len() == 16);
    headers.get_all(SEC_WEBSOCKET_KEY).count() <= 1
        && headers.get(SEC_WEBSOCKET_KEY).is_none_or(is_valid)
}
