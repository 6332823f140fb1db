//! A user agent that a test controls.

use actix::Addr;
use actors::Client;
use serde_json::{Value, json};
use state_machine::connection::{CloseReason, ConnectionSeed, Event};
use state_machine::wire::ClientMessage;
use state_machine::{MessageId, Uaid};
use tokio::sync::{mpsc, oneshot};

use super::{CHANNEL, Node};
use crate::clockwork::settle;
use crate::traces;
use crate::wire::{Came, Sent, StandStill, Wire};

/// A user agent and its connection.
pub(crate) struct UserAgent {
    pub(crate) uaid: Uaid,
    pub(crate) client: Addr<Client<Wire>>,
    /// The number of its connection in [`traces`](crate::traces).
    pub(crate) line: usize,
    pub(crate) sent: mpsc::UnboundedReceiver<Sent>,
}

impl UserAgent {
    /// A connection on which no message was sent.
    pub(crate) fn connect(node: &Node, uaid: Uaid) -> Self {
        let (send, sent) = mpsc::unbounded_channel();
        let seed = ConnectionSeed { fresh_uaid: uaid, jitter: 0 };
        let line = traces::opened(&node.clients.config);
        let client = Wire::start_as(line, &node.clients, seed, move |frame| {
            drop(send.send(frame));
        });
        Self { uaid, client, line, sent }
    }

    /// One that was never here before, with [`CHANNEL`] registered. Its uaid is made of `number`.
    pub(crate) async fn new(node: &Node, number: u8) -> Self {
        Self::with_uaid(node, Uaid([number; 16])).await
    }

    /// The same, by its whole uaid.
    pub(crate) async fn with_uaid(node: &Node, uaid: Uaid) -> Self {
        let mut agent = Self::connect(node, uaid);
        agent.says(&json!({"messageType": "hello"}));
        assert_eq!(agent.hears().await["uaid"], agent.uaid.to_string());
        agent.says(&json!({"messageType": "register", "channelID": CHANNEL.to_string()}));
        assert_eq!(agent.hears().await["status"], 200);
        agent
    }

    /// An agent that reconnects.
    pub(crate) async fn back(node: &Node, uaid: Uaid) -> Self {
        let mut agent = Self::connect(node, uaid);
        agent.says_hello();
        assert_eq!(agent.hears().await["uaid"], uaid.to_string());
        agent
    }

    pub(crate) fn says_hello(&self) {
        self.says(&json!({"messageType": "hello", "uaid": self.uaid.to_string()}));
    }

    pub(crate) fn says(&self, message: &Value) {
        let message = ClientMessage::parse(&message.to_string()).unwrap();
        self.does(Event::MessageReceived(message));
    }

    pub(crate) fn does(&self, event: Event) {
        self.client.try_send(Came(event)).unwrap();
    }

    pub(crate) fn acks(&self, id: MessageId) {
        let update = json!({"channelID": CHANNEL.to_string(), "version": id.to_string()});
        self.says(&json!({"messageType": "ack", "updates": [update]}));
    }

    pub(crate) async fn hangs_up(mut self) -> Uaid {
        self.does(Event::SocketClosed);
        assert_eq!(self.is_closed().await, CloseReason::SocketClosed);
        self.uaid
    }

    /// Its connection handles nothing until what this gives is dropped.
    pub(crate) async fn stands_still(&self) -> oneshot::Sender<()> {
        let (go_on, until) = oneshot::channel();
        self.client.try_send(StandStill(until)).unwrap();
        settle().await;
        go_on
    }

    /// The next frame, a text.
    pub(crate) async fn hears(&mut self) -> Value {
        match self.sent.recv().await {
            Some(Sent::Text(json)) => serde_json::from_str(&json).unwrap(),
            other => panic!("expected a message, got {other:?}"),
        }
    }

    /// The next frame, a notification.
    pub(crate) async fn is_notified(&mut self) -> MessageId {
        let message = self.hears().await;
        assert_eq!(message["messageType"], "notification");
        MessageId::parse(message["version"].as_str().unwrap()).unwrap()
    }

    /// The next frame, a close, after which there is nothing.
    pub(crate) async fn is_closed(&mut self) -> CloseReason {
        let Some(Sent::Close(reason)) = self.sent.recv().await else {
            panic!("expected a close frame");
        };
        assert_eq!(self.sent.recv().await, None);
        reason
    }

    /// Asserts that all frames received were read.
    pub(crate) fn heard_nothing_more(&mut self) {
        if let Ok(frame) = self.sent.try_recv() {
            panic!("it also got {frame:?}");
        }
    }
}
