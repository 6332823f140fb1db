//! The errors of requests for feeds.

use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use actix_web::{HttpResponse, HttpResponseBuilder, ResponseError};
use state_machine::feed::{FeedKey, FeedSyncId};

use super::tokens::{FeedTokenError, Scopes};
use crate::push::error::{RETRY_AFTER_S, refuse};
use crate::system::errno::Errno;

/// `WWW-Authenticate` of a 401 (RFC 6750 §3).
const SCHEME: &str = "Bearer realm=\"feeds\"";

/// Why a request is refused. Internal failures are logged where they are handled, and not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FeedError {
    /// `Authorization` is missing or malformed.
    #[error("send a token of this feed, once: `Authorization: Bearer kf1...`")]
    NoToken,
    #[error(transparent)]
    Token(#[from] FeedTokenError),
    #[error("this token is for another feed")]
    OtherFeed,
    #[error("this token does not have the scope {0}")]
    Scope(Scopes),
    /// An unknown parameter, or one that is given twice.
    #[error("{0}")]
    Query(String),
    #[error("{0} is a cursor: empty, or a number that an answer gave")]
    Cursor(&'static str),
    #[error(
        "the cursor is from the future: the last number is {0}. It belongs to another URL or to another store, or was \
         never one: start without it"
    )]
    CursorFromTheFuture(FeedSyncId),
    #[error(
        "the cursor is too old: this feed has forgotten deletions up to {0}. Discard what you have, and \
         start over without a cursor"
    )]
    CursorTooOld(FeedSyncId),
    #[error("limit is a whole number, at least 1")]
    Limit,
    #[error("wait is a number of whole seconds")]
    Wait,
    #[error(
        "a key is 1 to {} bytes of UTF-8 without control characters, percent-encoded where a URL needs it",
        FeedKey::BYTES_MAX
    )]
    Key,
    /// `broadcasts` reserves one key.
    #[error("no broadcast can be called this: agents receive errors under this name")]
    ReservedKey,
    #[error("a value is UTF-8: encode anything else, as base64 for instance")]
    ValueNotText,
    #[error("there is no such feed: one is there from its first write on")]
    NoSuchFeed,
    /// The same for a URL that was invented, one of another sender and one that has ended (RFC 8030 §7.3).
    #[error(
        "there is no such receipt subscription, or no longer, or the Authorization header is not valid for it"
    )]
    NoSuchReceipts,
    #[error("there is no such key in this feed")]
    NoSuchKey,
    #[error("the value is larger than {max_bytes} bytes")]
    TooLarge { max_bytes: usize },
    #[error(
        "the feed has as many keys as it may have, those that were deleted too: write one that is \
         there (docs/feeds.md#limits)"
    )]
    TooManyKeys,
    #[error("too many requests wait on this server: try again later, or without wait")]
    TooManyFollowers,
    /// The server or its store is overloaded or down.
    #[error("the server cannot do this now: try again later")]
    Unavailable,
    #[error("this URL does not take this method")]
    Method {
        /// The methods of the URL.
        allow: &'static str,
    },
    #[error("the body did not arrive as a whole")]
    BodyBroken,
    #[error("the body did not arrive in time")]
    BodySlow,
}

impl FeedError {
    /// The error number in the body, finer than the status.
    pub(super) fn errno(&self) -> Errno {
        self.code().1
    }

    fn code(&self) -> (StatusCode, Errno) {
        match self {
            Self::NoToken => (StatusCode::UNAUTHORIZED, Errno::FeedTokenMissing),
            Self::Token(FeedTokenError::Unknown) => {
                (StatusCode::UNAUTHORIZED, Errno::FeedTokenUnknown)
            }
            Self::Token(FeedTokenError::Expired) => {
                (StatusCode::UNAUTHORIZED, Errno::FeedTokenExpired)
            }
            Self::OtherFeed => (StatusCode::FORBIDDEN, Errno::OtherFeed),
            Self::Scope(_) => (StatusCode::FORBIDDEN, Errno::FeedScope),
            Self::Query(_) => (StatusCode::BAD_REQUEST, Errno::FeedParameter),
            Self::Cursor(_) => (StatusCode::BAD_REQUEST, Errno::FeedCursor),
            Self::CursorFromTheFuture(_) => (StatusCode::BAD_REQUEST, Errno::FeedCursorAhead),
            Self::CursorTooOld(_) => (StatusCode::GONE, Errno::FeedCursorTooOld),
            Self::Limit => (StatusCode::BAD_REQUEST, Errno::FeedLimit),
            Self::Wait => (StatusCode::BAD_REQUEST, Errno::FeedWait),
            Self::Key => (StatusCode::BAD_REQUEST, Errno::FeedKey),
            Self::ValueNotText => (StatusCode::BAD_REQUEST, Errno::FeedValue),
            Self::NoSuchFeed => (StatusCode::NOT_FOUND, Errno::NoSuchFeed),
            Self::NoSuchKey => (StatusCode::NOT_FOUND, Errno::NoSuchKey),
            Self::NoSuchReceipts => (StatusCode::NOT_FOUND, Errno::NoSuchReceipts),
            Self::TooManyKeys => (StatusCode::INSUFFICIENT_STORAGE, Errno::TooManyKeys),
            Self::TooManyFollowers => (StatusCode::SERVICE_UNAVAILABLE, Errno::TooManyFollowers),
            Self::ReservedKey => (StatusCode::BAD_REQUEST, Errno::ReservedKey),
            // The numbers that pushes have too.
            Self::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, Errno::TooLarge),
            Self::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, Errno::TryLater),
            Self::Method { .. } => (StatusCode::METHOD_NOT_ALLOWED, Errno::Other),
            Self::BodyBroken => (StatusCode::BAD_REQUEST, Errno::Other),
            Self::BodySlow => (StatusCode::REQUEST_TIMEOUT, Errno::Other),
        }
    }

    fn add_headers(&self, response: &mut HttpResponseBuilder) {
        let challenge = |why: &str| (WWW_AUTHENTICATE, format!("{SCHEME}{why}"));
        match self {
            Self::NoToken => response.insert_header(challenge("")),
            Self::Token(_) => response.insert_header(challenge(", error=\"invalid_token\"")),
            Self::OtherFeed => response.insert_header(challenge(", error=\"insufficient_scope\"")),
            Self::Scope(wanted) => {
                let why = format!(", error=\"insufficient_scope\", scope=\"{wanted}\"");
                response.insert_header(challenge(&why))
            }
            Self::TooManyFollowers | Self::Unavailable => {
                response.insert_header((RETRY_AFTER, RETRY_AFTER_S))
            }
            Self::Method { allow } => response.insert_header((ALLOW, *allow)),
            _ => response,
        };
    }
}

