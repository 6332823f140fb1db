//! A service for the tests of this folder.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use actix_web::body::{BoxBody, MessageBody, to_bytes};
use actix_web::http::Method;
use actix_web::test::TestRequest;
use actix_web::web::{Data, Payload};
use actix_web::{FromRequest, HttpResponse, ResponseError};
use actors::{Clock, FeedLimits, Feeds};
use serde_json::Value;
use slog::{Discard, Logger, o};
use state_machine::feed::{ConsumerLimits, FeedName, PublisherLimits};
use state_machine::store::PageLimit;
use state_machine::{Span, Time};
use storage_sqlite::{Embedded, EmbeddedOptions};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::serve;
use super::service::{FeedRequestLimits, FeedService};
use super::tokens::{FeedTokens, Grant, Scopes};
use crate::settings::keys::Keys;

/// What the clock shows at first.
pub(super) const NOW: Time = Time(1_796_000_000_000);

/// Large pages that may be on their way.
pub(super) const PAGES: usize = 2;

/// A service over a store of its own.
pub(super) struct Scene {
    pub(super) service: Data<FeedService>,
    _folder: TempDir,
}

/// An answer with its body.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) status: u16,
    pub(super) json: Value,
}

/// A body that is sent in parts.
pub(super) struct Stream(Pin<Box<BoxBody>>);

impl Scene {
    /// An empty one. The publisher runs on the caller's thread.
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Embedded::open(folder.path(), &EmbeddedOptions::new(4096)).unwrap();
        let (clock, log) = (Clock::starting_at(NOW), Logger::root(Discard, o!()));
        let service = FeedService {
            feeds: Feeds::start(Arc::new(store), clock.clone(), feed_limits(), log.clone()),
            tokens: FeedTokens::derive(&keys(), 0),
            limits: limits(),
            pages: Arc::new(Semaphore::new(PAGES)),
            clock,
            log,
        };
        Self { service: Data::new(service), _folder: folder }
    }

    /// One whose feed `x` has published the value 1 of the key `a`.
    pub(super) async fn with_a() -> Self {
        let scene = Self::new();
        scene.put("a", "1").await;
        scene.page("wait=10").await;
        scene
    }

    /// What a holder of such a token sends.
    pub(super) fn token(&self, feed: &str, scopes: Scopes, expires: Option<Time>) -> String {
        let grant = Grant { feed: FeedName::parse(feed).unwrap(), scopes, expires };
        format!("Bearer {}", self.service.tokens.mint(&grant))
    }

    /// A request with a token for both scopes of the feed `x`.
    pub(super) fn request(&self, method: Method, path: &str) -> TestRequest {
        let token = self.token("x", Scopes::Both, None);
        let request = TestRequest::with_uri(&format!("/v1/feeds/{path}")).method(method);
        request.insert_header(("authorization", token))
    }

    /// What it is answered, as a connection would be.
    pub(super) async fn respond(&self, request: TestRequest) -> HttpResponse {
        let (request, mut payload) = request.to_http_parts();
        let payload = Payload::from_request(&request, &mut payload).into_inner().unwrap();
        let answer = serve(&request, payload, &self.service).await;
        answer.unwrap_or_else(|error| error.error_response())
    }

    /// The same with the whole body.
    pub(super) async fn ask(&self, request: TestRequest) -> Told {
        let response = self.respond(request).await;
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body()).await.unwrap();
        Told { status, json: serde_json::from_slice(&body).unwrap() }
    }

    /// Sets a key of `x`; its status and version.
    pub(super) async fn put(&self, key: &str, value: &str) -> (u16, u64) {
        let request = self.request(Method::PUT, &format!("x/{key}"));
        let told = self.ask(request.set_payload(value.to_owned())).await;
        (told.status, told.json["version"].as_u64().unwrap())
    }

    /// Reads `x`; what must be a page.
    pub(super) async fn page(&self, query: &str) -> Value {
        let told = self.ask(self.request(Method::GET, &format!("x?{query}"))).await;
        assert_eq!(told.status, 200, "{told:?}");
        told.json
    }

    /// An event stream behind its first part, the time to reconnect.
    pub(super) async fn stream(&self, request: TestRequest) -> Stream {
        let response = self.respond(request.insert_header(("accept", "text/event-stream"))).await;
        assert_eq!(response.status(), 200);
        let mut stream = Stream(Box::pin(response.into_body()));
        assert_eq!(stream.next().await.as_deref(), Some("retry: 1000\n\n"));
        stream
    }
}

impl Stream {
    /// The next part; none at the end.
    pub(super) async fn next(&mut self) -> Option<String> {
        let part = poll_fn(|cx| self.0.as_mut().poll_next(cx)).await?;
        Some(String::from_utf8(part.unwrap().to_vec()).unwrap())
    }
}

fn keys() -> Keys {
    Keys::from_texts(&["AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="]).unwrap()
}

/// Limits that tests reach.
pub(super) fn limits() -> FeedRequestLimits {
    FeedRequestLimits {
        value_bytes_max: 100,
        page: page_limit(),
        wait_max: Duration::from_secs(60),
        keepalive: Duration::from_secs(15),
        body_timeout: Duration::from_secs(10),
    }
}

fn page_limit() -> PageLimit {
    PageLimit { rows: 10, bytes: 10_000 }
}

fn feed_limits() -> FeedLimits {
    FeedLimits {
        tombstones_keep: None,
        publisher: PublisherLimits { batch_max: 100, retry: Span(10), poll: Span(1000) },
        consumer: ConsumerLimits { page: page_limit(), retry: Span(10) },
        feeds_open_max: 100,
        keys_max: 12,
        followers_max: 2,
        sweep: Span::from_secs(60),
        mailbox_max: 100,
    }
}
