//! `GET /`: upgrades the connection of a user agent to a WebSocket.

use actix_web::http::StatusCode;
use actix_web::http::header::UPGRADE;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use state_machine::Uaid;
use state_machine::connection::ConnectionSeed;
use uuid::Uuid;

use super::PushError;
use super::app::WebSocketRole;

pub(super) async fn connect(request: HttpRequest, app: Data<WebSocketRole>) -> HttpResponse {
    upgrade(&request, &app).unwrap_or_else(|error| error.closing_response())
}

fn upgrade(request: &HttpRequest, app: &WebSocketRole) -> Result<HttpResponse, PushError> {
    if !request.headers().contains_key(UPGRADE) {
        return Err(PushError::Http(StatusCode::UPGRADE_REQUIRED));
    }
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
    let (uaid, noise) = (Uuid::new_v4(), Uuid::new_v4());
    let jitter = u16::from_be_bytes([noise.as_bytes()[0], noise.as_bytes()[1]]);
    let seed = ConnectionSeed { fresh_uaid: Uaid(uaid.into_bytes()), jitter };
    let admission = common.limits.of_agent(address).ok_or(PushError::AddressFull)?;
    actors::socket::upgrade(app.clients.clone(), seed, admission, request)
        .map_err(|error| PushError::Handshake(error.error_response().status()))
}
