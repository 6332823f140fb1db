//! `/_matrix/push/v1/notify`: a Matrix push gateway for the endpoints of this server.
//!
//! A Matrix homeserver sends no Web Push. It sends a JSON notification to a gateway, and the pushkey of each device in
//! it is the endpoint of an app. The gateway of other push servers sends requests to any URL; this one sends none.

use std::collections::BTreeMap;

use actix_web::body::BoxBody;
use actix_web::http::StatusCode;
use actix_web::web::{self, Bytes, Data};
use actix_web::{HttpRequest, HttpResponse, Resource, ResponseError};
use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use slog::debug;
use state_machine::{BridgeOutcome, Encoding, Message, Payload, Span, Topic, Urgency};
use url::Url;

use super::app::LocalEndpoint;
use super::endpoint;
use super::error::PushError;
use super::origins::{Name, Origins};
use super::port::body::read_body;
use super::port::methods;
use super::port::request_id::request_id;
use super::urls::endpoint_token::{EndpointToken, TokenError, TokenVersion};

/// Size of a request: twice that of the largest event of Matrix, which a notification may contain.
const REQUEST_BYTES_MAX: usize = 131_072;

/// Devices of one request. Homeservers send one.
const DEVICES_MAX: usize = 16;

/// The longest pushkey of Matrix.
const PUSHKEY_BYTES_MAX: usize = 512;

/// Matrix has no TTL. Synapse drops a notification that it could not send for a day, and so does this server.
const TTL: Span = Span::from_secs(24 * 60 * 60);

/// The topic of notifications without an event. They only have counts, so the newest replaces the others.
const COUNTS_TOPIC: &str = "matrix-counts";

/// What every app understands, as a pusher of the format `event_id_only` sends nothing else.
const ESSENTIAL: [&str; 4] = ["event_id", "room_id", "counts", "prio"];

/// The resource of the gateway.
pub(super) fn resource() -> Resource {
    web::resource("/_matrix/push/v1/notify")
        .route(methods::read().to(discover))
        .post(notify)
        .default_service(web::route().to(async || NotifyError::Method.response()))
}

/// Apps ask the server of their endpoint for a gateway, with the path replaced (UnifiedPush).
async fn discover() -> HttpResponse {
    HttpResponse::Ok().json(json!({"unifiedpush": {"gateway": "matrix"}}))
}

async fn notify(
    request: HttpRequest,
    body: web::Payload,
    app: Data<LocalEndpoint>,
) -> HttpResponse {
    match forward(&request, body, &app).await {
        Ok(rejected) => HttpResponse::Ok().json(json!({"rejected": rejected})),
        Err(error) => {
            debug!(app.common.log, "refused a Matrix notification"; "reason" => %error);
            error.response()
        }
    }
}

