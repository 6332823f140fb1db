//! A reader of server-sent events (WHATWG HTML §9.2.6).

use std::pin::Pin;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http_body_util::BodyExt;

use super::Update;
use crate::harness::{AT_ONCE, HttpClient, within};

/// An open event stream.
pub(crate) struct Events {
    body: Pin<Box<dyn Stream<Item = Result<Bytes, hyper::Error>>>>,
    unread: Vec<u8>,
}

/// One event of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// The cursor from which a reader continues.
    pub(crate) id: u64,
    /// `None` if only the cursor moved.
    pub(crate) update: Option<Update>,
}

impl Events {
    /// Opens a stream; `None` if the server is down.
    pub(crate) async fn open(url: &str, authorization: &str, last: u64) -> Option<Self> {
        let (client, last) = (HttpClient::new(), last.to_string());
        let headers = [("last-event-id", last.as_str()), ("authorization", authorization)];
        let response = client.events(url, &headers);
        let response = within(AT_ONCE, "a stream begins", response).await.ok()?;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers().get("content-type").expect("a type"), "text/event-stream");
        Some(Self { body: Box::pin(response.into_body().into_data_stream()), unread: Vec::new() })
    }

    /// Waits for the next event, at most [`AT_ONCE`]; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        within(AT_ONCE, "an event arrives", self.next_untimed()).await
    }

    /// Like [`next`](Self::next), without a time limit.
    pub(crate) async fn next_untimed(&mut self) -> Option<Event> {
        loop {
            while let Some(block) = self.block() {
                if let Some(event) = read(&block) {
                    return Some(event);
                }
            }
            let bytes = self.body.next().await?.ok()?;
            self.unread.extend_from_slice(&bytes);
        }
    }

    /// Removes the lines up to the next empty one.
    fn block(&mut self) -> Option<String> {
        let end = self.unread.windows(2).position(|two| two == b"\n\n")?;
        let block = self.unread.drain(..end + 2).collect();
        Some(String::from_utf8(block).expect("streams are UTF-8"))
    }
}

/// Parses an event; `None` if the lines are a comment.
fn read(block: &str) -> Option<Event> {
    let field = |name: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.strip_prefix(": "))
    };
    let id = field("id")?.parse().expect("an id is a number");
    let update: Option<Update> =
        field("data").map(|data| serde_json::from_str(data).expect("data is JSON"));
    if let Some(update) = &update {
        let kind = if update.deleted { "delete" } else { "update" };
        assert_eq!((field("event"), update.feed_sync_id), (Some(kind), id), "{block}");
    }
    Some(Event { id, update })
}
