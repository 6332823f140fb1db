//! The client of a service that has broadcasts, in the form of Mozilla's megaphone.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::oneshot;
use ureq::http::header::AUTHORIZATION;
use ureq::{Agent, Error};
use url::Url;

use super::token_file::{self, TokenFileError};
use crate::system::https_client::{ClientError, http_client, why_unanswered};

/// The path at which the service lists its broadcasts.
const PATH: &str = "/v1/broadcasts";

/// Maximum size of an answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 1024 * 1024;

/// Maximum number of broadcasts in an answer. A faulty service would fill the feed for good: a deleted broadcast leaves
/// a tombstone.
const BROADCASTS_MAX: usize = 1000;

/// The timeout of a request. Its steps have shorter timeouts.
const REQUEST_WAIT: Duration = Duration::from_secs(30);

/// Versions of broadcasts by id.
pub type Versions = BTreeMap<String, String>;

/// Why there are no versions. Never contains the token.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The token file was removed or changed.
    #[error(transparent)]
    Token(#[from] TokenFileError),
    #[error("{0}")]
    Unanswered(String),
    /// The token must not be sent elsewhere.
    #[error(
        "it answers {0}: set broadcast_source_url to where that leads, redirects are not followed"
    )]
    Redirect(u16),
    #[error("it answers {0}")]
    Status(u16),
    #[error("its answer has more than {ANSWER_BYTES_MAX} bytes")]
    TooLarge,
    #[error("it has {0} broadcasts, at most {BROADCASTS_MAX} are imported")]
    TooMany(usize),
    #[error("its answer is not {{\"broadcasts\": {{\"ID\": \"VERSION\"}}}}")]
    Malformed,
}

#[derive(Clone)]
pub struct Source {
    url: String,
    agent: Agent,
    token_file: Option<PathBuf>,
}

/// The body of an answer. Mozilla's has a `code`, which repeats the HTTP status.
#[derive(Deserialize)]
struct Answer {
    broadcasts: Versions,
    #[serde(default = "ok")]
    code: u16,
}

impl Source {
    pub fn at(origin: &str, token_file: Option<&Path>) -> Result<Self, SourceError> {
        let url = format!("{origin}{PATH}");
        let parsed = Url::parse(&url).map_err(|_| SourceError::Malformed)?;
        let token_file = token_file.map(Path::to_owned);
        Ok(Self { url, agent: http_client(&parsed)?, token_file })
    }

    /// Sends a request on a thread of its own: it blocks, and a server that stops does not wait for this thread.
    pub async fn ask(&self) -> Result<Versions, SourceError> {
        let (hand_over, answer) = oneshot::channel();
        let source = self.clone();
        // The caller may be gone.
        let call = move || _ = hand_over.send(source.call());
        thread::Builder::new().name("importer".into()).spawn(call).map_err(SourceError::Thread)?;
        answer.await.unwrap_or_else(|_| Err(SourceError::Unanswered("its client panicked".into())))
    }

    /// Blocks for at most [`REQUEST_WAIT`].
    fn call(&self) -> Result<Versions, SourceError> {
        let mut request = self.agent.get(&self.url);
        if let Some(path) = &self.token_file {
            let token = token_file::read(path)?;
            request = request.header(AUTHORIZATION, format!("Bearer {}", *token));
        }
        let request = request.config().timeout_global(Some(REQUEST_WAIT)).build();
        let mut response = request.call().map_err(unanswered)?;
        match response.status().as_u16() {
            200 => {}
            status @ 300..400 => return Err(SourceError::Redirect(status)),
            status => return Err(SourceError::Status(status)),
        }
        let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let body = body.map_err(|error| match error {
            Error::BodyExceedsLimit(_) => SourceError::TooLarge,
            error => unanswered(error),
        })?;
        read(&body)
    }
}

fn unanswered(error: Error) -> SourceError {
    SourceError::Unanswered(why_unanswered(error))
}

fn read(body: &[u8]) -> Result<Versions, SourceError> {
    let answer = serde_json::from_slice::<Answer>(body).map_err(|_| SourceError::Malformed)?;
    match answer.broadcasts.len() {
        _ if answer.code != ok() => Err(SourceError::Status(answer.code)),
        count if count > BROADCASTS_MAX => Err(SourceError::TooMany(count)),
        _ => Ok(answer.broadcasts),
    }
}

fn ok() -> u16 {
    200
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_with_too_many_broadcasts_is_refused_as_a_whole() {
        let of = |count: usize| {
            let versions: Versions =
                (0..count).map(|id| (id.to_string(), "1".to_owned())).collect();
            read(serde_json::json!({ "broadcasts": versions }).to_string().as_bytes())
        };
        assert_eq!(of(BROADCASTS_MAX).unwrap().len(), BROADCASTS_MAX);
        assert!(matches!(of(BROADCASTS_MAX + 1), Err(SourceError::TooMany(1001))));
    }

    #[test]
    fn an_answer_is_read_as_mozillas_megaphone_writes_it() {
        for fine in [
            r#"{"code": 200, "broadcasts": {"a/b": "1"}}"#,
            r#"{"broadcasts": {"a/b": "1"}, "more": []}"#,
        ] {
            assert_eq!(read(fine.as_bytes()).unwrap(), [("a/b".into(), "1".into())].into());
        }
        assert!(read(br#"{"broadcasts": {}}"#).unwrap().is_empty());
    }

    #[test]
    fn any_other_answer_is_refused() {
        for wrong in [
            "",
            "[]",
            "<html>",
            r#"{"broadcasts": {"a": 1}}"#,
            r#"{"broadcasts": [["a", "1"]]}"#,
            r#"{"code": 200}"#,
        ] {
            assert!(matches!(read(wrong.as_bytes()), Err(SourceError::Malformed)), "{wrong}");
        }
        let refused = read(br#"{"code": 401, "broadcasts": {}}"#).unwrap_err();
        assert_eq!(refused.to_string(), "it answers 401");
    }
}
