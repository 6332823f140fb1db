//! The client of a server's feeds over HTTP.

use std::fmt::Write;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use state_machine::feed::{FeedKey, FeedName, FeedPage};
use ureq::http::header::AUTHORIZATION;
use ureq::http::{Response, StatusCode};
use ureq::{Agent, Body};
use url::Url;

use super::key_args::Change;
use crate::command::entry::FEED_TOKEN_VARIABLE;
use crate::system::https_client::{ClientError, http_client, why_unanswered};
use crate::system::printable::printable;

/// Maximum size of a page, in bytes: several times the default of a server, of which JSON may write a byte as six.
const PAGE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Maximum size of any other answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 65_536;

/// How long the head of an answer may take beyond the `wait` of the request.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// How long the body of a page may take.
const PAGE_WAIT: Duration = Duration::from_secs(60);

/// The errno for a cursor from the future (docs/feeds.md).
const FROM_THE_FUTURE: u16 = 308;

/// The errno for a cursor below the horizon.
const TOO_OLD: u16 = 318;

/// Characters that are encoded in one segment of a path (RFC 3986 §3.3). Dots too: `.` and `..` alone have a meaning.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');

/// A server and the token for one of its feeds.
#[derive(Debug, Clone)]
pub struct Remote {
    base: String,
    agent: Agent,
    authorization: String,
}

/// The answer to a write.
#[derive(Deserialize)]
struct Written {
    version: u64,
}

/// The body of an error.
#[derive(Deserialize)]
struct Refusal {
    errno: u16,
    message: String,
}

impl Remote {
    /// The server at `url`, with the token in the environment.
    pub fn at(url: &Url) -> Result<Self, ClientError> {
        let token = std::env::var(FEED_TOKEN_VARIABLE).unwrap_or_default();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ClientError::Refused(format!(
                "set {FEED_TOKEN_VARIABLE} to a token of the feed: `kalends feed token` makes one where the server's keys \
                 are"
            )));
        }
        Ok(Self {
            base: url.as_str().trim_end_matches('/').to_owned(),
            agent: http_client(url)?,
            authorization: format!("Bearer {token}"),
        })
    }

    /// Changes a key; returns its version.
    pub fn change(
        &self,
        feed: &FeedName,
        key: &FeedKey,
        change: &Change,
    ) -> Result<u64, ClientError> {
        let (agent, url) = (&self.agent, self.of_key(feed, key));
        let token = &self.authorization;
        let answered = match change {
            Change::Put(value) => agent.put(url).header(AUTHORIZATION, token).send(value.as_str()),
            Change::Delete => agent.delete(url).header(AUTHORIZATION, token).call(),
            Change::Republish => {
                agent.post(url + "/republish").header(AUTHORIZATION, token).send_empty()
            }
        };
        let written: Written = self.read(answered, ANSWER_BYTES_MAX)?;
        Ok(written.version)
    }

    /// Up to `limit` updates behind `after`. If there are none, the server waits for one up to `wait`.
    pub fn fetch(
        &self,
        feed: &FeedName,
        after: u64,
        limit: Option<u64>,
        wait: Duration,
    ) -> Result<FeedPage, ClientError> {
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
        self.read(request.call(), PAGE_BYTES_MAX)
    }

    fn of_key(&self, feed: &FeedName, key: &FeedKey) -> String {
        format!("{}/v1/feeds/{feed}/{}", self.base, utf8_percent_encode(key.as_str(), ENCODED))
    }

    fn read<T: DeserializeOwned>(
        &self,
        answered: Result<Response<Body>, ureq::Error>,
        bytes_max: u64,
    ) -> Result<T, ClientError> {
        let unreachable = |why| ClientError::Unreachable { url: self.base.clone(), why };
        let mut response = answered.map_err(|error| unreachable(why_unanswered(error)))?;
        let (status, body) = (response.status(), response.body_mut());
        if !status.is_success() {
            let body = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
            return Err(refusal(&self.base, status, &body.unwrap_or_default()));
        }
        let body = body.with_config().limit(bytes_max).read_to_vec();
        let body = body.map_err(|error| match error {
            ureq::Error::BodyExceedsLimit(bytes) => {
                ClientError::Refused(format!("the server's answer has more than {bytes} bytes"))
            }
            error => unreachable(why_unanswered(error)),
        })?;
        serde_json::from_slice(&body).map_err(|_| {
            let why = "the server answers something else: is that a Kalends server?";
            ClientError::Refused(why.into())
        })
    }
}

