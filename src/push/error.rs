//! Error responses: status, headers and body with the error numbers of autopush.

use std::borrow::Cow;
use std::fmt;

use actix_web::http::header::{
    CACHE_CONTROL, RETRY_AFTER, SEC_WEBSOCKET_VERSION, UPGRADE, WWW_AUTHENTICATE,
};
use actix_web::http::{ConnectionType, StatusCode};
use actix_web::{HttpResponse, HttpResponseBuilder, ResponseError};
use serde::Serialize;
use serde_json::Value;
use state_machine::store::FullScope;
use state_machine::{BridgeOutcome, Span};

use super::refusals::Refused;
use super::request::push_headers::HeaderError;
use super::request::receipts::ReceiptError;
use super::request::simplepush_form::FormError;
use super::urls::endpoint_token::TokenError;
use super::vapid::VapidError;
use crate::limits::OverLimit;
use crate::system::errno::Errno;

/// `Retry-After` of a 503, in seconds.
pub(crate) const RETRY_AFTER_S: u64 = 5;

/// `Retry-After` while too many messages wait or too many connections are open, in seconds: some have to end first.
const FULL_RETRY_AFTER_S: u64 = 60;

/// How long a sender may cache a 410.
const GONE_FOR_SECS: u32 = 86_400;

/// Why a request is refused. Internal causes are logged, and never part of a response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Vapid(#[from] VapidError),
    #[error(transparent)]
    Receipt(#[from] ReceiptError),
    #[error("there is nothing at this URL: the path of an endpoint begins with /wpush/")]
    NotFound,
    #[error("no such message: the id in the URL is not one of this server's")]
    NoSuchMessage,
    #[error("this message is gone: delivered, replaced, dropped or expired")]
    MessageGone,
    /// The user agent has no router record.
    #[error("the user agent of this endpoint is gone: remove the subscription")]
    UserGone,
    /// The router record was removed while the request was in progress.
    #[error("the user agent of this endpoint went away: remove the subscription")]
    UserWentAway,
    #[error("there is no such subscription, or no longer: remove it")]
    NoSuchSubscription,
    /// The user agent speaks SimplePush and the request is a POST, or the reverse.
    #[error(
        "wrong method for this endpoint: PUT is for user agents of SimplePush, POST for the others"
    )]
    OtherProtocol,
    #[error(transparent)]
    Form(#[from] FormError),
    #[error("the body is larger than {max_bytes} bytes")]
    TooLarge { max_bytes: usize },
    /// The server, or a service that it depends on, is overloaded or down.
    #[error("the server cannot take the message now: try again later")]
    Unavailable,
    /// The bridge did not accept the message.
    #[error("{}", bridge(*.0).2)]
    Bridge(BridgeOutcome),
    /// As many messages wait as may: see the settings of the group "Waiting messages".
    #[error("too many messages wait for {}: try again later", match .0 {
        FullScope::User => "this user agent",
        FullScope::Channel => "this subscription",
    })]
    WaitingFull(FullScope),
    /// The connect limit is reached, or the server is draining.
    #[error("no more user agents can connect here now: try again later")]
    TooManyConnections,
    /// The address has `address_connections_max` connections.
    #[error("too many user agents of this address are connected: try again later")]
    AddressFull,
    /// The sender asks too often.
    #[error(transparent)]
    OverLimit(#[from] OverLimit),
    /// The handshake of a web page that is neither of this server nor in `origins_allowed`.
    #[error("web pages of this origin cannot connect: user agents connect here")]
    OtherOrigin,
    /// The same answer for a token that is missing, unknown, revoked or expired.
    #[error(
        "the URL needs a valid access token, as in wss://HOST/u/TOKEN: ask the operator of this server for one"
    )]
    Access,
    /// The access token has as many connected agents as it may have.
    #[error("too many user agents are connected with this access token: try again later")]
    AccessFull,
    /// A request to `/` that is no WebSocket handshake (RFC 6455 §4.2.1).
    #[error("this is not a valid WebSocket handshake")]
    Handshake(StatusCode),
    #[error("Sec-WebSocket-Key is not 16 bytes in base64, or is there twice")]
    HandshakeKey,
    /// Any other status of HTTP, such as a method that is not allowed.
    #[error("{}", http_text(*.0))]
    Http(StatusCode),
}

/// The body of every 4xx and 5xx response.
#[derive(Serialize)]
struct Body<'a> {
    code: u16,
    errno: Errno,
    error: &'a str,
    message: &'a str,
    more_info: &'a str,
    #[serde(flatten)]
    fields: Option<&'a Value>,
}

impl PushError {
    pub fn errno(&self) -> Errno {
        self.code().1
    }

