//! An HTTP client with a pool of connections. It follows no redirects and decodes no bodies.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;

/// Why there is no answer, or not all of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error("there is no connection: {0}")]
    NoConnection(Error),
    #[error("the connection broke: {0}")]
    NoAnswer(Error),
    #[error("the answer is incomplete: {0}")]
    Incomplete(hyper::Error),
    #[error("the answer did not arrive in time")]
    TooLate,
}

#[derive(Clone)]
pub(crate) struct HttpClient(Client<HttpConnector, Full<Bytes>>);

impl HttpClient {
    pub(crate) fn new() -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        let mut client = Client::builder(TokioExecutor::new());
        Self(client.pool_timer(TokioTimer::new()).build(tcp))
    }

    /// Sends a request, and waits for the head of its answer.
    pub(crate) async fn begin(
        &self,
        method: Method,
        url: &str,
        headers: &[(&str, HeaderValue)],
        body: impl Into<Bytes>,
    ) -> Result<Response<Incoming>, SendError> {
        let request = headers
            .iter()
            .fold(Request::builder().method(method).uri(url), |request, (name, value)| {
                request.header(*name, value)
            });
        let request = request.body(Full::new(body.into())).expect("tests make requests");
        let answer = self.0.request(request).await;
        answer.map_err(|error| match error.is_connect() {
            true => SendError::NoConnection(error),
            false => SendError::NoAnswer(error),
        })
    }

    /// Opens a stream of server-sent events.
    pub(crate) async fn events(
        &self,
        url: &str,
        headers: &[(&str, &str)],
    ) -> Result<Response<Incoming>, SendError> {
        let accept = ("accept", HeaderValue::from_static("text/event-stream"));
        let headers = headers.iter().map(|(name, value)| {
            (*name, HeaderValue::from_str(value).expect("tests send headers"))
        });
        let headers: Vec<_> = [accept].into_iter().chain(headers).collect();
        self.begin(Method::GET, url, &headers, Bytes::new()).await
    }

    /// Sends a request, and waits for the whole answer.
    pub(crate) async fn send(
        &self,
        method: Method,
        url: &str,
        headers: &[(&str, HeaderValue)],
        body: impl Into<Bytes>,
        wait: Duration,
    ) -> Result<(StatusCode, HeaderMap, Bytes), SendError> {
        let answered = timeout(wait, async {
            let (head, body) = self.begin(method, url, headers, body).await?.into_parts();
            let body = body.collect().await.map_err(SendError::Incomplete)?.to_bytes();
            Ok((head.status, head.headers, body))
        });
        answered.await.unwrap_or(Err(SendError::TooLate))
    }
}
