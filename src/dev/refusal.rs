//! A push that was refused: whose answer that is, and what to do.

use std::fmt;

use serde::Deserialize;
use ureq::http::StatusCode;

use crate::system::printable::printable;

/// The answer to a push that was refused. Its text has the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub(crate) status: StatusCode,
    /// None in the answer of a firewall or a proxy.
    errno: Option<u32>,
    message: String,
    retry_after: Option<String>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, retry_after: Option<&str>, body: &[u8]) -> Self {
        /// The body of an error.
        #[derive(Default, Deserialize)]
        struct Reason {
            errno: Option<u32>,
            message: Option<String>,
        }
        let Reason { errno, message } = serde_json::from_slice(body).unwrap_or_default();
        let (message, retry_after) = (message.unwrap_or_default(), retry_after.map(str::to_owned));
        Self { status, errno, message, retry_after }
    }

    /// Whether Kalends answered, or a server with the same errors.
    pub(crate) fn is_of_kalends(&self) -> bool {
        self.errno.is_some()
    }

    /// The answer without the remedy.
    pub(crate) fn found(&self) -> String {
        let mut text = format!("the server answered {}", self.status);
        if !self.message.is_empty() {
            text += &format!(": {}", printable(&self.message));
            text += &self.errno.map(|errno| format!(" (errno {errno})")).unwrap_or_default();
        }
        if let Some(seconds) = &self.retry_after {
            text += &format!(", Retry-After: {}", printable(seconds));
        }
        text
    }

    fn advice(&self) -> Option<&'static str> {
        Some(match (self.status.as_u16(), self.is_of_kalends()) {
            (300..=399, _) => "push services do not redirect: is the endpoint complete?",
            (413, false) => "this is not an answer of Kalends: a proxy limits the size of bodies",
            (502..=504, false) => {
                "this is not an answer of Kalends: a proxy does not reach the server"
            }
            (_, false) => {
                "this is not an answer of Kalends: a firewall or a proxy refuses the push, or the endpoint is another \
                 service's"
            }
            (401, true) => token_advice(&self.message),
            (403, true) => {
                "the subscription takes another VAPID key: give its file with --vapid-key"
            }
            (404, true) => {
                "there is no such endpoint: is it complete, and has its server kept its keys?"
            }
            (410, true) => "the subscription is over: its user agent has to subscribe again",
            (413, true) => "the message is too long for this server",
            (429, true) => "too many messages: send again later",
            (503, true) => "the server is busy or stopping: send again later",
            (_, true) => return None,
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.found())?;
        self.advice().map_or(Ok(()), |advice| write!(to, "\n{advice}"))
    }
}

impl std::error::Error for Refusal {}

/// What to do about a token, by the claim that the server's message names.
fn token_advice(message: &str) -> &'static str {
    let names = |claim| message.split(|c: char| !c.is_alphanumeric()).any(|word| word == claim);
    if names("exp") {
        "the VAPID token's time is wrong: is the clock of this machine right?"
    } else if names("aud") {
        "the VAPID token is for the endpoint's origin, which must be the server's public_url"
    } else {
        "the VAPID token is missing or wrong"
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refused_token_is_advised_on_by_the_claim_that_is_wrong() {
        let aud = "the VAPID token's aud is for another server; it must be https://a";
        for (message, expected) in [
            ("the VAPID token expired 5 s ago by its exp", "is the clock of this machine right?"),
            ("the VAPID token's exp is 90000 s ahead", "is the clock of this machine right?"),
            (aud, "the endpoint's origin, which must be the server's public_url"),
            ("a token is expected", "\nthe VAPID token is missing or wrong"),
            ("", "401 Unauthorized\nthe VAPID token is missing or wrong"),
        ] {
            let body = json!({"errno": 109, "message": message}).to_string();
            let refusal = Refusal::new(StatusCode::UNAUTHORIZED, None, body.as_bytes()).to_string();
            assert!(refusal.ends_with(expected), "{refusal}");
        }
    }

    /// Seen with a rule of a firewall against `Content-Encoding`.
    #[test]
    fn an_answer_without_an_errno_is_that_of_a_firewall_or_a_proxy() {
        let foreign = "this is not an answer of Kalends: ";
        let html = "<html><body>403 Forbidden</body></html>";
        for (status, body, expected) in [
            (403, html, "a firewall or a proxy refuses the push"),
            (401, "", "a firewall or a proxy refuses the push"),
            (404, r#"{"message": "no route"}"#, "a firewall or a proxy refuses the push"),
            (413, html, "a proxy limits the size of bodies"),
            (502, html, "a proxy does not reach the server"),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let refusal = Refusal::new(status, None, body.as_bytes()).to_string();
            let (_, advice) = refusal.split_once('\n').unwrap();
            assert!(advice.starts_with(&format!("{foreign}{expected}")), "{refusal}");
            let ours = Refusal::new(status, None, br#"{"errno": 999}"#).to_string();
            assert!(!ours.contains(foreign), "{ours}");
        }
    }
}
