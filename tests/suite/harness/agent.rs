//! A user agent.

use std::collections::VecDeque;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use uuid::Uuid;

use super::Server;
use super::acker::Acker;
use super::socket::{Closed, Socket};

/// A server that reads nothing for so long does not read.
const CLOGGED_AFTER: Duration = Duration::from_secs(1);

/// More than the system holds of a connection between two processes.
const CLOG_BYTES_MAX: usize = 100_000_000;

/// A user agent that said hello.
pub(crate) struct Agent {
    socket: Socket,
    uaid: String,
    /// Came while something else was waited for.
    waiting: VecDeque<Notification>,
}

/// A channel it registered.
#[derive(Debug, Clone)]
pub(crate) struct Channel {
    pub(crate) id: String,
    pub(crate) endpoint: String,
}

/// A push it got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notification {
    pub(crate) channel: String,
    pub(crate) version: String,
    pub(crate) body: Option<String>,
    pub(crate) headers: Value,
}

/// The server went away.
#[derive(Debug)]
pub(crate) struct Gone;

impl Agent {
    /// One that is new.
    pub(crate) async fn new(server: &Server) -> Self {
        Self::try_new(server).await.expect("the server says hello")
    }

    /// One that is new, if the server is there.
    pub(crate) async fn try_new(server: &Server) -> Result<Self, Gone> {
        let socket = Socket::try_open(server).await.map_err(|_| Gone)?;
        Self::greet(socket, None).await
    }

    /// One that was here before, and whose id the server must know.
    pub(crate) async fn back(server: &Server, uaid: &str) -> Self {
        let socket = Socket::open(server).await;
        let agent = Self::greet(socket, Some(uaid)).await.expect("the server says hello");
        assert_eq!(agent.uaid, uaid, "the server forgot the agent");
        agent
    }

    /// One that registered a channel and left: its id and the channel.
    pub(crate) async fn absent(server: &Server) -> (String, Channel) {
        let mut agent = Self::new(server).await;
        let channel = agent.register().await;
        (agent.leave().await, channel)
    }

    /// Says hello and hears it.
    pub(crate) async fn greet(mut socket: Socket, uaid: Option<&str>) -> Result<Self, Gone> {
        let hello = json!({"messageType": "hello", "uaid": uaid, "use_webpush": true});
        socket.say(&hello).await;
        let answer = socket.hear().await?;
        assert_eq!((&answer["messageType"], &answer["status"]), (&json!("hello"), &json!(200)));
        let uaid = text(&answer["uaid"]);
        Ok(Self { socket, uaid, waiting: VecDeque::new() })
    }

    /// Its id.
    pub(crate) fn uaid(&self) -> &str {
        &self.uaid
    }

    /// Subscribes.
    pub(crate) async fn register(&mut self) -> Channel {
        self.try_register(None).await.expect("the server registers a channel")
    }

    /// Subscribes for the owner of a VAPID key only.
    pub(crate) async fn register_for(&mut self, key: &str) -> Channel {
        self.try_register(Some(key)).await.expect("the server registers a channel")
    }

    /// Subscribes, if the server is there.
    pub(crate) async fn try_register(&mut self, key: Option<&str>) -> Result<Channel, Gone> {
        let id = Uuid::new_v4().to_string();
        let mut register = json!({"messageType": "register", "channelID": id});
        if let Some(key) = key {
            register["key"] = key.into();
        }
        let answer = self.ask(&register).await?;
        let granted = (answer["messageType"] == "register", &answer["status"]);
        assert_eq!(granted, (true, &json!(200)), "{answer}");
        assert_eq!(answer["channelID"], *id);
        Ok(Channel { id, endpoint: text(&answer["pushEndpoint"]) })
    }

    /// Gives a channel up.
    pub(crate) async fn unregister(&mut self, channel: &Channel) {
        let unregister = json!({"messageType": "unregister", "channelID": channel.id});
        let answer = self.ask(&unregister).await.expect("the server is there");
        let expected = json!({"messageType": "unregister", "channelID": channel.id, "status": 200});
        assert_eq!(answer, expected);
    }

    /// Says something and gives the answer; notifications that come before it are kept.
    pub(crate) async fn ask(&mut self, json: &Value) -> Result<Value, Gone> {
        self.socket.say(json).await;
        loop {
            let heard = self.socket.hear().await?;
            match Notification::read(&heard) {
                Some(notification) => self.waiting.push_back(notification),
                None => return Ok(heard),
            }
        }
    }

