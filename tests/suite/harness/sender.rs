//! An application server that sends pushes over HTTP.

use std::time::Duration;

use hyper::Method;
use hyper::header::HeaderValue;

use super::agent::{Agent, Channel};
use super::answer::Answer;
use super::http_client::{HttpClient, SendError};
use super::signer::Signer;
use super::wait::note;

/// Timeout of one request, including its answer.
const REQUEST_WAIT: Duration = Duration::from_secs(30);

/// An application server with its own pool of connections.
#[derive(Clone)]
pub(crate) struct Sender {
    client: HttpClient,
    wait: Duration,
}

/// A request that is not sent yet.
#[must_use]
pub(crate) struct Post<'a> {
    sender: &'a Sender,
    method: Method,
    url: String,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Sender {
    pub(crate) fn new() -> Self {
        Self::with_timeout(REQUEST_WAIT)
    }

    /// A sender whose requests may last this long.
    pub(crate) fn with_timeout(timeout: Duration) -> Self {
        Self { client: HttpClient::new(), wait: timeout }
    }

    /// Pushes a text with a TTL of an hour; it must be answered 201.
    pub(crate) async fn push(&self, endpoint: &str, body: &str) -> Answer {
        let answer = self.post(endpoint).ttl(3600).body(body).send().await;
        assert_eq!(answer.status, 201, "{answer}");
        answer
    }

    /// Pushes a text to a connected agent, which must receive it as its next notification.
    pub(crate) async fn push_to(&self, agent: &mut Agent, channel: &Channel, body: &str) {
        let (_, got) = tokio::join!(self.push(&channel.endpoint, body), agent.take(1));
        assert_eq!((got[0].body(), &got[0].channel), (body, &channel.id));
    }

    /// Pushes a text with a Topic; it must be answered 201.
    pub(crate) async fn push_topic(&self, endpoint: &str, topic: &str, body: &str) -> Answer {
        let post = self.post(endpoint).ttl(3600).header("topic", topic);
        let answer = post.body(body).send().await;
        assert_eq!(answer.status, 201, "{answer}");
        answer
    }

    /// A push with neither headers nor body.
    pub(crate) fn post(&self, endpoint: &str) -> Post<'_> {
        self.request(Method::POST, endpoint)
    }

    pub(crate) async fn get(&self, url: &str) -> Answer {
        self.request(Method::GET, url).send().await
    }

    pub(crate) async fn delete(&self, location: &str) -> Answer {
        self.request(Method::DELETE, location).send().await
    }

    pub(crate) fn request(&self, method: Method, url: &str) -> Post<'_> {
        let (headers, body) = (Vec::new(), Vec::new());
        Post { sender: self, method, url: url.to_owned(), headers, body }
    }
}

impl Post<'_> {
    /// Sets the TTL of the message, in seconds.
    pub(crate) fn ttl(self, seconds: u32) -> Self {
        self.header("ttl", &seconds.to_string())
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Sets a body that is labelled as encrypted; only user agents decrypt it.
    pub(crate) fn body(self, body: impl Into<Vec<u8>>) -> Self {
        self.header("content-encoding", "aes128gcm").raw_body(body)
    }

    /// Sets a body without a Content-Encoding.
    pub(crate) fn raw_body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Adds a VAPID token for the server with this origin.
    pub(crate) fn signed(self, signer: &Signer, origin: &str) -> Self {
        self.header("authorization", &signer.authorization(origin))
    }

    /// Sends the request and waits for the answer, which must arrive.
    pub(crate) async fn send(self) -> Answer {
        self.try_send().await.expect("the server answers")
    }

    /// Sends the request; fails if the server is down.
    pub(crate) async fn try_send(self) -> Result<Answer, SendError> {
        let value = |text: &String| HeaderValue::from_str(text).expect("tests send headers");
        let headers = self.headers.iter().map(|(name, text)| (*name, value(text)));
        let headers: Vec<_> = headers.collect();
        let Sender { client, wait } = self.sender;
        let sent = client.send(self.method, &self.url, &headers, self.body, *wait).await;
        // An incomplete body means that the server was killed.
        let (status, headers, body) = sent?;
        let text = |value: &HeaderValue| {
            value.to_str().expect("the server sends text in headers").to_owned()
        };
        let headers = headers.iter();
        let headers = headers.map(|(name, value)| (name.to_string(), text(value))).collect();
        let answer = Answer { status: status.as_u16(), headers, body: body.to_vec() };
        note(answer.to_string());
        Ok(answer)
    }
}
