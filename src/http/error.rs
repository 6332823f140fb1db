//! What a request is refused with: status, error number and body (the original's error codes).

use std::fmt;

use actix_web::http::StatusCode;
use actix_web::http::header::{
    CACHE_CONTROL, RETRY_AFTER, SEC_WEBSOCKET_VERSION, UPGRADE, WWW_AUTHENTICATE,
};
use actix_web::{HttpResponse, HttpResponseBuilder, ResponseError};
use serde::Serialize;
use state_machine::Span;

use super::endpoint_token::TokenError;
use super::message_url::MessageUrlError;
use super::push_headers::HeaderError;
use super::vapid::VapidError;

/// Where the error numbers are explained.
const MORE_INFO: &str = "https://autopush.readthedocs.io/en/latest/http.html#error-codes";

/// For how long a sender may take a subscription that is gone for gone.
const GONE_FOR_SECS: u32 = 86_400;

/// Why a request is refused.
///
/// What went wrong inside is not in here and cannot get into an answer: it is logged where it is
/// handled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// A header of the push is missing or wrong.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The endpoint is none, or not for this sender.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The message's location is none.
    #[error(transparent)]
    Location(#[from] MessageUrlError),
    /// The sender's credentials do not hold.
    #[error(transparent)]
    Vapid(#[from] VapidError),
    /// No such path.
    #[error("there is nothing at this URL")]
    NotFound,
    /// The message waits no longer.
    #[error("this message is gone: delivered, replaced, dropped or expired")]
    MessageGone,
    /// The user agent has no record.
    #[error("the user agent of this endpoint is gone: remove the subscription")]
    UserGone,
    /// The user agent went away while the request was under way.
    #[error("the user agent of this endpoint went away: remove the subscription")]
    UserWentAway,
    /// The channel is not registered, or no longer.
    #[error("there is no such subscription, or no longer: remove it")]
    NoSuchSubscription,
    /// The body is too large.
    #[error("the body is larger than {max_bytes} bytes")]
    TooLarge {
        /// The most that is taken.
        max_bytes: usize,
    },
    /// A registration with a router type that there is not, or a body that is not understood.
    #[error("{0}")]
    Registration(&'static str),
    /// Too many messages wait for this user agent, or this sender sends too many.
    #[error("too many messages: try again later")]
    TooMany {
        /// When.
        retry_after: Span,
    },
    /// The server, or what it depends on, is overloaded or down.
    #[error("the server cannot take the message now: try again later")]
    Unavailable {
        /// When.
        retry_after: Span,
    },
    /// So many connect, or the server is about to stop, that one more user agent may not.
    #[error("no more user agents can connect here now: try again later")]
    TooManyConnections {
        /// When.
        retry_after: Span,
    },
    /// The user agent is busy with another message.
    #[error("the user agent is busy: try again")]
    RetryNow,
    /// The bridge to the user agent does not work.
    #[error("the service that reaches this user agent {0}")]
    Bridge(BridgeFault),
    /// A fault of this server.
    #[error("the server made an error")]
    Internal,
    /// What `/__error__` answers, to see whether errors are noticed.
    #[error("this is a test of the log")]
    LogCheck,
    /// Anything else that HTTP has a status for: a method not allowed, a header too large.
    #[error("{}", http_text(*.0))]
    Http(StatusCode),
}

/// What is wrong with a bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BridgeFault {
    /// This server is not set up for it.
    Misconfigured,
    /// It does not know this server.
    Unauthorized,
    /// It cannot be reached.
    Unreachable,
    /// It does not answer.
    Slow,
}

/// The error body, for every answer of 4xx and 5xx.
#[derive(Serialize)]
struct Body<'a> {
    code: u16,
    errno: u16,
    error: &'a str,
    message: &'a str,
    more_info: &'a str,
}

impl PushError {
    /// The error number in the body, finer than the status.
    pub fn errno(&self) -> u16 {
        self.code().1
    }

