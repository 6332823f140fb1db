//! A user agent on the wire.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};
use uuid::Uuid;

/// A user agent that is connected.
pub(crate) struct Agent {
    socket: WebSocketStream<TcpStream>,
    /// Its id.
    pub(crate) uaid: String,
}

/// The node closed the connection; with which code, if it said one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Closed(pub(crate) Option<u16>);

/// The longest that an agent which was not let in waits before it tries again, in ms. A short one: all
/// come back at once, which is more than a node will see of real ones.
const RETURN_MS_MAX: u64 = 1000;

impl Agent {
    /// Connects as a new user agent.
    pub(crate) async fn new(node: SocketAddr) -> Self {
        Self::enter(node, None).await.0
    }

    /// Connects, however often it has to try; how often it was not let in.
    pub(crate) async fn enter(node: SocketAddr, uaid: Option<&str>) -> (Self, usize) {
        let mut refused = 0;
        loop {
            if let Some(agent) = Self::try_enter(node, uaid).await {
                return (agent, refused);
            }
            refused += 1;
            wait_a_little().await;
        }
    }

    async fn try_enter(node: SocketAddr, uaid: Option<&str>) -> Option<Self> {
        let stream = TcpStream::connect(node).await.ok()?;
        stream.set_nodelay(true).ok()?;
        let (socket, _) = client_async(format!("ws://{node}/"), stream).await.ok()?;
        let mut agent = Self { socket, uaid: String::new() };
        agent.say(&json!({"messageType": "hello", "uaid": uaid, "use_webpush": true})).await;
        agent.uaid = text(&agent.hear().await.ok()?["uaid"]);
        Some(agent)
    }

    /// Subscribes; the endpoint. To be asked before there is one that somebody pushes to.
    pub(crate) async fn register(&mut self) -> String {
        let channel = Uuid::new_v4().to_string();
        self.say(&json!({"messageType": "register", "channelID": channel})).await;
        text(&self.hear().await.expect("the node is there")["pushEndpoint"])
    }

    /// What the node says next.
    pub(crate) async fn hear(&mut self) -> Result<Value, Closed> {
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => {
                    return Ok(serde_json::from_str(&text).expect("the node says JSON"));
                }
                Some(Ok(Message::Close(frame))) => {
                    return Err(Closed(frame.map(|frame| frame.code.into())));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(Closed(None)),
            }
        }
    }

    /// Acknowledges a notification.
    pub(crate) async fn ack(&mut self, notification: &Value) {
        let (channel, version) = (&notification["channelID"], &notification["version"]);
        let update = json!({"channelID": channel, "version": version, "code": 100});
        self.say(&json!({"messageType": "ack", "updates": [update]})).await;
    }

    /// Says goodbye.
    pub(crate) async fn leave(mut self) {
        // Where the node is gone already there is nobody to tell.
        let _ = self.socket.send(Message::Close(None)).await;
        while self.hear().await.is_ok() {}
    }

    /// Where the node is gone, the next [`hear`](Self::hear) will tell.
    async fn say(&mut self, json: &Value) {
        let _ = self.socket.send(Message::text(json.to_string())).await;
    }
}

/// The number that a message says, if this is one.
pub(crate) fn number_of(said: &Value) -> Option<usize> {
    let data = URL_SAFE_NO_PAD.decode(said["data"].as_str()?).expect("data is base64url");
    let body = String::from_utf8(data).expect("bodies are text");
    Some(body.trim().parse().expect("bodies are numbers"))
}

/// Waits for as long as it happens, so that agents that went together do not come together.
pub(crate) async fn wait_a_little() {
    sleep(Duration::from_millis(fastrand::u64(0..RETURN_MS_MAX))).await;
}

fn text(json: &Value) -> String {
    json.as_str().unwrap_or_else(|| panic!("no text: {json}")).to_owned()
}
