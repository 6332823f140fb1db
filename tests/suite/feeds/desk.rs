//! A program that uses one feed.

use awc::http::Method;
use kalends::feeds::http::tokens::{FeedTokens, Grant, Scopes};
use kalends::keys::Keys;
use serde::Deserialize;
use serde_json::Value;
use state_machine::Time;
use state_machine::feed::FeedName;

use super::events::Events;
use crate::harness::{Answer, Sender, Server};

/// It has connections and a token of its own.
pub(crate) struct Desk {
    sender: Sender,
    url: String,
    token: String,
}

/// What is read at once.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    pub(crate) updates: Vec<Update>,
    pub(crate) cursor: u64,
    pub(crate) head: u64,
}

/// An update.
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

impl Desk {
    /// One that may read and write a feed.
    pub(crate) fn at(server: &Server, feed: &str) -> Self {
        Self::with(server, feed, token(server, feed, Scopes::Both, None))
    }

    /// One with some token or other.
    pub(crate) fn with(server: &Server, feed: &str, token: String) -> Self {
        let url = format!("{}/v1/feeds/{feed}", server.origin());
        Self { sender: Sender::new(), url, token }
    }

    /// Its token, as a header has it.
    pub(crate) fn authorization(&self) -> String {
        format!("Bearer {}", self.token)
    }

    /// Asks something; the path begins behind the feed's name.
    pub(crate) async fn ask(&self, method: Method, path: &str, body: &str) -> Answer {
        self.try_ask(method, path, body).await.expect("the server is there")
    }

    /// Asks something, if the server is there.
    pub(crate) async fn try_ask(&self, method: Method, path: &str, body: &str) -> Option<Answer> {
        let request = self.sender.request(method, &format!("{}{path}", self.url));
        let request = request.header("authorization", &self.authorization());
        request.raw_body(body).try_send().await.ok()
    }

    /// Reads, whatever comes of it.
    pub(crate) async fn get(&self, query: &str) -> Answer {
        self.ask(Method::GET, query, "").await
    }

    /// Sets a key; the version that this made.
    pub(crate) async fn put(&self, key: &str, value: &str) -> u64 {
        self.try_put(key, value).await.expect("the server is there")
    }

    /// Sets a key, if the server is there.
    pub(crate) async fn try_put(&self, key: &str, value: &str) -> Option<u64> {
        let answer = self.try_ask(Method::PUT, &format!("/{key}"), value).await?;
        let version = version(&answer);
        assert_eq!(answer.status, if version == 1 { 201 } else { 200 }, "{answer}");
        Some(version)
    }

    /// Reads a page.
    pub(crate) async fn page(&self, query: &str) -> Page {
        self.try_page(query).await.expect("the server is there")
    }

    /// Reads a page, if the server is there.
    pub(crate) async fn try_page(&self, query: &str) -> Option<Page> {
        let answer = self.try_ask(Method::GET, &format!("?{query}"), "").await?;
        assert_eq!(answer.status, 200, "{answer}");
        Some(serde_json::from_slice(&answer.body).expect("a page is JSON"))
    }

    /// Follows the feed from behind an event, if the server is there.
    pub(crate) async fn try_events(&self, last: u64) -> Option<Events> {
        Events::open(&self.url, &self.authorization(), last).await
    }

    /// Follows the feed from behind an event.
    pub(crate) async fn events(&self, last: u64) -> Events {
        self.try_events(last).await.expect("the server is there")
    }
}

/// A token, made of the server's own keys.
pub(crate) fn token(server: &Server, feed: &str, scopes: Scopes, expires: Option<Time>) -> String {
    let keys = Keys::load(&server.data_dir()).expect("the server has keys");
    let feed = FeedName::parse(feed).expect("tests name feeds rightly");
    FeedTokens::derive(&keys, 0).mint(&Grant { feed, scopes, expires })
}

/// The version that a change was told.
pub(crate) fn version(answer: &Answer) -> u64 {
    let json: Value = serde_json::from_slice(&answer.body).expect("an answer is JSON");
    json["version"].as_u64().unwrap_or_else(|| panic!("no version: {answer}"))
}
