//! A service that has broadcasts, in the form of Mozilla's megaphone.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::oneshot;
use ureq::http::header::AUTHORIZATION;
use ureq::{Agent, Error};
use url::Url;

use super::token_file::{self, TokenFileError};
use crate::dev::ToolError;
use crate::https_client::{http_client, why_unanswered};

/// Where a service answers.
const PATH: &str = "/v1/broadcasts";

/// Bytes of an answer at most.
const ANSWER_BYTES_MAX: u64 = 1024 * 1024;

/// Broadcasts in an answer at most. A service that has lost its mind would fill the feed for good: what was once in it
/// leaves its tombstone.
const BROADCASTS_MAX: usize = 1000;

/// How long a request may take in all. Its steps have shorter limits of their own.
const REQUEST_WAIT: Duration = Duration::from_secs(30);

/// Ids and their versions.
pub type Versions = BTreeMap<String, String>;

/// Why there are no versions. Says nothing of the token.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// There is no way to ask.
    #[error(transparent)]
    Client(#[from] ToolError),
    /// There is no thread to ask on.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The token is not there any more.
    #[error(transparent)]
    Token(#[from] TokenFileError),
    /// It does not answer.
    #[error("{0}")]
    Unanswered(String),
    /// It leads somewhere else, where the token must not go.
    #[error(
        "it answers {0}: set broadcast_source_url to where that leads, redirects are not followed"
    )]
    Redirect(u16),
    /// It refuses.
    #[error("it answers {0}")]
    Status(u16),
    /// It says too much.
    #[error("its answer has more than {ANSWER_BYTES_MAX} bytes")]
    TooLarge,
    /// It says too much.
    #[error("it has {0} broadcasts, at most {BROADCASTS_MAX} are taken over")]
    TooMany(usize),
    /// It says something else.
    #[error("its answer is not {{\"broadcasts\": {{\"ID\": \"VERSION\"}}}}")]
    Malformed,
    /// The thread that asks is gone.
    #[error("the thread that asks it is gone, restart the server")]
    Gone,
}

/// A service.
pub struct Source {
    url: String,
    agent: Agent,
    token_file: Option<PathBuf>,
}

/// A service that is asked on a thread of its own.
pub struct SourceThread(mpsc::SyncSender<Question>);

/// Questions that may wait for the thread: whoever asks waits for the answer before asking again.
const QUESTIONS_MAX: usize = 1;

type Question = oneshot::Sender<Result<Versions, SourceError>>;

/// What it answers. Mozilla's has a `code` too, which is that of HTTP.
#[derive(Deserialize)]
struct Answer {
    broadcasts: Versions,
    #[serde(default = "ok")]
    code: u16,
}

impl Source {
    /// The service at an origin.
    pub fn at(origin: &str, token_file: Option<&Path>) -> Result<Self, SourceError> {
        let url = format!("{origin}{PATH}");
        let parsed = Url::parse(&url).map_err(|_| SourceError::Malformed)?;
        let token_file = token_file.map(Path::to_owned);
        Ok(Self { url, agent: http_client(&parsed)?, token_file })
    }

    /// Asks on a thread: the client blocks, and a server that stops waits for no thread of its own.
    pub fn on_a_thread(self) -> Result<SourceThread, SourceError> {
        let (questions, asked) = mpsc::sync_channel::<Question>(QUESTIONS_MAX);
        let answer = move || {
            while let Ok(question) = asked.recv() {
                // Whoever asked may be gone.
                let _ = question.send(self.ask());
            }
        };
        let thread = thread::Builder::new().name("importer".into()).spawn(answer);
        thread.map(|_| SourceThread(questions)).map_err(SourceError::Thread)
    }

    /// Asks. Blocks for at most [`REQUEST_WAIT`].
    fn ask(&self) -> Result<Versions, SourceError> {
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

impl SourceThread {
    /// Asks once.
    pub async fn ask(&self) -> Result<Versions, SourceError> {
        let (question, answer) = oneshot::channel();
        self.0.try_send(question).map_err(|_| SourceError::Gone)?;
        answer.await.unwrap_or(Err(SourceError::Gone))
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
    fn anything_else_is_refused() {
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
