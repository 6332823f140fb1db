//! A device that runs a client program, with what the program keeps across its connections.

use serde_json::{Value, json};
use uuid::Uuid;

use super::program::{Keepalive, Program};
use crate::harness::{Channel, Closed, Notification, Post, Sender, Server, Signer, Socket};

/// A client program with its state: the uaid, the channels of its apps, and the acks it has not sent.
pub(super) struct Device {
    program: &'static Program,
    socket: Option<Socket>,
    uaid: Option<String>,
    channels: Vec<String>,
    /// Channels whose app was uninstalled: the program cannot deliver to it, so it acks nothing.
    uninstalled: Vec<String>,
    collected_acks: Vec<Value>,
}

/// An app on the device: its channel, and the key of its application server.
pub(super) struct App {
    pub(super) channel: Channel,
    signer: Option<Signer>,
}

impl Device {
    pub(super) fn new(program: &'static Program) -> Self {
        let (channels, uninstalled, collected_acks) = (Vec::new(), Vec::new(), Vec::new());
        Self { program, socket: None, uaid: None, channels, uninstalled, collected_acks }
    }

    /// A device that is connected, with an app.
    pub(super) async fn with_app(program: &'static Program, server: &Server) -> (Self, App) {
        let mut device = Self::new(program);
        device.connect(server).await;
        let app = device.install().await;
        (device, app)
    }

    /// Connects and says hello. The uaid must stay: most programs do not register their channels again.
    pub(super) async fn connect(&mut self, server: &Server) {
        let mut socket = Socket::open_with(server, self.program.headers).await;
        let hello = (self.program.hello)(self.uaid.as_deref(), &self.channels);
        socket.send_json(&hello).await;
        let answer = socket.receive().await.expect("hello is answered");
        let expected = json!({"messageType": "hello", "status": 200, "use_webpush": true,
            "urgency": true, "broadcasts": {}, "uaid": self.uaid.as_deref().map_or(answer["uaid"].clone(), Value::from)});
        assert_eq!(answer, expected, "{}", self.program.name);
        self.uaid = answer["uaid"].as_str().map(str::to_owned);
        self.socket = Some(socket);
    }

    /// Loses its network: the TCP connection ends without a close frame.
    pub(super) fn disconnect(&mut self) {
        self.socket = None;
    }

    /// Waits until the server ends the connection after which the program is to reconnect.
    pub(super) async fn closed_with(&mut self, code: u16) {
        let mut socket = self.socket.take().expect("the device is connected");
        assert_eq!(socket.closed().await, self.program.parting(code), "{}", self.program.name);
        socket.ended().await;
    }

    /// Breaks a rule of the protocol, whose close frame every program gets.
    pub(super) async fn violate(&mut self) {
        let mut socket = self.socket.take().expect("the device is connected");
        socket.send_json(&json!([])).await;
        assert_eq!(socket.closed().await, Closed(Some(1007)), "{}", self.program.name);
    }

    /// The same device on a second connection, which it opens while the server still has the first.
    pub(super) fn on_another_network(&self) -> Self {
        let (channels, uninstalled) = (self.channels.clone(), self.uninstalled.clone());
        let (socket, uaid, collected_acks) = (None, self.uaid.clone(), Vec::new());
        Self { program: self.program, socket, uaid, channels, uninstalled, collected_acks }
    }

    /// Installs an app, for which the program registers a channel.
    pub(super) async fn install(&mut self) -> App {
        let signer = self.program.requires_key.then(Signer::new);
        let id = Uuid::new_v4().to_string();
        let answer = self.register(&id, signer.as_ref()).await;
        let endpoint =
            answer["pushEndpoint"].as_str().expect("a registered channel has an endpoint");
        let endpoint = endpoint.to_owned();
        let expected = json!({"messageType": "register", "channelID": id, "status": 200,
            "pushEndpoint": endpoint});
        assert_eq!(answer, expected, "{}", self.program.name);
        self.channels.push(id.clone());
        App { channel: Channel { id, endpoint }, signer }
    }

    /// Sends a register and returns the answer.
    pub(super) async fn register(&mut self, id: &str, signer: Option<&Signer>) -> Value {
        let mut register = json!({"messageType": "register", "channelID": id});
        if let Some(signer) = signer {
            register["key"] = signer.key().into();
        }
        self.socket().send_json(&register).await;
        let answer = self.message().await;
        let has_endpoint = answer["pushEndpoint"].is_string();
        assert!(has_endpoint || !self.program.requires_endpoint, "it throws: {answer}");
        answer
    }

    /// Uninstalls an app without the program's knowledge, as a package manager does.
    pub(super) fn uninstall(&mut self, app: &App) {
        self.uninstalled.push(app.channel.id.clone());
    }