    fn code(&self) -> (StatusCode, Errno) {
        match self {
            Self::Header(error) => {
                let errno = match error {
                    HeaderError::DhMissing => Errno::DhMissing,
                    HeaderError::TtlMissing => Errno::TtlMissing,
                    HeaderError::TtlInvalid => Errno::TtlInvalid,
                    HeaderError::Topic => Errno::Topic,
                    HeaderError::TtlNegative => Errno::TtlNegative,
                    // autopush ignores `Urgency` and has no number for it.
                    HeaderError::Urgency => Errno::Urgency,
                    // Of the encryption of the body.
                    _ => Errno::Encryption,
                };
                (StatusCode::BAD_REQUEST, errno)
            }
            Self::Vapid(_) | Self::Access | Self::Token(TokenError::KeyNeeded) => {
                (StatusCode::UNAUTHORIZED, Errno::Unauthorized)
            }
            Self::Token(TokenError::OtherKey) => (StatusCode::FORBIDDEN, Errno::Unauthorized),
            Self::Token(TokenError::Unknown) | Self::NoSuchMessage | Self::MessageGone => {
                (StatusCode::NOT_FOUND, Errno::NoSuchEndpoint)
            }
            Self::NotFound => (StatusCode::NOT_FOUND, Errno::NothingHere),
            Self::OtherProtocol => (StatusCode::BAD_REQUEST, Errno::WrongKind),
            Self::Form(FormError::DataTooLarge { .. }) => {
                (StatusCode::PAYLOAD_TOO_LARGE, Errno::TooLarge)
            }
            Self::Form(_) | Self::HandshakeKey => (StatusCode::BAD_REQUEST, Errno::Other),
            Self::Receipt(ReceiptError::UnknownLink) => (StatusCode::BAD_REQUEST, Errno::Link),
            Self::Receipt(ReceiptError::Full) => (StatusCode::TOO_MANY_REQUESTS, Errno::TryLater),
            Self::UserGone => (StatusCode::GONE, Errno::UserGone),
            Self::UserWentAway => (StatusCode::GONE, Errno::UserWentAway),
            Self::NoSuchSubscription => (StatusCode::GONE, Errno::NoSuchSubscription),
            Self::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, Errno::TooLarge),
            Self::Bridge(outcome) => (bridge(*outcome).0, bridge(*outcome).1),
            Self::Unavailable | Self::TooManyConnections => {
                (StatusCode::SERVICE_UNAVAILABLE, Errno::TryLater)
            }
            Self::WaitingFull(_) | Self::AddressFull | Self::AccessFull | Self::OverLimit(_) => {
                (StatusCode::TOO_MANY_REQUESTS, Errno::TryLater)
            }
            Self::OtherOrigin => (StatusCode::FORBIDDEN, Errno::Other),
            Self::Handshake(status) | Self::Http(status) => (*status, Errno::Other),
        }
    }

    /// The answer to a push or a handshake. An invalid one closes its connection, so that each costs its sender a new
    /// one.
    pub(super) fn closing_response(&self) -> HttpResponse {
        let mut response = self.error_response();
        if let StatusCode::BAD_REQUEST
        | StatusCode::UNAUTHORIZED
        | StatusCode::FORBIDDEN
        | StatusCode::NOT_FOUND
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UPGRADE_REQUIRED = response.status()
        {
            response.head_mut().set_connection_type(ConnectionType::Close);
        }
        response
    }

    /// The answer with further fields.
    pub(super) fn response_with(&self, message: &dyn fmt::Display, fields: &Value) -> HttpResponse {
        respond(message, self.code(), |response| self.add_headers(response), Some(fields))
    }

    fn add_headers(&self, response: &mut HttpResponseBuilder) {
        let wait_s = match self {
            Self::WaitingFull(_)
            | Self::AddressFull
            | Self::AccessFull
            | Self::Receipt(ReceiptError::Full) => Some(FULL_RETRY_AFTER_S),
            Self::Bridge(BridgeOutcome::Busy { retry_after: Some(Span(ms)) }) => {
                Some(ms.div_ceil(1000))
            }
            Self::Bridge(BridgeOutcome::Busy { .. } | BridgeOutcome::Unavailable) => {
                Some(RETRY_AFTER_S)
            }
            Self::OverLimit(over) => Some(over.retry_after_s()),
            _ if self.status_code() == StatusCode::SERVICE_UNAVAILABLE => Some(RETRY_AFTER_S),
            _ => None,
        };
        if let Some(wait_s) = wait_s {
            response.insert_header((RETRY_AFTER, wait_s));
        }
        if let (Self::OverLimit(OverLimit { policy, per_minute, .. }), Some(wait_s)) =
            (self, wait_s)
        {
            // draft-ietf-httpapi-ratelimit-headers-10
            response.insert_header(("ratelimit", format!(r#""{policy}";r=0;t={wait_s}"#)));
            response
                .insert_header(("ratelimit-policy", format!(r#""{policy}";q={per_minute};w=60"#)));
        }
        match self.status_code() {
            StatusCode::UNAUTHORIZED => {
                // There is no scheme for a token in the URL, and a 401 must name one (RFC 9110 §15.5.2).
                let scheme = if *self == Self::Access { "access-token" } else { "vapid" };
                response.insert_header((WWW_AUTHENTICATE, scheme));
            }
            StatusCode::GONE => {
                response.insert_header((CACHE_CONTROL, format!("max-age={GONE_FOR_SECS}")));
            }
            StatusCode::UPGRADE_REQUIRED => {
                // RFC 9110 §15.5.22, RFC 6455 §4.2.2
                response.insert_header((UPGRADE, "websocket"));
                response.insert_header((SEC_WEBSOCKET_VERSION, "13"));
            }
            _ => {}
        }
    }
}

/// Status, errno and text, as autopush answers (docs/sources.md#errors-of-bridges). `Accepted` is no error.
fn bridge(outcome: BridgeOutcome) -> (StatusCode, Errno, Cow<'static, str>) {
    let (status, errno, text) = match outcome {
        BridgeOutcome::TooLarge { max_bytes } => {
            let text =
                format!("the message is larger than the {max_bytes} bytes that the bridge allows");
            return (StatusCode::PAYLOAD_TOO_LARGE, Errno::TooLarge, text.into());
        }
        BridgeOutcome::RecipientGone => (
            StatusCode::GONE,
            Errno::NoSuchSubscription,
            "the user agent of this endpoint is gone from its bridge: remove the subscription",
        ),
        BridgeOutcome::Busy { .. } => (
            StatusCode::TOO_MANY_REQUESTS,
            Errno::TryLater,
            "the bridge takes no further message now: try again later",
        ),
        BridgeOutcome::UnknownApp => (
            StatusCode::BAD_GATEWAY,
            Errno::BridgeMisconfigured,
            "the bridge of this endpoint is not set up on this server",
        ),
        BridgeOutcome::Accepted | BridgeOutcome::Misconfigured => (
            StatusCode::BAD_GATEWAY,
            Errno::BridgeMisconfigured,
            "the bridge refuses the message: the operator finds the reason in the log",
        ),
        BridgeOutcome::Unauthorized => (
            StatusCode::BAD_GATEWAY,
            Errno::BridgeUnauthorized,
            "the bridge does not accept this server",
        ),
        BridgeOutcome::Unavailable => (
            StatusCode::BAD_GATEWAY,
            Errno::BridgeUnavailable,
            "the bridge cannot be reached: try again later",
        ),
        BridgeOutcome::TimedOut => (
            StatusCode::SERVICE_UNAVAILABLE,
            Errno::BridgeTimedOut,
            "the bridge did not answer in time: try again later",
        ),
    };
    (status, errno, text.into())
}

fn http_text(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UPGRADE_REQUIRED => {
            "this is a push server: user agents connect here with a WebSocket"
        }
        StatusCode::METHOD_NOT_ALLOWED => "this URL does not take this method",
        StatusCode::REQUEST_TIMEOUT => "the body did not arrive in time",
        StatusCode::BAD_REQUEST => "the body did not arrive as a whole",
        other => other.canonical_reason().unwrap_or("the request cannot be answered"),
    }
}

impl ResponseError for PushError {
    fn status_code(&self) -> StatusCode {
        self.code().0
    }

    fn error_response(&self) -> HttpResponse {
        refuse(self, self.code(), |response| self.add_headers(response))
    }
}

/// Builds the error response; pushes and feeds have the same body.
pub(crate) fn refuse(
    error: &dyn fmt::Display,
    (status, errno): (StatusCode, Errno),
    add_headers: impl FnOnce(&mut HttpResponseBuilder),
) -> HttpResponse {
    respond(error, (status, errno), add_headers, None)
}

fn respond(
    error: &dyn fmt::Display,
    (status, errno): (StatusCode, Errno),
    add_headers: impl FnOnce(&mut HttpResponseBuilder),
    fields: Option<&Value>,
) -> HttpResponse {
    let mut response = HttpResponse::build(status);
    add_headers(&mut response);
    let (code, message) = (status.as_u16(), &error.to_string());
    let error = status.canonical_reason().unwrap_or("Error");
    let more_info = &errno.more_info();
    let mut response = response.json(Body { code, errno, error, message, more_info, fields });
    let refused = Refused { errno: errno.number(), message: message.clone() };
    response.extensions_mut().insert(refused);
    response
}

#[cfg(test)]
mod tests;
