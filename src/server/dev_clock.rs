//! `/dev/clock`: the clock that a test moves. A server has it with `--dev` and with `--ephemeral` only.
//!
//! It is for programs on this machine. A page of another site, and what a proxy on this machine passes on, is refused.

use std::sync::Arc;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{FORWARDED, HeaderMap, ORIGIN, VIA};
use actix_web::web::{self, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse, ResponseError};
use actors::registry::ClockMoved;
use serde_json::{Value, json};
use slog::info;
use state_machine::{Month, Span, Time};
use storage::{StoreAdmin, StoreError};

use super::maintenance::{expire_receipts, make_tables, waiting};
use crate::command::text::of_unit;
use crate::push::app::AppState;
use crate::push::body::read_body;
use crate::push::error::{PushError, refuse};
use crate::push::local_request::{is_same_origin, is_to_address};
use crate::push::methods::{preflight_or_refused, read};
use crate::settings::store::message_tables::MonthTables;
use crate::system::errno::Errno;

/// Its path on the public port.
pub(super) const PATH: &str = "/dev/clock";

/// How far the clock may be ahead of the machine's: ten years.
const AHEAD_MAX: Span = Span::from_secs(10 * 366 * 86_400);

/// Maximum size of a request, in bytes.
const BODY_BYTES_MAX: usize = 1024;

/// Maximum time for a request to arrive.
const BODY_WAIT: Duration = Duration::from_secs(5);

/// What follows the clock when it is moved.
pub(super) struct DevClock {
    node: AppState,
    store: Arc<dyn StoreAdmin>,
    /// As the server began with them.
    tables: MonthTables,
}

pub(super) fn routes(clock: &Data<DevClock>, service: &mut ServiceConfig) {
    let resource = web::resource(PATH).app_data(Data::clone(clock));
    let resource = resource.route(read().to(show)).post(advance);
    service.service(resource.default_service(preflight_or_refused("GET, HEAD, POST, OPTIONS")));
}

async fn show(request: HttpRequest, clock: Data<DevClock>) -> HttpResponse {
    refusal_of(&request).unwrap_or_else(|| clock.answer())
}

/// Moves the clock, and answers when what was due has been done.
async fn advance(request: HttpRequest, body: Payload, clock: Data<DevClock>) -> HttpResponse {
    if let Some(refusal) = refusal_of(&request) {
        return refusal;
    }
    let body = match read_body(request.headers(), body, BODY_BYTES_MAX, BODY_WAIT).await {
        Ok(body) => body,
        Err(error) => return error.error_response(),
    };
    let Some(by) = time_in(&body) else {
        let text = "expected how far to move the clock ahead: seconds, or a time such as 45s, 30m, 12h or 31d; in JSON \
                    {\"advance\": \"1h\"}";
        return refused(StatusCode::BAD_REQUEST, text);
    };
    if !clock.node.common.clock.try_move(by, AHEAD_MAX) {
        let text = "the clock can be ten years ahead of the machine's at most";
        return refused(StatusCode::BAD_REQUEST, text);
    }
    info!(clock.node.common.log, "the clock was moved"; "by_s" => by.0 / 1000);
    match clock.follow().await {
        Ok(()) => clock.answer(),
        Err(_) => PushError::Unavailable.error_response(),
    }
}

/// Refuses what a page of another site can send, or a proxy on this machine for others.
fn refusal_of(request: &HttpRequest) -> Option<HttpResponse> {
    let headers = request.headers();
    let is_local = request.peer_addr().is_some_and(|peer| peer.ip().to_canonical().is_loopback());
    let (status, text) = if !is_local || is_forwarded(headers) {
        (StatusCode::FORBIDDEN, "the clock is moved by programs on the machine of the server")
    } else if !is_to_address(headers) {
        let text = "the clock is only at an IP address of the server or at localhost";
        (StatusCode::MISDIRECTED_REQUEST, text)
    } else if headers.contains_key(ORIGIN) && !is_same_origin(headers) {
        let text = "this request was sent by a page of another site, which the server refuses";
        (StatusCode::FORBIDDEN, text)
    } else {
        return None;
    };
    Some(refused(status, text))
}

/// Whether a proxy says that it passes the request on.
fn is_forwarded(headers: &HeaderMap) -> bool {
    let mut names = headers.keys().map(|name| name.as_str());
    headers.contains_key(FORWARDED)
        || headers.contains_key(VIA)
        || names.any(|name| name.starts_with("x-forwarded-") || name == "x-real-ip")
}

fn refused(status: StatusCode, text: &str) -> HttpResponse {
    refuse(&text, (status, Errno::Other), |_| {})
}

/// Reads seconds, or a time with a unit, as a text, as JSON, or as the field `advance` of it.
fn time_in(body: &[u8]) -> Option<Span> {
    let value: Value =
        serde_json::from_slice(body).unwrap_or_else(|_| String::from_utf8_lossy(body).into());
    let text = match value.get("advance").unwrap_or(&value) {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(seconds) => seconds.to_string(),
        _ => return None,
    };
    let seconds = text.parse().ok().or_else(|| of_unit(&text))?;
    seconds.checked_mul(1000).map(Span)
}

impl DevClock {
    pub(super) fn new(
        node: &AppState,
        store: &Arc<dyn StoreAdmin>,
        tables: &MonthTables,
    ) -> Data<Self> {
        let (node, store) = (node.clone(), Arc::clone(store));
        Data::new(Self { node, store, tables: tables.clone() })
    }

    /// Does what is due by now, as the work of each minute would: the tables of the months, expired messages, their
    /// receipts, the count of the waiting ones. The sessions look at their deadlines.
    async fn follow(&self) -> Result<(), StoreError> {
        let (common, now) = (&self.node.common, self.now());
        make_tables(common, &mut self.tables.clone()).await?;
        self.store.delete_expired(now).await?;
        let publish = |subscriptions: &_| common.feeds.publish(subscriptions);
        expire_receipts(&*self.store, &common.clock, |expired| publish(&expired.subscriptions))
            .await?;
        match waiting(&*self.store).await {
            Ok(counted) => *common.waiting.lock() = Some(counted),
            Err(StoreError::Unsupported(_)) => {}
            Err(error) => return Err(error),
        }
        if let Some(connections) = &self.node.connections {
            // A registry that has ended has no sessions.
            let _ = connections.clients.registry.send(ClockMoved).await;
        }
        Ok(())
    }

    fn now(&self) -> Time {
        self.node.common.clock.now()
    }

    fn answer(&self) -> HttpResponse {
        let (now, ahead) = (self.now(), self.node.common.clock.ahead());
        HttpResponse::Ok().json(json!({
            "now_ms": now.0,
            "month": Month::of(now).to_string(),
            "ahead_s": ahead.0 / 1000,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_seconds_or_a_time_with_a_unit_and_never_backwards() {
        for (body, seconds) in [
            ("90", 90),
            ("1h", 3600),
            (" 31d\n", 2_678_400),
            ("\"30m\"", 1800),
            ("{\"advance\": 5}", 5),
            ("{\"advance\": \"45s\"}", 45),
            ("0", 0),
        ] {
            assert_eq!(time_in(body.as_bytes()), Some(Span::from_secs(seconds)), "{body}");
        }
        for body in ["", "-1", "-1h", "1.5", "h", "{}", "[1]", "{\"advance\": -1}", "null", "1y"] {
            assert_eq!(time_in(body.as_bytes()), None, "{body}");
        }
        assert_eq!(time_in(u64::MAX.to_string().as_bytes()), None);
    }
}