/// Pushes to every device. Returns the pushkeys that no later notification can reach: the homeserver deletes them.
///
/// If a device cannot be served now, the whole request is refused and the homeserver repeats it. The other devices then
/// receive it twice, with the same `event_id`.
async fn forward(
    request: &HttpRequest,
    body: web::Payload,
    app: &LocalEndpoint,
) -> Result<Vec<String>, NotifyError> {
    let (headers, limits, wait) = (request.headers(), &app.common.limits, app.limits.body_timeout);
    let address = limits.address(request.peer_addr(), headers);
    let charge = || limits.push_from(address).map_err(PushError::from);
    charge()?;
    // What is read is dropped, so that a request holds little while its pushes wait for acks.
    let (pushkeys, message) = {
        let body = read_body(headers, body, REQUEST_BYTES_MAX, wait).await?;
        let Notification { pushkeys, fields } = Notification::read(&body)?;
        (pushkeys, Forwarded::new(&fields, app.limits.payload_bytes_max)?)
    };
    // Each further device is a push too.
    pushkeys.iter().skip(1).try_for_each(|_| charge())?;
    let pushes = pushkeys.iter().map(|pushkey| push_to(app, pushkey, &message));
    let outcomes = join_all(pushes).await;
    let mut rejected = Vec::new();
    for (pushkey, outcome) in pushkeys.into_iter().zip(outcomes) {
        match outcome {
            Ok(()) => {}
            Err(error) if is_final(&error) => {
                note(app, &error, request);
                rejected.push(pushkey);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(rejected)
}

/// The answer is 200: only the list of refusals says why a device is rejected.
fn note(app: &LocalEndpoint, error: &PushError, request: &HttpRequest) {
    let code = (error.status_code().as_u16(), error.errno().number());
    let (route, now) = (request.match_pattern().unwrap_or_default(), app.common.clock.now());
    let (asked, id) = (("POST", route.as_str()), request_id(request.headers()));
    app.common.refusals.note_as(code, &error.to_string(), asked, id, now);
}

async fn push_to(app: &LocalEndpoint, pushkey: &str, message: &Forwarded) -> Result<(), PushError> {
    let url = Url::parse(pushkey).ok();
    let named = url.as_ref().and_then(|url| endpoint_token(url, &app.origins));
    let (name, version, token) = named.ok_or(TokenError::Unknown)?;
    // The endpoint must need no VAPID key. A server that allows only listed keys takes none.
    let EndpointToken { uaid, chid } = app.tokens.decrypt(version, token, None)?;
    app.vapid.check_allowed(None)?;
    app.origins.count([name; 2]);
    app.common.limits.push_to(uaid, chid, None)?;
    let push = |data: &Bytes| {
        let (data, topic, urgency) = (data.clone(), message.topic.clone(), message.urgency);
        let accepted_at = app.common.clock.now();
        let id = app.ids.mint(accepted_at, topic.is_some());
        // Gateways label the text as encrypted, and servers do not look into it.
        let payload = Some(Payload { encoding: Encoding::Aes128Gcm, data });
        let (ttl, receipt) = (TTL.min(app.limits.ttl_max), None);
        Message { id, chid, topic, urgency, accepted_at, ttl, offers: 0, receipt, payload }
    };
    let too_large = |pushed: &Result<_, _>| {
        matches!(pushed, Err(PushError::Bridge(BridgeOutcome::TooLarge { .. })))
    };
    let mut pushed = endpoint::deliver(app, uaid, push(&message.data), &mut None).await;
    if let Some(reduced) = message.reduced.as_ref().filter(|_| too_large(&pushed)) {
        // A bridge takes less than `payload_bytes_max`.
        pushed = endpoint::deliver(app, uaid, push(reduced), &mut None).await;
        if too_large(&pushed) {
            // Given up: the homeserver would repeat it for a day, and send no other one meanwhile.
            return Ok(());
        }
    }
    pushed.map(|_delivered| ())
}

/// The token in an endpoint of this server, and by which name: scheme, host and port (RFC 6454 §5).
fn endpoint_token<'a>(url: &'a Url, origins: &Origins) -> Option<(Name, TokenVersion, &'a str)> {
    let name = origins.meant_by(&url.origin().ascii_serialization())?;
    let (version, token) = TokenVersion::in_path(url.path())?;
    Some((name, version, token))
}

/// Whether no later notification can succeed: the subscription is gone, restricted to a VAPID key, or not of this
/// server, or its agent speaks SimplePush.
fn is_final(error: &PushError) -> bool {
    *error == PushError::OtherProtocol
        || matches!(
            error.status_code(),
            StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND | StatusCode::GONE
        )
}

#[derive(Deserialize)]
struct Request {
    notification: Fields,
}

/// A notification, and the apps that it is for.
#[derive(Debug)]
struct Notification {
    /// One of each device.
    pushkeys: Vec<String>,
    /// Those that the apps receive: all but `devices`.
    fields: Fields,
}

type Fields = Map<String, Value>;

impl Notification {
    fn read(body: &[u8]) -> Result<Self, NotifyError> {
        let request = serde_json::from_slice(body);
        let Request { notification: mut fields } = request.map_err(|error| {
            if error.is_data() { NotifyError::NoNotification } else { NotifyError::NotJson }
        })?;
        let Some(Value::Array(devices)) = fields.remove("devices") else {
            return Err(NotifyError::NoDevices);
        };
        if devices.len() > DEVICES_MAX {
            return Err(NotifyError::TooManyDevices);
        }
        let pushkey = |device: &Value| {
            let pushkey = device["pushkey"].as_str().filter(|key| key.len() <= PUSHKEY_BYTES_MAX);
            pushkey.map(str::to_owned).ok_or(NotifyError::NoPushkey)
        };
        let pushkeys = devices.iter().map(pushkey).collect::<Result<_, _>>()?;
        Ok(Self { pushkeys, fields })
    }
}

/// The message that every device gets: the request without its devices.
#[derive(Debug, Clone)]
struct Forwarded {
    data: Bytes,
    /// The [`ESSENTIAL`] fields, unless `data` is that.
    reduced: Option<Bytes>,
    topic: Option<Topic>,
    urgency: Urgency,
}

impl Forwarded {
    /// What does not fit into `bytes_max` is reduced to its [`ESSENTIAL`] fields. A homeserver would repeat a refused
    /// notification for a day, and send no other one meanwhile.
    fn new(fields: &Fields, bytes_max: usize) -> Result<Self, NotifyError> {
        let text = |name| fields.get(name).and_then(Value::as_str).unwrap_or_default();
        let essential = fields.iter().filter(|(name, _)| ESSENTIAL.contains(&name.as_str()));
        let essential = essential.map(|(name, value)| (name.clone(), value.clone())).collect();
        let (whole, reduced) = (to_json(fields), to_json(&essential));
        let (data, reduced) = match whole.len() <= bytes_max {
            true => (whole, Some(reduced)),
            false => (reduced, None),
        };
        if data.len() > bytes_max {
            return Err(NotifyError::TooLong);
        }
        let has_event = !text("event_id").is_empty();
        let topic = (!has_event).then(|| Topic::parse(COUNTS_TOPIC).expect("it is a topic"));
        let urgency = if text("prio") == "low" { Urgency::Low } else { Urgency::High };
        Ok(Self { data, reduced, topic, urgency })
    }
}

fn to_json(notification: &Fields) -> Bytes {
    let text = BTreeMap::from([("notification", notification)]);
    serde_json::to_vec(&text).expect("JSON can be written").into()
}

/// Why a request is refused, in the words of Matrix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum NotifyError {
    #[error("this URL takes GET, HEAD and POST")]
    Method,
    #[error("the body is not JSON")]
    NotJson,
    #[error("the body has no notification, or one that is not a JSON object, or several")]
    NoNotification,
    #[error("the notification has no devices, or they are not a list")]
    NoDevices,
    #[error(
        "a device has no pushkey, or one that is not a text of at most {PUSHKEY_BYTES_MAX} bytes"
    )]
    NoPushkey,
    #[error("the notification has more than {DEVICES_MAX} devices")]
    TooManyDevices,
    #[error("event_id, room_id, counts and prio of the notification do not fit into a message")]
    TooLong,
    #[error(transparent)]
    Push(#[from] PushError),
}

impl NotifyError {
    fn response(&self) -> HttpResponse {
        let closing = |status| PushError::Http(status).closing_response();
        let (response, code) = match self {
            Self::Method => (methods::refused("GET, HEAD, POST"), "M_UNRECOGNIZED"),
            Self::NotJson => (closing(StatusCode::BAD_REQUEST), "M_NOT_JSON"),
            Self::NoNotification | Self::NoDevices | Self::NoPushkey => {
                (closing(StatusCode::BAD_REQUEST), "M_BAD_JSON")
            }
            Self::TooManyDevices | Self::TooLong => {
                (closing(StatusCode::PAYLOAD_TOO_LARGE), "M_TOO_LARGE")
            }
            Self::Push(error) => {
                let code = match error.status_code() {
                    StatusCode::PAYLOAD_TOO_LARGE => "M_TOO_LARGE",
                    StatusCode::TOO_MANY_REQUESTS => "M_LIMIT_EXCEEDED",
                    _ => "M_UNKNOWN",
                };
                (error.closing_response(), code)
            }
        };
        let body = json!({"errcode": code, "error": self.to_string()});
        response.set_body(BoxBody::new(body.to_string()))
    }
}

#[cfg(test)]
mod tests;