    fn code(&self) -> (StatusCode, u16) {
        match self {
            Self::Header(error) => (StatusCode::BAD_REQUEST, header_errno(*error)),
            Self::Registration(_) => (StatusCode::BAD_REQUEST, 108),
            Self::Vapid(_) | Self::Token(TokenError::KeyNeeded) => (StatusCode::UNAUTHORIZED, 109),
            Self::Token(TokenError::OtherKey) => (StatusCode::FORBIDDEN, 109),
            Self::Token(TokenError::Unknown)
            | Self::Location(_)
            | Self::NotFound
            | Self::MessageGone => (StatusCode::NOT_FOUND, 102),
            Self::UserGone => (StatusCode::GONE, 103),
            Self::UserWentAway => (StatusCode::GONE, 105),
            Self::NoSuchSubscription => (StatusCode::GONE, 106),
            Self::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, 104),
            Self::TooMany { .. } => (StatusCode::TOO_MANY_REQUESTS, 201),
            Self::Unavailable { .. } | Self::TooManyConnections { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, 201)
            }
            Self::RetryNow => (StatusCode::SERVICE_UNAVAILABLE, 202),
            Self::Bridge(fault) => fault.code(),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, 999),
            Self::LogCheck => (StatusCode::IM_A_TEAPOT, 999),
            Self::Http(status) => (*status, 999),
        }
    }

    /// When to come back, in whole seconds and at least one.
    fn retry_after_secs(&self) -> Option<u64> {
        match self {
            Self::TooMany { retry_after }
            | Self::Unavailable { retry_after }
            | Self::TooManyConnections { retry_after } => Some(retry_after.0.div_ceil(1000).max(1)),
            Self::RetryNow | Self::Http(StatusCode::SERVICE_UNAVAILABLE) => Some(1),
            _ => None,
        }
    }
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

fn header_errno(error: HeaderError) -> u16 {
    match error {
        HeaderError::DhMissing => 101,
        HeaderError::TtlMissing => 111,
        HeaderError::TtlInvalid => 112,
        HeaderError::Topic => 113,
        HeaderError::TtlNegative => 114,
        // The original has no number for it, as it never looked at it.
        HeaderError::Urgency => 115,
        HeaderError::EncodingMissing
        | HeaderError::EncodingUnknown
        | HeaderError::SaltMissing
        | HeaderError::NotBase64(_)
        | HeaderError::Malformed(_)
        | HeaderError::InBodyAlready { .. }
        | HeaderError::EncryptionKey => 110,
    }
}

impl BridgeFault {
    fn code(self) -> (StatusCode, u16) {
        match self {
            Self::Misconfigured => (StatusCode::INTERNAL_SERVER_ERROR, 900),
            Self::Unauthorized => (StatusCode::BAD_GATEWAY, 901),
            Self::Unreachable => (StatusCode::BAD_GATEWAY, 902),
            Self::Slow => (StatusCode::BAD_GATEWAY, 903),
        }
    }
}

impl fmt::Display for BridgeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Misconfigured => "is not set up here",
            Self::Unauthorized => "refused this server",
            Self::Unreachable => "cannot be reached",
            Self::Slow => "did not answer in time",
        })
    }
}

impl ResponseError for PushError {
    fn status_code(&self) -> StatusCode {
        self.code().0
    }

    fn error_response(&self) -> HttpResponse {
        let (status, errno) = self.code();
        let mut response = HttpResponse::build(status);
        self.add_headers(status, &mut response);
        refuse(&mut response, status, errno, &self.to_string(), MORE_INFO)
    }
}

/// An error as all errors of this server look.
pub(crate) fn refuse(
    response: &mut HttpResponseBuilder,
    status: StatusCode,
    errno: u16,
    message: &str,
    more_info: &str,
) -> HttpResponse {
    let error = status.canonical_reason().unwrap_or("Error");
    response.json(Body { code: status.as_u16(), errno, error, message, more_info })
}

impl PushError {
    fn add_headers(&self, status: StatusCode, response: &mut HttpResponseBuilder) {
        if status == StatusCode::UNAUTHORIZED {
            response.insert_header((WWW_AUTHENTICATE, "vapid"));
        }
        if status == StatusCode::GONE {
            response.insert_header((CACHE_CONTROL, format!("max-age={GONE_FOR_SECS}")));
        }
        if status == StatusCode::UPGRADE_REQUIRED {
            // RFC 9110 §15.5.22, RFC 6455 §4.2.2
            response.insert_header((UPGRADE, "websocket"));
            response.insert_header((SEC_WEBSOCKET_VERSION, "13"));
        }
        if let Some(secs) = self.retry_after_secs() {
            response.insert_header((RETRY_AFTER, secs.to_string()));
        }
    }
}

#[cfg(test)]
mod tests;