    /// Asks for a sign of life. After it, the server has read everything that was said before.
    pub(crate) async fn ping(&mut self) {
        let answer = self.ask(&json!({})).await.expect("the server is there");
        assert_eq!(answer, json!({}));
    }

    /// The next push.
    pub(crate) async fn notification(&mut self) -> Notification {
        self.try_notification().await.expect("the server is there")
    }

    /// The next push, if the server is there.
    pub(crate) async fn try_notification(&mut self) -> Result<Notification, Gone> {
        if let Some(notification) = self.waiting.pop_front() {
            return Ok(notification);
        }
        let heard = self.socket.hear().await?;
        Ok(Notification::read(&heard).unwrap_or_else(|| panic!("no notification: {heard}")))
    }

    /// The next push, however long it takes; none when the server went away.
    pub(super) async fn next_ever(&mut self) -> Option<Notification> {
        if let Some(notification) = self.waiting.pop_front() {
            return Some(notification);
        }
        let heard = self.socket.hear_ever().await.ok()?;
        Some(Notification::read(&heard).unwrap_or_else(|| panic!("no notification: {heard}")))
    }

    /// The pushes that came so far and were not taken.
    pub(crate) async fn notifications_so_far(&mut self) -> Vec<Notification> {
        self.ping().await;
        self.waiting.drain(..).collect()
    }

    /// Acknowledges a push.
    pub(crate) async fn ack(&mut self, notification: &Notification) {
        self.socket.say(&ack(std::slice::from_ref(notification))).await;
    }

    /// Acknowledges pushes in one message.
    pub(crate) async fn ack_all(&mut self, notifications: &[Notification]) {
        self.socket.say(&ack(notifications)).await;
    }

    /// The next `count` pushes, each acknowledged when it comes.
    pub(crate) async fn take(&mut self, count: usize) -> Vec<Notification> {
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            let notification = self.notification().await;
            self.ack(&notification).await;
            taken.push(notification);
        }
        taken
    }

    /// Acknowledges whatever comes from now on.
    pub(crate) fn keep_acking(self) -> Acker {
        Acker::start(self)
    }

    /// Says goodbye and hears it, by when the server counts it as absent; gives its id.
    pub(crate) async fn leave(mut self) -> String {
        // Where the server is gone already there is nobody to tell.
        let _ = self.socket.send(Message::Close(None)).await;
        self.socket.closed().await;
        self.uaid
    }

    /// Talks, and does not read the answers, until the server does not read any more either: its
    /// end of this connection stands still from then on.
    pub(crate) async fn clog(&mut self) {
        // It is answered with about as many bytes; the mask of a frame may be zero.
        let text = json!({"messageType": "x".repeat(64)}).to_string();
        let mut frame = vec![0x81, 0x80 | text.len() as u8, 0, 0, 0, 0];
        frame.extend_from_slice(text.as_bytes());
        let frames = frame.repeat(1000);
        let stream = self.socket.stream();
        let mut written = 0;
        while timeout(CLOGGED_AFTER, stream.write_all(&frames)).await.is_ok() {
            written += frames.len();
            assert!(written < CLOG_BYTES_MAX, "the server reads and reads");
        }
    }

    /// Waits for the end of the TCP connection, which must follow the close frame soon.
    pub(crate) async fn ended(self) {
        self.socket.ended().await;
    }

    /// Its socket, to misbehave on.
    pub(crate) fn socket(&mut self) -> &mut Socket {
        &mut self.socket
    }
}

impl Channel {
    /// Its endpoint without the server's origin.
    pub(crate) fn path(&self, server: &Server) -> String {
        self.endpoint.strip_prefix(&server.origin()).expect("endpoints are ours").to_owned()
    }
}

impl Notification {
    /// A push, if this is one.
    pub(crate) fn read(json: &Value) -> Option<Self> {
        (json["messageType"] == "notification").then(|| Self {
            channel: text(&json["channelID"]),
            version: text(&json["version"]),
            body: json["data"].as_str().map(decode),
            headers: json["headers"].clone(),
        })
    }

    /// Its body, which it must have.
    pub(crate) fn body(&self) -> &str {
        self.body.as_deref().expect("the push has a body")
    }
}

impl From<Closed> for Gone {
    fn from(_: Closed) -> Self {
        Self
    }
}

/// What acknowledges pushes.
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
