//! A user agent on a WebSocket, as a test drives it.

use std::collections::VecDeque;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use uuid::Uuid;

use super::Server;
use super::acker::Acker;
use super::sender::Sender;
use super::socket::{Closed, Socket};
use super::wait::write_until_blocked;

/// A user agent whose hello was answered.
pub(crate) struct Agent {
    socket: Socket,
    uaid: String,
    /// Notifications that arrived while the agent waited for another message.
    waiting: VecDeque<Notification>,
}

/// A channel that the agent registered.
#[derive(Debug, Clone)]
pub(crate) struct Channel {
    pub(crate) id: String,
    pub(crate) endpoint: String,
}

/// A notification that the agent received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notification {
    pub(crate) channel: String,
    pub(crate) version: String,
    pub(crate) body: Option<String>,
    pub(crate) headers: Value,
}

/// The server closed the connection.
#[derive(Debug)]
pub(crate) struct Disconnected;

impl Server {
    /// Starts a server with these arguments, and connects a new agent.
    pub(crate) async fn with_agent(arguments: &[&str]) -> (Self, Agent) {
        let server = Self::start_with(arguments);
        let agent = Agent::new(&server).await;
        (server, agent)
    }

    /// As [`with_agent`](Self::with_agent), for [`Agent::subscribed`].
    pub(crate) async fn with_subscribed(arguments: &[&str]) -> (Self, Agent, Channel) {
        let (server, mut agent) = Self::with_agent(arguments).await;
        let channel = agent.register().await;
        (server, agent, channel)
    }

    /// As [`with_agent`](Self::with_agent), for [`Agent::offline`].
    pub(crate) async fn with_offline(arguments: &[&str]) -> (Self, String, Channel) {
        let (server, agent, channel) = Self::with_subscribed(arguments).await;
        (server, agent.leave().await, channel)
    }
}

impl Agent {
    /// Connects a new agent.
    pub(crate) async fn new(server: &Server) -> Self {
        Self::try_new(server).await.expect("the server answers the hello")
    }

    /// Connects a new agent, or fails if the server is down.
    pub(crate) async fn try_new(server: &Server) -> Result<Self, Disconnected> {
        let socket = Socket::try_open(server).await.map_err(|_| Disconnected)?;
        Self::hello(socket, None).await
    }

    /// Reconnects an agent whose uaid the server must know.
    pub(crate) async fn reconnect(server: &Server, uaid: &str) -> Self {
        let socket = Socket::open(server).await;
        let agent = Self::hello(socket, Some(uaid)).await.expect("the server answers the hello");
        assert_eq!(agent.uaid, uaid, "the server forgot the agent");
        agent
    }

    /// Connects a new agent and registers a channel.
    pub(crate) async fn subscribed(server: &Server) -> (Self, Channel) {
        let mut agent = Self::new(server).await;
        let channel = agent.register().await;
        (agent, channel)
    }

    /// Registers a channel with a new agent and disconnects it. Returns its uaid and the channel.
    pub(crate) async fn offline(server: &Server) -> (String, Channel) {
        let (agent, channel) = Self::subscribed(server).await;
        (agent.leave().await, channel)
    }

    /// Like [`offline`](Self::offline), with a message that waits.
    pub(crate) async fn offline_with(server: &Server, body: &str) -> (String, Channel) {
        let (uaid, channel) = Self::offline(server).await;
        Sender::new().push(&channel.endpoint, body).await;
        (uaid, channel)
    }

    /// Reconnects an agent, and takes the only message that waits for it.
    pub(crate) async fn returned_to(server: &Server, uaid: &str, body: &str) -> Self {
        let mut agent = Self::reconnect(server, uaid).await;
        assert_eq!(agent.take(1).await[0].body(), body);
        agent
    }

    /// Connects with a uaid that the server need not know. Returns the one that it answers.
    pub(crate) async fn uaid_for(server: &Server, uaid: &str) -> String {
        let agent = Self::hello(Socket::open(server).await, Some(uaid)).await;
        agent.expect("the server answers the hello").uaid
    }

    /// Sends hello and waits for the answer.
    pub(crate) async fn hello(
        mut socket: Socket,
        uaid: Option<&str>,
    ) -> Result<Self, Disconnected> {
        let hello = json!({"messageType": "hello", "uaid": uaid, "use_webpush": true});
        socket.send_json(&hello).await;
        let answer = socket.receive().await?;
        assert_eq!((&answer["messageType"], &answer["status"]), (&json!("hello"), &json!(200)));
        let uaid = text(&answer["uaid"]);
        Ok(Self { socket, uaid, waiting: VecDeque::new() })
    }

    pub(crate) fn uaid(&self) -> &str {
        &self.uaid
    }

    pub(crate) async fn register(&mut self) -> Channel {
        self.try_register(None).await.expect("the server registers a channel")
    }

    /// Registers a channel that is restricted to a VAPID key.
    pub(crate) async fn register_for(&mut self, key: &str) -> Channel {
        self.try_register(Some(key)).await.expect("the server registers a channel")
    }

    /// Registers a channel, or fails if the server closed the connection.
    pub(crate) async fn try_register(
        &mut self,
        key: Option<&str>,
    ) -> Result<Channel, Disconnected> {
        let id = Uuid::new_v4().to_string();
        let mut register = json!({"messageType": "register", "channelID": id});
        if let Some(key) = key {
            register["key"] = key.into();
        }
        let answer = self.request(&register).await?;
        let granted = (answer["messageType"] == "register", &answer["status"]);
        assert_eq!(granted, (true, &json!(200)), "{answer}");
        assert_eq!(answer["channelID"], *id);
        Ok(Channel { id, endpoint: text(&answer["pushEndpoint"]) })
    }

