//! What a bridge has to define, and one exchange with it.

use std::borrow::Cow;
use std::time::Duration;

use futures_util::future::BoxFuture;
use hyper::header::{AUTHORIZATION, HeaderValue};
use state_machine::{BridgeOutcome, BridgeRecipient, Message, Span};

use super::http_client::{HttpAnswer, HttpClient, HttpRequest};

/// One application at the push service of a platform.
pub(super) trait Platform: Send + Sync {
    /// The request without its `Authorization`, or the outcome of a message that must not be sent.
    fn request(
        &self,
        recipient: &BridgeRecipient,
        message: &Message,
    ) -> Result<HttpRequest, BridgeOutcome>;

    /// The value of `Authorization`; none if the connection itself is authenticated.
    fn authorization(&self) -> BoxFuture<'_, Result<Option<HeaderValue>, Verdict>>;

    /// Drops a token that the bridge refused. Returns whether another one may be accepted.
    fn drop_token(&self, refused: &HeaderValue) -> bool;

    /// What an answer means.
    fn read(&self, answer: &HttpAnswer) -> Verdict;

    fn client(&self) -> &HttpClient;
}

/// The outcome of a message, and the reason for the log. It never contains a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) outcome: BridgeOutcome,
    pub(super) reason: Cow<'static, str>,
    /// The `Retry-After` of a bridge that is unavailable.
    pub(super) retry_after: Option<Span>,
    /// The bridge accepts a new token, perhaps.
    pub(super) refuses_token: bool,
}

impl Verdict {
    pub(super) fn new(outcome: BridgeOutcome, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { outcome, reason: reason.into(), retry_after: None, refuses_token: false }
    }

    pub(super) fn unavailable(answer: &HttpAnswer, reason: impl Into<Cow<'static, str>>) -> Self {
        let retry_after = answer.retry_after;
        Self { retry_after, ..Self::new(BridgeOutcome::Unavailable, reason) }
    }

    pub(super) fn refused_token(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { refuses_token: true, ..Self::new(BridgeOutcome::Unauthorized, reason) }
    }

    pub(super) fn timed_out(wait: Duration) -> Self {
        Self::new(BridgeOutcome::TimedOut, format!("no answer in {} ms", wait.as_millis()))
    }
}

/// Sends the request. If the bridge refuses the token, sends it once more with a new one.
pub(super) async fn exchange(platform: &dyn Platform, request: HttpRequest) -> Verdict {
    let (verdict, token) = attempt(platform, request.clone()).await;
    match token {
        Some(token) if verdict.refuses_token && platform.drop_token(&token) => {
            attempt(platform, request).await.0
        }
        _ => verdict,
    }
}

/// The verdict, and the token that was sent.
async fn attempt(
    platform: &dyn Platform,
    mut request: HttpRequest,
) -> (Verdict, Option<HeaderValue>) {
    let token = match platform.authorization().await {
        Ok(token) => token,
        Err(verdict) => return (verdict, None),
    };
    if let Some(token) = &token {
        request.headers_mut().insert(AUTHORIZATION, token.clone());
    }
    let verdict = match platform.client().call(request).await {
        Ok(answer) => platform.read(&answer),
        Err(error) => Verdict::new(BridgeOutcome::Unavailable, error),
    };
    (verdict, token)
}
