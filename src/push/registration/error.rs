//! The errors of the registration API, with the numbers of autopush.

use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use actix_web::{HttpResponse, ResponseError};

use state_machine::bridged_call::BridgedError;

use crate::limits::OverLimit;
use crate::push::error::{PushError, RETRY_AFTER_S, refuse};
use crate::system::errno::Errno;

/// The minimum length of a token in autopush.
pub(super) const TOKEN_CHARS_MIN: usize = 8;

/// Maximum length of a token. Neither bridge has a documented one; those of FCM have less than 300 characters.
pub(super) const TOKEN_CHARS_MAX: usize = 2048;

/// Maximum size of the `aps` dictionary as JSON. It is part of each notification, which APNs limits to 4096 bytes.
pub(super) const APS_BYTES_MAX: usize = 1024;

/// `WWW-Authenticate` of a 401 (RFC 6750 §3).
const SCHEME: &str = "Bearer realm=\"registration\"";

/// Why a request is refused. A client of Mozilla's application-services reads `errno` 103 of a 410 as the end of its
/// registration, and a 409 as another registration of its own: neither is the answer to anything else.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum RegistrationError {
    /// The limits by sender, the body, and paths that do not exist have the answers of pushes.
    #[error(transparent)]
    Push(#[from] PushError),
    #[error("this server has no bridge of this type")]
    UnknownType,
    #[error("Google has ended GCM: register with the type fcm")]
    Gcm,
    #[error("this server has no bridge to ADM: register with the type fcm")]
    Adm,
    #[error("this server has no such application: the operator must add it to bridges_file")]
    UnknownApp,
    /// The same answer for a wrong secret, an unknown uaid, and one that is none.
    #[error("send the secret of this registration, once: `Authorization: webpush SECRET`")]
    Secret,
    #[error("the body is not a JSON object in UTF-8")]
    Body,
    #[error(
        "token is the text that the bridge gave the application: {TOKEN_CHARS_MIN} to {TOKEN_CHARS_MAX} ASCII \
         characters without spaces"
    )]
    Token,
    #[error("channelID is a UUID")]
    ChannelId,
    #[error("aps is a JSON object of at most {APS_BYTES_MAX} bytes")]
    Aps,
    #[error("key is an uncompressed point on P-256 in URL-safe base64")]
    Key,
    #[error("{}", match .0 {
        BridgedError::UnknownAgent => "this registration is gone: register anew",
        BridgedError::NoSuchChannel => "there is no such channel, or no longer",
        BridgedError::TooManyChannels => "the user agent has as many channels as it may have",
        BridgedError::NoSpace | BridgedError::Unavailable => {
            "the server cannot do this now: try again later"
        }
    })]
    Agent(BridgedError),
    #[error("this URL does not take this method")]
    Method {
        /// The methods of the URL.
        allow: &'static str,
    },
}

impl RegistrationError {
    /// The error number in the body.
    pub(super) fn errno(&self) -> Errno {
        self.code().1
    }

    fn code(&self) -> (StatusCode, Errno) {
        match self {
            Self::Push(error) => (error.status_code(), error.errno()),
            Self::UnknownType => (StatusCode::NOT_FOUND, Errno::WrongKind),
            Self::Gcm | Self::Adm => (StatusCode::GONE, Errno::WrongKind),
            Self::UnknownApp | Self::Body | Self::Token | Self::ChannelId | Self::Aps => {
                (StatusCode::BAD_REQUEST, Errno::WrongKind)
            }
            Self::Key => (StatusCode::BAD_REQUEST, Errno::Encryption),
            Self::Secret => (StatusCode::UNAUTHORIZED, Errno::Unauthorized),
            Self::Agent(BridgedError::UnknownAgent) => (StatusCode::GONE, Errno::UserGone),
            Self::Agent(BridgedError::NoSuchChannel) => {
                (StatusCode::GONE, Errno::NoSuchSubscription)
            }
            Self::Agent(BridgedError::TooManyChannels) => {
                (StatusCode::PAYLOAD_TOO_LARGE, Errno::TooLarge)
            }
            Self::Agent(BridgedError::NoSpace | BridgedError::Unavailable) => {
                (StatusCode::SERVICE_UNAVAILABLE, Errno::TryLater)
            }
            Self::Method { .. } => (StatusCode::METHOD_NOT_ALLOWED, Errno::Other),
        }
    }
}

impl From<BridgedError> for RegistrationError {
    fn from(error: BridgedError) -> Self {
        Self::Agent(error)
    }
}

impl From<OverLimit> for RegistrationError {
    fn from(error: OverLimit) -> Self {
        Self::Push(error.into())
    }
}

impl ResponseError for RegistrationError {
    fn status_code(&self) -> StatusCode {
        self.code().0
    }

    fn error_response(&self) -> HttpResponse {
        match self {
            Self::Push(error) => error.error_response(),
            _ => refuse(self, self.code(), |response| {
                match self {
                    Self::Secret => response.insert_header((WWW_AUTHENTICATE, SCHEME)),
                    Self::Agent(BridgedError::NoSpace | BridgedError::Unavailable) => {
                        response.insert_header((RETRY_AFTER, RETRY_AFTER_S))
                    }
                    Self::Method { allow } => response.insert_header((ALLOW, *allow)),
                    _ => response,
                };
            }),
        }
    }
}