    /// Receives the next notification, and acks it in the way of the program.
    pub(super) async fn notification(&mut self) -> Notification {
        let message = self.message().await;
        let fields = ["channelID", "version"].map(|field| message[field].is_string());
        assert_eq!(fields, [true, true], "{message}");
        assert_eq!(message["data"].is_string(), message["headers"].is_object(), "{message}");
        let notification = Notification::read(&message).unwrap_or_else(|| panic!("{message}"));
        self.ack(&notification).await;
        notification
    }

    async fn ack(&mut self, notification: &Notification) {
        let acks = &self.program.acks;
        let is_acked = notification.body.is_some() || acks.covers_empty;
        if !is_acked || self.uninstalled.contains(&notification.channel) {
            return;
        }
        let Notification { channel, version, .. } = notification;
        let mut ack = json!({"channelID": channel, "version": version});
        if let Some(code) = acks.code {
            ack["code"] = code.into();
        }
        self.collected_acks.push(ack);
        if !acks.are_batched {
            self.send_collected_acks().await;
        }
    }

    /// Sends the acks that were collected, as autopush-manager does every 30 s.
    pub(super) async fn send_collected_acks(&mut self) {
        let updates = std::mem::take(&mut self.collected_acks);
        if !updates.is_empty() {
            self.socket().send_json(&json!({"messageType": "ack", "updates": updates})).await;
        }
    }

    /// Sends what keeps the connection open, and checks the answers.
    pub(super) async fn keep_alive(&mut self) {
        if self.program.keepalive != Keepalive::Answers {
            self.socket().ping(b"keepalive").await;
        }
        if self.program.keepalive == Keepalive::PingAndEmptyMessage {
            self.socket().send_json(&json!({})).await;
            let answer = self.socket().receive().await;
            assert_eq!(answer.expect("the server is there"), json!({}));
        }
    }

    /// Sends `{}` and answers every `{}` with one, until none arrives any more. Returns how many arrived.
    pub(super) async fn exchange_empty_messages(&mut self) -> usize {
        const ROUNDS_MAX: usize = 10;
        self.socket().send_json(&json!({})).await;
        for arrived in 0..ROUNDS_MAX {
            self.socket().send_json(&json!({"messageType": "a mark"})).await;
            let message = self.socket().receive().await.expect("the server is there");
            if message["messageType"] == "a mark" {
                return arrived;
            }
            assert_eq!(message, json!({}));
            self.socket().send_json(&json!({})).await;
            let mark = self.socket().receive().await.expect("the server is there");
            assert_eq!(mark["messageType"], "a mark", "{mark}");
        }
        ROUNDS_MAX
    }

    /// All notifications that the server sent before it answered an unknown message, which has no effect.
    pub(super) async fn pending_notifications(&mut self) -> Vec<Notification> {
        self.socket().send_json(&json!({"messageType": "a mark"})).await;
        let mut pending = Vec::new();
        loop {
            let message = self.message().await;
            let Some(notification) = Notification::read(&message) else {
                assert_eq!(message["messageType"], "a mark", "{message}");
                return pending;
            };
            self.ack(&notification).await;
            pending.push(notification);
        }
    }

    /// The next message. Sunup answers an empty one with an empty one.
    async fn message(&mut self) -> Value {
        loop {
            let message = self.socket().receive().await.expect("the server is there");
            if message != json!({}) {
                return message;
            }
            assert_eq!(self.program.keepalive, Keepalive::PingAndEmptyMessage, "unexpected {{}}");
            self.socket().send_json(&json!({})).await;
        }
    }

    /// Sets the least urgency that wakes the device, as a program does when its battery is low or charging.
    pub(super) async fn set_urgency(&mut self, min: &str) {
        self.socket().send_json(&json!({"messageType": "urgency", "min": min})).await;
        assert_eq!(self.message().await, json!({"messageType": "urgency", "status": 200}));
    }

    fn socket(&mut self) -> &mut Socket {
        self.socket.as_mut().expect("the device is connected")
    }
}

impl App {
    /// A push to this app that is kept for 30 days, signed if the channel belongs to a key.
    pub(super) fn post<'a>(&self, sender: &'a Sender, server: &Server) -> Post<'a> {
        let post = sender.post(&self.channel.endpoint).ttl(30 * 24 * 60 * 60);
        match &self.signer {
            Some(signer) => {
                let authorization = signer.authorization_at(server.now_s(), &server.origin());
                post.header("authorization", &authorization)
            }
            None => post,
        }
    }

    /// Pushes a text, which must be answered 201.
    pub(super) async fn push(&self, server: &Server, body: &str) {
        let answer = self.post(&Sender::new(), server).body(body).send().await;
        assert_eq!(answer.status, 201, "{answer}");
    }
}
