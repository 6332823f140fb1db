//! The feeds of a server, over HTTP.

use std::fmt::Write;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use state_machine::feed::{FeedKey, FeedName, FeedValue};
use ureq::http::header::AUTHORIZATION;
use ureq::http::{Response, StatusCode};
use ureq::{Agent, Body};
use url::Url;

use super::FeedCliError;
use crate::admin::feed::Page;
use crate::dev::{ToolError, printable};
use crate::https_client::{http_client, why_unanswered};

/// The variable that holds the token: a flag would be in the list of processes.
pub const TOKEN_VARIABLE: &str = "KALENDS_FEED_TOKEN";

/// Bytes of a page at most: what a server puts into one by default, of which JSON may make six bytes of one, and a lot more.
const PAGE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Bytes of any other answer.
const ANSWER_BYTES_MAX: u64 = 65_536;

/// How long the answer may take beside the time that it was asked to wait.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// How long the body of a page may take.
const PAGE_WAIT: Duration = Duration::from_secs(60);

/// A server's word that the cursor is from the future (docs/feeds.md).
const FROM_THE_FUTURE: u16 = 308;

/// A server.
#[derive(Debug, Clone)]
pub struct Remote {
    base: String,
    agent: Agent,
    authorization: String,
}

/// Why there is no answer, or not the one that was asked for.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// It may be otherwise the next time.
    Lost(String),
    /// It will not.
    Refused(String),
}

#[derive(Deserialize)]
struct Told {
    version: u64,
}

/// What a server says of an error.
#[derive(Deserialize)]
struct Refusal {
    errno: u16,
    message: String,
}

impl Remote {
    /// The server at `url`, with the token in the environment.
    pub fn at(url: &Url) -> Result<Self, FeedCliError> {
        let token = std::env::var(TOKEN_VARIABLE).unwrap_or_default();
        let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        match is_token {
            true => Self::with_token(url, &token),
            false => Err(FeedCliError::Unusable(format!(
                "set {TOKEN_VARIABLE} to a token of the feed: `kalends feed token` makes one where the \
                 server's keys are"
            ))),
        }
    }

    fn with_token(url: &Url, token: &str) -> Result<Self, FeedCliError> {
        Ok(Self {
            base: url.as_str().trim_end_matches('/').to_owned(),
            agent: http_client(url)?,
            authorization: format!("Bearer {token}"),
        })
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        &self.base
    }

    /// Sets a key; gives its version.
    pub fn put(&self, feed: &FeedName, key: &FeedKey, value: &FeedValue) -> Result<u64, ToolError> {
        let request = self.agent.put(self.of_key(feed, key));
        let request = request.header(AUTHORIZATION, &self.authorization);
        self.version(request.send(value.as_str()))
    }

    /// Deletes a key; gives its version.
    pub fn delete(&self, feed: &FeedName, key: &FeedKey) -> Result<u64, ToolError> {
        let request = self.agent.delete(self.of_key(feed, key));
        self.version(request.header(AUTHORIZATION, &self.authorization).call())
    }

    /// Has a key published again; gives its version.
    pub fn republish(&self, feed: &FeedName, key: &FeedKey) -> Result<u64, ToolError> {
        let request = self.agent.post(self.of_key(feed, key) + "/republish");
        self.version(request.header(AUTHORIZATION, &self.authorization).send_empty())
    }

    /// What is behind `after`, at most `limit` updates. Where nothing is, the server waits for up to `wait` until something is.
    pub fn fetch(
        &self,
        feed: &FeedName,
        after: u64,
        limit: Option<u64>,
        wait: Duration,
    ) -> Result<Page, Failure> {
        let mut url =
            format!("{}/v1/feeds/{feed}?after={after}&wait={}", self.base, wait.as_secs());
        if let Some(limit) = limit {
            write!(url, "&limit={limit}").expect("a string takes all that is written");
        }
        let request = self.agent.get(url).header(AUTHORIZATION, &self.authorization);
        let request = request
            .config()
            .timeout_recv_response(Some(wait + ANSWER_WAIT))
            .timeout_recv_body(Some(PAGE_WAIT))
            .build();
        read(request.call(), PAGE_BYTES_MAX)
    }

