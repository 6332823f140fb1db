//! A sender that asks for receipts, and reads them.

use std::pin::Pin;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::harness::{AT_ONCE, Agent, Answer, Channel, HttpClient, Notification, Sender, within};

/// A push that was answered 202.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) location: String,
    /// The URL of the receipt subscription.
    pub(crate) receipts: String,
}

/// A receipt as JSON: a line of a page, and the data of an event.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Receipt {
    pub(crate) id: u64,
    pub(crate) message: String,
    pub(crate) status: String,
    pub(crate) code: Option<u16>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    receipts: Vec<Receipt>,
    cursor: u64,
    head: u64,
}

/// A reader of a receipt subscription.
pub(crate) struct Receipts {
    sender: Sender,
    url: String,
    pub(crate) cursor: u64,
}

/// An open event stream.
pub(crate) struct ReceiptEvents {
    body: Pin<Box<dyn Stream<Item = Result<Bytes, hyper::Error>>>>,
    unread: Vec<u8>,
}

impl Sent {
    /// What a 202 says.
    pub(crate) fn of(answer: &Answer) -> Self {
        assert_eq!(answer.status, 202, "{answer}");
        let link = answer.header("link").expect("a 202 has a Link");
        let end = ">; rel=\"urn:ietf:params:push:receipt\"";
        let url = link.strip_prefix('<').and_then(|link| link.strip_suffix(end));
        let location = answer.header("location").expect("a 202 has a Location").to_owned();
        assert!(answer.header("ttl").is_some(), "{answer}");
        Self { location, receipts: url.unwrap_or_else(|| panic!("{link}")).to_owned() }
    }
}

/// Pushes a text with a TTL of an hour and the wish for a receipt, in this subscription if there is one.
pub(crate) async fn send(channel: &Channel, body: &str, receipts: Option<&str>) -> Sent {
    let sender = Sender::new();
    let post = sender.post(&channel.endpoint).ttl(3600).header("prefer", "respond-async");
    let post = match receipts {
        Some(url) => post.header("link", &link(url)),
        None => post,
    };
    Sent::of(&post.body(body).send().await)
}

/// The `Link` header of a subscription.
pub(crate) fn link(url: &str) -> String {
    format!("<{url}>; rel=\"urn:ietf:params:push:receipt\"")
}

/// Acks a notification with a code.
pub(crate) async fn acked(agent: &mut Agent, got: &Notification, code: u16) {
    let update = json!({"channelID": got.channel, "version": got.version, "code": code});
    let ack: Value = json!({"messageType": "ack", "updates": [update]});
    agent.socket().send_json(&ack).await;
}

impl Receipts {
    pub(crate) fn at(url: &str) -> Self {
        Self { sender: Sender::new(), url: url.to_owned(), cursor: 0 }
    }

    /// All receipts behind the cursor; waits up to a minute for the first.
    pub(crate) async fn next(&mut self) -> Vec<Receipt> {
        self.read("&wait=60").await
    }

    /// All receipts behind the cursor that there are.
    pub(crate) async fn there_are(&mut self) -> Vec<Receipt> {
        self.read("").await
    }

    async fn read(&mut self, wait: &str) -> Vec<Receipt> {
        let answer = self.sender.get(&format!("{}?after={}{wait}", self.url, self.cursor)).await;
        assert_eq!(answer.status, 200, "{answer}");
        let page: Page = serde_json::from_slice(&answer.body).expect("a page is JSON");
        assert!(page.cursor <= page.head, "{answer}");
        self.cursor = page.cursor;
        page.receipts
    }

    /// Opens the event stream behind the cursor.
    pub(crate) async fn events(&self) -> ReceiptEvents {
        let (client, cursor) = (HttpClient::new(), self.cursor.to_string());
        let headers = [("last-event-id", cursor.as_str())];
        let response = within(AT_ONCE, "a stream begins", client.events(&self.url, &headers)).await;
        let response = response.expect("the server is there");
        assert_eq!(response.status(), 200);
        let kind = response.headers().get("content-type").expect("a stream has a type");
        assert_eq!(kind, "text/event-stream");
        ReceiptEvents {
            body: Box::pin(response.into_body().into_data_stream()),
            unread: Vec::new(),
        }
    }
}

impl ReceiptEvents {
    /// Waits for the next receipt.
    pub(crate) async fn next(&mut self) -> Receipt {
        within(AT_ONCE, "a receipt arrives", async {
            loop {
                while let Some(block) = self.block() {
                    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
                    let Some(data) = field("data: ") else { continue };
                    let receipt: Receipt = serde_json::from_str(data).expect("data is JSON");
                    assert_eq!(field("event: "), Some(receipt.status.as_str()), "{block}");
                    assert_eq!(field("id: "), Some(receipt.id.to_string().as_str()), "{block}");
                    return receipt;
                }
                let bytes = self.body.next().await.expect("the stream goes on");
                let bytes = bytes.expect("the server is there");
                self.unread.extend_from_slice(&bytes);
            }
        })
        .await
    }

    /// Removes the lines up to the next empty one.
    fn block(&mut self) -> Option<String> {
        let end = self.unread.windows(2).position(|two| two == b"\n\n")?;
        let block = self.unread.drain(..end + 2).collect();
        Some(String::from_utf8(block).expect("streams are UTF-8"))
    }
}

impl Receipt {
    /// Message, status and code.
    pub(crate) fn state(&self) -> (&str, &str, Option<u16>) {
        (&self.message, &self.status, self.code)
    }
}