    pub(crate) async fn unregister(&mut self, channel: &Channel) {
        let unregister = json!({"messageType": "unregister", "channelID": channel.id});
        let answer = self.request(&unregister).await.expect("the server is there");
        let expected = json!({"messageType": "unregister", "channelID": channel.id, "status": 200});
        assert_eq!(answer, expected);
    }

    /// Sends a message and returns the answer; notifications that precede it are kept.
    pub(crate) async fn request(&mut self, json: &Value) -> Result<Value, Disconnected> {
        self.socket.send_json(json).await;
        loop {
            let message = self.socket.receive().await?;
            match Notification::read(&message) {
                Some(notification) => self.waiting.push_back(notification),
                None => return Ok(message),
            }
        }
    }

    /// Sends a message of an unknown type, which has no effect, and waits for its answer: the server has then read all
    /// earlier messages. A ping is not answered each time.
    pub(crate) async fn sync(&mut self) {
        let mark = json!({"messageType": "a mark"});
        let answer = self.request(&mark).await.expect("the server is there");
        assert_eq!(answer["messageType"], "a mark", "{answer}");
    }

    /// Waits for the next notification, at most [`AT_ONCE`](super::AT_ONCE).
    pub(crate) async fn notification(&mut self) -> Notification {
        self.try_notification().await.expect("the server is there")
    }

    /// Like [`notification`](Self::notification), or fails if the server closed the connection.
    pub(crate) async fn try_notification(&mut self) -> Result<Notification, Disconnected> {
        if let Some(notification) = self.waiting.pop_front() {
            return Ok(notification);
        }
        let message = self.socket.receive().await?;
        Ok(Notification::read(&message).unwrap_or_else(|| panic!("no notification: {message}")))
    }

    /// The next notification, without a time limit; `None` if the server closed the connection.
    pub(super) async fn next_untimed(&mut self) -> Option<Notification> {
        if let Some(notification) = self.waiting.pop_front() {
            return Some(notification);
        }
        let message = self.socket.receive_untimed().await.ok()?;
        Some(Notification::read(&message).unwrap_or_else(|| panic!("no notification: {message}")))
    }

    /// All notifications that the server sent before it answered a mark.
    pub(crate) async fn pending_notifications(&mut self) -> Vec<Notification> {
        self.sync().await;
        self.waiting.drain(..).collect()
    }

    pub(crate) async fn ack(&mut self, notification: &Notification) {
        self.socket.send_json(&ack(std::slice::from_ref(notification))).await;
    }

    /// Acknowledges several notifications in one message.
    pub(crate) async fn ack_all(&mut self, notifications: &[Notification]) {
        self.socket.send_json(&ack(notifications)).await;
    }

    /// Receives the next `count` notifications and acknowledges each on arrival.
    pub(crate) async fn take(&mut self, count: usize) -> Vec<Notification> {
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            let notification = self.notification().await;
            self.ack(&notification).await;
            taken.push(notification);
        }
        taken
    }

    /// Acknowledges every further notification in a background task.
    pub(crate) fn ack_in_background(self) -> Acker {
        Acker::start(self)
    }

    /// Sends a close frame and waits for the answer, after which the agent is offline for the
    /// server. Returns the uaid.
    pub(crate) async fn leave(mut self) -> String {
        // Fails if the server closed the connection already.
        let _ = self.socket.send(Message::Close(None)).await;
        self.socket.closed().await;
        self.uaid
    }

    /// Sends messages without reading the answers until the server stops reading as well: its side
    /// of the connection is then blocked.
    pub(crate) async fn block_server(&mut self) {
        // The answer has about as many bytes; the mask of a frame may be zero.
        let text = json!({"messageType": "x".repeat(64)}).to_string();
        let mut frame = vec![0x81, 0x80 | text.len() as u8, 0, 0, 0, 0];
        frame.extend_from_slice(text.as_bytes());
        write_until_blocked(&mut *self.socket.stream(), &frame.repeat(1000)).await;
    }

    /// Waits for the end of the TCP connection, which must follow the close frame soon.
    pub(crate) async fn ended(self) {
        self.socket.ended().await;
    }

    /// The socket, for tests that violate the protocol.
    pub(crate) fn socket(&mut self) -> &mut Socket {
        &mut self.socket
    }
}

impl Channel {
    /// The endpoint's path, without the server's origin.
    pub(crate) fn path(&self, server: &Server) -> String {
        self.endpoint.strip_prefix(&server.origin()).expect("endpoints are ours").to_owned()
    }
}

impl Notification {
    /// Parses a message; `None` if it is not a notification.
    pub(crate) fn read(json: &Value) -> Option<Self> {
        (json["messageType"] == "notification").then(|| Self {
            channel: text(&json["channelID"]),
            version: text(&json["version"]),
            body: json["data"].as_str().map(decode),
            headers: json["headers"].clone(),
        })
    }

    /// The decrypted text; panics if the notification has no payload.
    pub(crate) fn body(&self) -> &str {
        self.body.as_deref().expect("the push has a body")
    }
}

impl From<Closed> for Disconnected {
    fn from(_: Closed) -> Self {
        Self
    }
}

pub(crate) fn ack(notifications: &[Notification]) -> Value {
    let update = |notification: &Notification| {
        json!({
            "channelID": notification.channel, "version": notification.version, "code": 100,
        })
    };
    let updates: Vec<_> = notifications.iter().map(update).collect();
    json!({"messageType": "ack", "updates": updates})
}

fn decode(data: &str) -> String {
    let bytes = URL_SAFE_NO_PAD.decode(data).expect("data is base64url without padding");
    String::from_utf8(bytes).expect("tests send text")
}

fn text(json: &Value) -> String {
    json.as_str().unwrap_or_else(|| panic!("no text: {json}")).to_owned()
}