impl ResponseError for FeedError {
    fn status_code(&self) -> StatusCode {
        self.code().0
    }

    fn error_response(&self) -> HttpResponse {
        refuse(self, self.code(), |response| self.add_headers(response))
    }
}

#[cfg(test)]
mod tests {
    use actix_web::body::MessageBody;
    use actix_web::http::header::HeaderName;
    use serde_json::{Value, json};

    use super::*;

    /// Status and errno of every error.
    fn table() -> Vec<(u16, u16, FeedError)> {
        vec![
            (401, 301, FeedError::NoToken),
            (401, 302, FeedTokenError::Unknown.into()),
            (401, 303, FeedTokenError::Expired.into()),
            (403, 304, FeedError::OtherFeed),
            (403, 305, FeedError::Scope(Scopes::Write)),
            (400, 306, FeedError::Query("there is no such parameter".to_owned())),
            (400, 307, FeedError::Cursor("after")),
            (400, 308, FeedError::CursorFromTheFuture(FeedSyncId(7))),
            (410, 318, FeedError::CursorTooOld(FeedSyncId(7))),
            (400, 309, FeedError::Limit),
            (400, 310, FeedError::Wait),
            (400, 311, FeedError::Key),
            (400, 312, FeedError::ValueNotText),
            (404, 313, FeedError::NoSuchFeed),
            (404, 314, FeedError::NoSuchKey),
            (507, 315, FeedError::TooManyKeys),
            (503, 316, FeedError::TooManyFollowers),
            (413, 104, FeedError::TooLarge { max_bytes: 65_536 }),
            (503, 201, FeedError::Unavailable),
            (405, 999, FeedError::Method { allow: "GET" }),
            (400, 999, FeedError::BodyBroken),
            (408, 999, FeedError::BodySlow),
        ]
    }

    fn header(error: &FeedError, name: HeaderName) -> Option<String> {
        let response = error.error_response();
        response.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn every_error_has_its_status_and_number_in_its_body() {
        for (status, errno, error) in table() {
            let response = error.error_response();
            assert_eq!(
                (response.status().as_u16(), error.errno().number()),
                (status, errno),
                "{error}"
            );
            let body = response.into_body().try_into_bytes().unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let expected = json!({
                "code": status,
                "errno": errno,
                "error": StatusCode::from_u16(status).unwrap().canonical_reason().unwrap(),
                "message": error.to_string(),
                "more_info": format!("/errors#{errno}"),
            });
            assert_eq!(body, expected);
        }
    }

    #[test]
    fn every_error_has_a_status_of_its_row() {
        for (status, errno, _) in table() {
            crate::system::errno::assert_described(status, errno);
        }
    }

    #[test]
    fn errors_401_and_403_have_the_scheme_and_the_reason() {
        let scheme = |error: FeedError| header(&error, WWW_AUTHENTICATE);
        assert_eq!(scheme(FeedError::NoToken).as_deref(), Some("Bearer realm=\"feeds\""));
        let unknown = scheme(FeedTokenError::Unknown.into()).unwrap();
        assert!(unknown.ends_with(", error=\"invalid_token\""), "{unknown}");
        let scope = scheme(FeedError::Scope(Scopes::Write)).unwrap();
        assert!(scope.ends_with(", error=\"insufficient_scope\", scope=\"w\""), "{scope}");
        for (status, _, error) in table() {
            assert_eq!(scheme(error.clone()).is_some(), matches!(status, 401 | 403), "{error}");
        }
    }

    #[test]
    fn errors_503_have_retry_after_and_405_the_allowed_methods() {
        for (status, _, error) in table() {
            assert_eq!(header(&error, RETRY_AFTER).is_some(), status == 503, "{error}");
            assert_eq!(header(&error, ALLOW).is_some(), status == 405, "{error}");
        }
        assert_eq!(header(&FeedError::Unavailable, RETRY_AFTER).as_deref(), Some("5"));
    }
}
