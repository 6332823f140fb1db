//! A user agent on a WebSocket.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use uuid::Uuid;

/// A connected user agent.
pub(crate) struct Agent {
    socket: WebSocketStream<TcpStream>,
    pub(crate) uaid: String,
}

/// The node closed the connection, with this code if its close frame has one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Closed(pub(crate) Option<u16>);

/// Each of thousands of agents has such a buffer.
const READ_BUFFER_BYTES: usize = 4096;

/// Maximum pause in ms before an agent that was rejected tries again. It is short: all agents
/// reconnect at once, which is more than a node will see in production.
const RETURN_MS_MAX: u64 = 1000;

impl Agent {
    /// Connects once; `None` if it was rejected.
    pub(crate) async fn try_enter(node: SocketAddr, uaid: Option<&str>) -> Option<Self> {
        Self::try_enter_through(node, uaid, None).await
    }

    /// Like [`try_enter`](Self::try_enter), by a proxy that forwards this address.
    pub(crate) async fn try_enter_through(
        node: SocketAddr,
        uaid: Option<&str>,
        forwarded: Option<HeaderValue>,
    ) -> Option<Self> {
        let stream = TcpStream::connect(node).await.ok()?;
        stream.set_nodelay(true).ok()?;
        let mut request = format!("ws://{node}/").into_client_request().ok()?;
        let subprotocol = HeaderValue::from_static("push-notification");
        request.headers_mut().insert("sec-websocket-protocol", subprotocol);
        if let Some(address) = forwarded {
            request.headers_mut().insert("x-forwarded-for", address);
        }
        let config = WebSocketConfig::default().read_buffer_size(READ_BUFFER_BYTES);
        let (socket, _) = client_async_with_config(request, stream, Some(config)).await.ok()?;
        let mut agent = Self { socket, uaid: String::new() };
        agent.send_json(&json!({"messageType": "hello", "uaid": uaid, "use_webpush": true})).await;
        agent.uaid = text(&agent.receive().await.ok()?["uaid"]);
        Some(agent)
    }

    /// Connects as a new user agent.
    pub(crate) async fn new(node: SocketAddr) -> Self {
        Self::enter(node, None).await.0
    }

    /// Connects until it succeeds, and returns the number of rejections.
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

    /// Like [`try_register`](Self::try_register), and it must not be refused.
    pub(crate) async fn register(&mut self) -> String {
        self.try_register().await.expect("the node is there")
    }

    /// A new agent with a channel, disconnected: its uaid and its endpoint.
    pub(crate) async fn offline(node: SocketAddr) -> (String, String) {
        let mut agent = Self::new(node).await;
        let (endpoint, uaid) = (agent.register().await, agent.uaid.clone());
        agent.leave().await;
        (uaid, endpoint)
    }

    /// Acks what arrives until the node closes the connection.
    pub(crate) async fn ack_all(mut self) {
        while let Ok(notification) = self.receive().await {
            self.ack(&notification).await;
        }
    }

    /// Registers a channel and returns its endpoint; `None` if it was refused. It must be called before the first push
    /// to the agent.
    pub(crate) async fn try_register(&mut self) -> Option<String> {
        let channel = Uuid::new_v4().to_string();
        self.send_json(&json!({"messageType": "register", "channelID": channel})).await;
        let answer = self.receive().await.ok()?;
        answer["pushEndpoint"].as_str().filter(|endpoint| !endpoint.is_empty()).map(str::to_owned)
    }

    /// Waits for the next message of the node.
    pub(crate) async fn receive(&mut self) -> Result<Value, Closed> {
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => {
                    return Ok(serde_json::from_str(&text).expect("the node sends JSON"));
                }
                Some(Ok(Message::Close(frame))) => {
                    return Err(Closed(frame.map(|frame| frame.code.into())));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(Closed(None)),
            }
        }
    }

    pub(crate) async fn ack(&mut self, notification: &Value) {
        let (channel, version) = (&notification["channelID"], &notification["version"]);
        let update = json!({"channelID": channel, "version": version, "code": 100});
        self.send_json(&json!({"messageType": "ack", "updates": [update]})).await;
    }

    pub(crate) async fn leave(mut self) {
        // Fails if the node is down.
        let _ = self.socket.send(Message::Close(None)).await;
        while self.receive().await.is_ok() {}
    }

    /// An error is ignored, because the next [`receive`](Self::receive) returns it.
    pub(crate) async fn send_json(&mut self, json: &Value) {
        let _ = self.socket.send(Message::text(json.to_string())).await;
    }
}

/// The number in the payload of a notification.
pub(crate) fn number_of(message: &Value) -> Option<usize> {
    let data = URL_SAFE_NO_PAD.decode(message["data"].as_str()?).expect("data is base64url");
    let body = String::from_utf8(data).expect("bodies are text");
    Some(body.trim().parse().expect("bodies are numbers"))
}

/// Waits for a random time, so that agents that were closed together do not reconnect together.
pub(crate) async fn wait_a_little() {
    sleep(Duration::from_millis(fastrand::u64(0..RETURN_MS_MAX))).await;
}

fn text(json: &Value) -> String {
    json.as_str().unwrap_or_else(|| panic!("no text: {json}")).to_owned()
}
