//! The access token in the URL of a user agent: `/u/TOKEN`.

use actors::access::{AccessRefusal, AccessSlot};
use actors::{Access, SharedLogLimiter};
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use slog::{Logger, warn};
use state_machine::{Span, Time};
use uuid::Uuid;

use crate::push::error::PushError;

/// Minimum time between two log lines.
const LOG_EVERY: Span = Span::from_secs(60);

/// What a token begins with, so that it is recognised where it does not belong.
const PREFIX: &str = "kal_";

/// The check that all worker threads share.
pub struct AccessCheck {
    /// Whether an agent needs a token.
    is_closed: bool,
    access: Access,
    log_limiter: SharedLogLimiter,
}

impl AccessCheck {
    pub fn new(is_closed: bool, access: Access) -> Self {
        Self { is_closed, access, log_limiter: SharedLogLimiter::new(LOG_EVERY) }
    }

    /// Counts a connection with this token, or with none. A token that is none, has ended or is missing is refused with
    /// one answer. Refusals are logged, and never the token.
    pub fn try_admit(
        &self,
        token: Option<&str>,
        now: Time,
        log: &Logger,
    ) -> Result<Option<AccessSlot>, PushError> {
        let refusal = match token {
            None if !self.is_closed => return Ok(None),
            None => AccessRefusal::NoSuchToken,
            Some(token) => match self.access.try_connect(&sha256(token)) {
                Ok(slot) => return Ok(Some(slot)),
                Err(refusal) => refusal,
            },
        };
        if refusal == AccessRefusal::Full {
            return Err(PushError::AccessFull);
        }
        if let Some(refused) = self.log_limiter.count(now) {
            warn!(log, "user agents without a valid access token are refused"; "refused" => refused);
        }
        Err(PushError::Access)
    }
}

/// A new token: 256 bits, of which 244 are random.
pub fn new_token() -> String {
    let random = [Uuid::new_v4(), Uuid::new_v4()].map(Uuid::into_bytes).concat();
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random))
}

/// The SHA-256 of a token in hex, by which it is stored and looked up.
pub fn sha256(token: &str) -> String {
    let hash = digest(&SHA256, token.as_bytes());
    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_path_segment_and_never_the_same() {
        let (token, other) = (new_token(), new_token());
        assert_eq!((token.len(), token == other), (47, false));
        let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        assert!(token.starts_with(PREFIX) && token.chars().all(is_safe), "{token}");
    }

    #[test]
    fn the_hash_is_that_of_fips_180() {
        let of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256("abc"), of_abc);
    }
}