/// [`ClientError::Unreachable`] if a later attempt may succeed.
fn refusal(url: &str, status: StatusCode, body: &[u8]) -> ClientError {
    let refusal = serde_json::from_slice::<Refusal>(body).ok();
    let mut why = format!("the server answers {status}");
    match &refusal {
        Some(Refusal { message, .. }) => why += &format!(": {}", printable(message)),
        None if status.is_redirection() => why += ": name the URL that it redirects to",
        None if status.is_client_error() => why += ": is that the URL of a Kalends server?",
        None => {}
    }
    match refusal.map(|refusal| refusal.errno) {
        Some(FROM_THE_FUTURE) => why += "; remove the cursor file, or give a lesser --after",
        Some(TOO_OLD) => {
            why +=
                "; remove the cursor file, or give --after 0; --restart-if-gone does so by itself";
            return ClientError::Gone(why);
        }
        _ => {}
    }
    match status.as_u16() {
        408 | 429 | 500 | 502..=504 => ClientError::Unreachable { url: url.to_owned(), why },
        _ => ClientError::Refused(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_one_segment_of_a_path() {
        let encoded = |text| utf8_percent_encode(text, ENCODED).to_string();
        assert_eq!(encoded("remote-settings/a_b~1"), "remote-settings%2Fa_b~1");
        assert_eq!(encoded(".."), "%2E%2E");
        assert_eq!(encoded("ä ?#%"), "%C3%A4%20%3F%23%25");
        let url = Url::parse("http://a/").unwrap();
        let agent = http_client(&url).unwrap();
        let remote = Remote { base: "http://a".into(), agent, authorization: String::new() };
        let (feed, key) = (FeedName::parse("f").unwrap(), FeedKey::parse("k#x/?y=%23").unwrap());
        assert_eq!(remote.of_key(&feed, &key), "http://a/v1/feeds/f/k%23x%2F%3Fy%3D%2523");
    }

    #[test]
    fn temporary_failures_differ_from_refusals() {
        let body = |errno: u16| format!(r#"{{"errno": {errno}, "message": "no\u001b[2J"}}"#);
        let failure = |status: u16, body: &str| {
            refusal("http://a", StatusCode::from_u16(status).unwrap(), body.as_bytes())
        };
        for status in [408, 429, 500, 502, 503, 504] {
            assert!(
                matches!(failure(status, &body(201)), ClientError::Unreachable { .. }),
                "{status}"
            );
        }
        for (status, expected) in [
            (401, "the server answers 401 Unauthorized: no\\u{1b}[2J"),
            (403, "the server answers 403 Forbidden: no\\u{1b}[2J"),
            (507, "the server answers 507 Insufficient Storage: no\\u{1b}[2J"),
        ] {
            let refused = failure(status, &body(301));
            assert!(matches!(&refused, ClientError::Refused(why) if why == expected), "{refused}");
        }
        let future = failure(400, &body(FROM_THE_FUTURE));
        assert!(
            matches!(future, ClientError::Refused(why) if why.ends_with("give a lesser --after"))
        );
        let old = failure(410, &body(TOO_OLD));
        assert!(matches!(old, ClientError::Gone(why) if why.contains("give --after 0")));
        for (status, expected) in [(404, "a Kalends server?"), (301, "that it redirects to")] {
            let other = failure(status, "<html>");
            assert!(
                matches!(&other, ClientError::Refused(why) if why.ends_with(expected)),
                "{other:?}"
            );
        }
    }
}
