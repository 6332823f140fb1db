//! A program that uses one feed.

use awc::http::Method;
use kalends::http::feeds::tokens::{FeedTokens, Grant, Scopes};
use kalends::keys::Keys;
use serde::Deserialize;
use serde_json::Value;
use state_machine::Time;
use state_machine::feed::FeedName;

use super::events::Events;
use crate::harness::{Answer, Sender, Server};

/// It has connections and a token of its own.
pub(super) struct Desk {
    sender: Sender,
    url: String,
    token: String,
}

/// What is read at once.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    pub(super) updates: Vec<Update>,
    pub(super) cursor: u64,
    pub(super) head: u64,
}

/// An update.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Update {
    pub(super) feed_sync_id: u64,
    pub(super) key: String,
    pub(super) version: u64,
    pub(super) value: Option<String>,
    #[serde(default)]
    pub(super) deleted: bool,
}

impl Desk {
    /// One that may read and write a feed.
    pub(super) fn at(server: &Server, feed: &str) -> Self {
        Self::with(server, feed, token(server, feed, Scopes::Both, None))
    }

    /// One with some token or other.
    pub(super) fn with(server: &Server, feed: &str, token: String) -> Self {
        let url = format!("{}/v1/feeds/{feed}", server.origin());
        Self { sender: Sender::new(), url, token }
    }

    /// Its token, as a header has it.
    pub(super) fn authorization(&self) -> String {
        format!("Bearer {}", self.token)
    }

    /// Asks something; the path begins behind the feed's name.
    pub(super) async fn ask(&self, method: Method, path: &str, body: &str) -> Answer {
        self.try_ask(method, path, body).await.expect("the server is there")
    }

    /// Asks something, if the server is there.
    pub(super) async fn try_ask(&self, method: Method, path: &str, body: &str) -> Option<Answer> {
        let request = self.sender.request(method, &format!("{}{path}", self.url));
        let request = request.header("authorization", &self.authorization());
        request.raw_body(body).try_send().await.ok()
    }

    /// Reads, whatever comes of it.
    pub(super) async fn get(&self, query: &str) -> Answer {
        self.ask(Method::GET, query, "").await
    }

    /// Sets a key; the version that this made.
    pub(super) async fn put(&self, key: &str, value: &str) -> u64 {
        self.try_put(key, value).await.expect("the server is there")
    }

    /// Sets a key, if the server is there.
    pub(super) async fn try_put(&self, key: &str, value: &str) -> Option<u64> {
        let answer = self.try_ask(Method::PUT, &format!("/{key}"), value).await?;
        let version = version(&answer);
        assert_eq!(answer.status, if version == 1 { 201 } else { 200 }, "{answer}");
        Some(version)
    }

    /// Reads a page.
    pub(super) async fn page(&self, query: &str) -> Page {
        self.try_page(query).await.expect("the server is there")
    }

    /// Reads a page, if the server is there.
    pub(super) async fn try_page(&self, query: &str) -> Option<Page> {
        let answer = self.try_ask(Method::GET, &format!("?{query}"), "").await?;
        assert_eq!(answer.status, 200, "{answer}");
        Some(serde_json::from_slice(&answer.body).expect("a page is JSON"))
    }

    /// Follows the feed from behind an event, if the server is there.
    pub(super) async fn try_events(&self, last: u64) -> Option<Events> {
        Events::open(&self.url, &self.authorization(), last).await
    }

    /// Follows the feed from behind an event.
    pub(super) async fn events(&self, last: u64) -> Events {
        self.try_events(last).await.expect("the server is there")
    }
}

/// A token, made of the server's own keys.
pub(super) fn token(server: &Server, feed: &str, scopes: Scopes, expires: Option<Time>) -> String {
    let keys = Keys::load(&server.data_dir()).expect("the server has keys");
    let feed = FeedName::parse(feed).expect("tests name feeds rightly");
    FeedTokens::derive(&keys, 0).mint(&Grant { feed, scopes, expires })
}

/// The version that a change was told.
pub(super) fn version(answer: &Answer) -> u64 {
    let json: Value = serde_json::from_slice(&answer.body).expect("an answer is JSON");
    json["version"].as_u64().unwrap_or_else(|| panic!("no version: {answer}"))
}
