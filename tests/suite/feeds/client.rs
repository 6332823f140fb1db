//! An HTTP client for one feed.

use hyper::Method;
use kalends::feeds::http::tokens::{FeedTokens, Grant, Scopes};
use kalends::settings::keys::Keys;
use serde::Deserialize;
use state_machine::Time;
use state_machine::feed::FeedName;

use super::events::Events;
use crate::harness::{Answer, Sender, Server};

/// A client with its own connections and token.
pub(crate) struct FeedClient {
    sender: Sender,
    url: String,
    token: String,
}

/// One page of a feed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    pub(crate) updates: Vec<Update>,
    pub(crate) cursor: u64,
    pub(crate) head: u64,
    #[serde(default)]
    pub(crate) horizon: u64,
}

/// One update of a feed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Update {
    pub(crate) feed_sync_id: u64,
    pub(crate) key: String,
    pub(crate) version: u64,
    pub(crate) value: Option<String>,
    #[serde(default)]
    pub(crate) deleted: bool,
}

impl FeedClient {
    /// A client that may read and write a feed.
    pub(crate) fn at(server: &Server, feed: &str) -> Self {
        Self::with(server, feed, token(server, feed, Scopes::Both, None))
    }

    /// A client with this token.
    pub(crate) fn with(server: &Server, feed: &str, token: String) -> Self {
        let url = format!("{}/v1/feeds/{feed}", server.origin());
        Self { sender: Sender::new(), url, token }
    }

    /// The value of the `Authorization` header.
    pub(crate) fn authorization(&self) -> String {
        format!("Bearer {}", self.token)
    }

    /// Sends a request; the path starts after the feed's name.
    pub(crate) async fn request(&self, method: Method, path: &str, body: &str) -> Answer {
        self.try_request(method, path, body).await.expect("the server is there")
    }

    /// Sends a request, or fails if the server is down.
    pub(crate) async fn try_request(
        &self,
        method: Method,
        path: &str,
        body: &str,
    ) -> Option<Answer> {
        let request = self.sender.request(method, &format!("{}{path}", self.url));
        let request = request.header("authorization", &self.authorization());
        request.raw_body(body).try_send().await.ok()
    }

    /// Sends a GET request, which may fail.
    pub(crate) async fn get(&self, query: &str) -> Answer {
        self.request(Method::GET, query, "").await
    }

    /// Writes a key and returns its new version.
    pub(crate) async fn put(&self, key: &str, value: &str) -> u64 {
        self.try_put(key, value).await.expect("the server is there")
    }

    /// Writes a key, or fails if the server is down.
    pub(crate) async fn try_put(&self, key: &str, value: &str) -> Option<u64> {
        let answer = self.try_request(Method::PUT, &format!("/{key}"), value).await?;
        let version = version(&answer);
        assert_eq!(answer.status, if version == 1 { 201 } else { 200 }, "{answer}");
        Some(version)
    }

    pub(crate) async fn page(&self, query: &str) -> Page {
        self.try_page(query).await.expect("the server is there")
    }

    /// Reads a page; `None` if the server is down.
    pub(crate) async fn try_page(&self, query: &str) -> Option<Page> {
        let answer = self.try_request(Method::GET, &format!("?{query}"), "").await?;
        assert_eq!(answer.status, 200, "{answer}");
        Some(serde_json::from_slice(&answer.body).expect("a page is JSON"))
    }

    /// Opens the event stream after an event; `None` if the server is down.
    pub(crate) async fn try_events(&self, last: u64) -> Option<Events> {
        Events::open(&self.url, &self.authorization(), last).await
    }

    /// Opens the event stream after an event.
    pub(crate) async fn events(&self, last: u64) -> Events {
        self.try_events(last).await.expect("the server is there")
    }
}

/// Creates a token with the server's own keys.
pub(crate) fn token(server: &Server, feed: &str, scopes: Scopes, expires: Option<Time>) -> String {
    let keys = Keys::load(&server.data_dir()).expect("the server has keys");
    let feed = FeedName::parse(feed).expect("tests name feeds rightly");
    FeedTokens::derive(&keys, 0).mint(&Grant { feed, scopes, expires })
}

/// The version in the answer to a write.
pub(crate) fn version(answer: &Answer) -> u64 {
    answer.json()["version"].as_u64().unwrap_or_else(|| panic!("no version: {answer}"))
}