    fn version(&self, answered: Result<Response<Body>, ureq::Error>) -> Result<u64, ToolError> {
        match read::<Told>(answered, ANSWER_BYTES_MAX) {
            Ok(Told { version }) => Ok(version),
            Err(Failure::Refused(why)) => Err(ToolError::Refused(why)),
            Err(Failure::Lost(why)) => Err(ToolError::Unreachable { url: self.base.clone(), why }),
        }
    }

    fn of_key(&self, feed: &FeedName, key: &FeedKey) -> String {
        format!("{}/v1/feeds/{feed}/{}", self.base, encoded(key.as_str()))
    }
}

fn read<T: DeserializeOwned>(
    answered: Result<Response<Body>, ureq::Error>,
    bytes_max: u64,
) -> Result<T, Failure> {
    let mut response = answered.map_err(|error| Failure::Lost(why_unanswered(error)))?;
    let (status, body) = (response.status(), response.body_mut());
    if !status.is_success() {
        let body = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        return Err(refusal(status, &body.unwrap_or_default()));
    }
    let body = body.with_config().limit(bytes_max).read_to_vec();
    let body = body.map_err(|error| match error {
        ureq::Error::BodyExceedsLimit(bytes) => {
            Failure::Refused(format!("the server's answer has more than {bytes} bytes"))
        }
        error => Failure::Lost(why_unanswered(error)),
    })?;
    serde_json::from_slice(&body).map_err(|_| {
        Failure::Refused("the server answers something else: is that a Kalends server?".into())
    })
}

fn refusal(status: StatusCode, body: &[u8]) -> Failure {
    let said = serde_json::from_slice::<Refusal>(body).ok();
    let mut why = format!("the server answers {status}");
    match &said {
        Some(Refusal { message, .. }) => why += &format!(": {}", printable(message)),
        None if status.is_redirection() => why += ": name the URL that it redirects to",
        None if status.is_client_error() => why += ": is that the URL of a Kalends server?",
        None => {}
    }
    if said.is_some_and(|said| said.errno == FROM_THE_FUTURE) {
        why += "; remove the cursor file, or give a lesser --after";
    }
    let may_pass = matches!(
        status,
        StatusCode::REQUEST_TIMEOUT
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::INTERNAL_SERVER_ERROR
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    );
    if may_pass { Failure::Lost(why) } else { Failure::Refused(why) }
}

/// A text as one segment of a path (RFC 3986 §3.3). Dots are encoded too: `.` and `..` alone would be taken for
/// something else.
fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~');
    let encode = |byte: u8| match is_plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_one_segment() {
        assert_eq!(encoded("remote-settings/a_b~1"), "remote-settings%2Fa_b~1");
        assert_eq!(encoded(".."), "%2E%2E");
        assert_eq!(encoded("ä ?#%"), "%C3%A4%20%3F%23%25");
        let remote = Remote::with_token(&Url::parse("http://a/").unwrap(), "x").unwrap();
        let (feed, key) = (FeedName::parse("f").unwrap(), FeedKey::parse("k#x/?y=%23").unwrap());
        assert_eq!(remote.of_key(&feed, &key), "http://a/v1/feeds/f/k%23x%2F%3Fy%3D%2523");
    }

    #[test]
    fn what_may_pass_is_told_from_what_will_not() {
        let body = |errno: u16| format!(r#"{{"errno": {errno}, "message": "no\u001b[2J"}}"#);
        let told = |status: u16, body: &str| {
            refusal(StatusCode::from_u16(status).unwrap(), body.as_bytes())
        };
        for status in [408, 429, 500, 502, 503, 504] {
            assert!(matches!(told(status, &body(201)), Failure::Lost(_)), "{status}");
        }
        for (status, expected) in [
            (401, "the server answers 401 Unauthorized: no\\u{1b}[2J"),
            (403, "the server answers 403 Forbidden: no\\u{1b}[2J"),
            (507, "the server answers 507 Insufficient Storage: no\\u{1b}[2J"),
        ] {
            assert_eq!(told(status, &body(301)), Failure::Refused(expected.into()));
        }
        let future = told(400, &body(FROM_THE_FUTURE));
        assert!(matches!(future, Failure::Refused(why) if why.ends_with("give a lesser --after")));
        for (status, expected) in [(404, "a Kalends server?"), (301, "that it redirects to")] {
            let other = told(status, "<html>");
            assert!(
                matches!(&other, Failure::Refused(why) if why.ends_with(expected)),
                "{other:?}"
            );
        }
    }
}
