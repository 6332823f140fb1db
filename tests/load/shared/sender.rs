//! An application server that sends numbered pushes.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::http::request::Builder;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// An application server with its own pool of connections.
#[derive(Clone)]
pub(crate) struct Sender(Client<HttpConnector, Full<Bytes>>);

/// A body of 256 bytes that contains the number.
pub(crate) fn body(number: usize) -> String {
    format!("{number:256}")
}

impl Sender {
    pub(crate) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self(Client::builder(TokioExecutor::new()).build(connector))
    }

    /// Sends a push and returns the status of the answer, if there is one.
    pub(crate) async fn push(&self, endpoint: &str, number: usize) -> Option<u16> {
        self.send(endpoint, body(number)).await
    }

    /// Sends a push with this body and returns the status of the answer, if there is one.
    pub(crate) async fn send(&self, endpoint: &str, body: String) -> Option<u16> {
        self.send_with(endpoint, body, &[("ttl", "10800")]).await
    }

    /// Like [`send`](Self::send), with these headers.
    pub(crate) async fn send_with(
        &self,
        endpoint: &str,
        body: String,
        headers: &[(&str, &str)],
    ) -> Option<u16> {
        let request = Request::post(endpoint).header("content-encoding", "aes128gcm");
        let with = |request: Builder, (name, value): &(&str, &str)| request.header(*name, *value);
        let request = headers.iter().fold(request, with);
        let request = request.body(Full::from(body)).expect("endpoints are URLs");
        let answer = self.0.request(request).await.ok()?;
        let status = answer.status().as_u16();
        // A connection is reused after the answer was read completely.
        answer.into_body().collect().await.ok()?;
        Some(status)
    }
}
