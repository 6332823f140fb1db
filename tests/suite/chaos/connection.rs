//! One connection of a user agent.

use std::pin::pin;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::{sleep, sleep_until, timeout};
use tokio_tungstenite::tungstenite::Message;
use uuid::Uuid;

use super::client::Client;
use super::plan::AckPolicy;
use super::state::{RunState, Stage};
use crate::harness::{Channel, Closed, Notification, Socket, ack};

/// An agent whose hello was answered.
pub(super) struct ClientConnection<'a> {
    client: &'a Client,
    state: &'a RunState,
    opened_at: Instant,
    socket: Socket,
    /// Received notifications that are not acked.
    unacked: Vec<Notification>,
    /// The time since which `unacked` is not empty.
    unacked_since: Option<Instant>,
    /// The id of the channel whose registration is not answered.
    requested: Option<String>,
}

/// Timeout of a hello, the same as Firefox's.
const HELLO_WAIT: Duration = Duration::from_secs(10);

/// The pause before the next attempt, which doubles each time.
const BACK_OFF: Duration = Duration::from_millis(100);
const BACK_OFF_MAX: Duration = Duration::from_secs(2);

impl<'a> ClientConnection<'a> {
    /// Connects to this node, or to the following ones, until a hello is answered.
    pub(super) async fn open(client: &'a Client, state: &'a RunState, node: usize) -> Self {
        let (wanted_at, mut back_off) = (Instant::now(), BACK_OFF);
        for node in node.. {
            let node = node % state.connection_nodes.len();
            match timeout(HELLO_WAIT, Self::hello(client, state, node)).await {
                Ok(Ok(connection)) => return connection.arrived(node, wanted_at).await,
                Ok(Err(_)) => state.count_hello(|hellos| hellos.refused += 1),
                Err(_) => state.count_hello(|hellos| hellos.given_up += 1),
            }
            sleep(back_off).await;
            back_off = (back_off * 2).min(BACK_OFF_MAX);
        }
        unreachable!("there is always another node to try")
    }

    async fn hello(client: &'a Client, state: &'a RunState, node: usize) -> Result<Self, Closed> {
        let opened_at = Instant::now();
        let socket =
            Socket::open_untimed(state.connection_nodes[node]).await.map_err(|_| Closed(None))?;
        let mut connection = Self {
            client,
            state,
            opened_at,
            socket,
            unacked: Vec::new(),
            unacked_since: None,
            requested: None,
        };
        let hello = json!({"messageType": "hello", "uaid": client.uaid, "use_webpush": true});
        connection.socket.send_json(&hello).await;
        let answer = connection.socket.receive_untimed().await?;
        let expected = json!(["hello", 200, client.uaid]);
        if json!([answer["messageType"], answer["status"], answer["uaid"]]) != expected {
            let record_lost = format!("the record of {} is lost: {answer}", client.number);
            state.ledger().report(record_lost);
        }
        Ok(connection)
    }

    /// Acknowledges what was left over from the last connection.
    async fn arrived(mut self, node: usize, wanted_at: Instant) -> Self {
        let now = Instant::now();
        self.state.reconnects().agent_connected(self.client.number, node, now);
        self.state.count_hello(|hellos| {
            hellos.answered += 1;
            hellos.longest = hellos.longest.max(now - wanted_at);
        });
        self.unacked = self.client.unacked.take();
        self.ack().await;
        self
    }

    /// Requests a channel without waiting for the answer.
    pub(super) async fn register(&mut self) {
        let channel = Uuid::new_v4().to_string();
        self.socket.send_json(&json!({"messageType": "register", "channelID": channel})).await;
        self.requested = Some(channel);
    }

    /// Receives messages until this time or the end of the storm.
    pub(super) async fn until(&mut self, at: Instant, ack_policy: AckPolicy) -> Result<(), Closed> {
        let mut left = pin!(self.state.until(at));
        loop {
            let ack_at = self.ack_at(ack_policy);
            tokio::select! {
                message = self.socket.receive_untimed() => self.on_message(&message?),
                () = sleep_until(ack_at.unwrap_or(at).into()), if ack_at.is_some() => {
                    self.ack().await;
                }
                () = &mut left => return Ok(()),
            }
        }
    }

    /// Receives messages and acks them on arrival, until the end of the stage.
    pub(super) async fn until_end_of(&mut self, stage: Stage) -> Result<(), Closed> {
        let mut end = pin!(self.state.end_of(stage));
        loop {
            tokio::select! {
                message = self.socket.receive_untimed() => self.on_message(&message?),
                () = &mut end => return Ok(()),
            }
            self.ack().await;
        }
    }

    /// Receives one message and returns its number.
    pub(super) async fn next(&mut self) -> Result<usize, Closed> {
        while self.unacked.is_empty() {
            let message = self.socket.receive_untimed().await?;
            self.on_message(&message);
        }
        let number = number_of(&self.unacked[0]);
        self.ack().await;
        Ok(number)
    }

    /// Returns the open connection.
    pub(super) fn left(self, ack_policy: AckPolicy) -> Socket {
        if ack_policy == AckPolicy::NextTime {
            self.client.unacked.replace(self.unacked);
        }
        self.socket
    }

    fn ack_at(&self, ack_policy: AckPolicy) -> Option<Instant> {
        let since = self.unacked_since?;
        match ack_policy {
            AckPolicy::Prompt | AckPolicy::Stalled(_) => Some(since),
            AckPolicy::Late(wait) => Some(since + wait),
            AckPolicy::Silent | AckPolicy::NextTime => None,
        }
    }

    fn on_message(&mut self, message: &Value) {
        let Some(notification) = Notification::read(message) else {
            return self.on_answer(message);
        };
        let number = number_of(&notification);
        let (client, opened_at) = (self.client.number, self.opened_at);
        self.state.ledger().delivered(client, opened_at, number, &notification.version);
        self.unacked.push(notification);
        self.unacked_since.get_or_insert_with(Instant::now);
    }

    async fn ack(&mut self) {
        self.unacked_since = None;
        let unacked = std::mem::take(&mut self.unacked);
        if unacked.is_empty() {
            return;
        }
        self.socket.send_json(&ack(&unacked)).await;
        let now = Instant::now();
        for notification in &unacked {
            self.state.ledger().acked(number_of(notification), &notification.version, now);
        }
    }

    /// Stores the registered channel.
    fn on_answer(&mut self, answer: &Value) {
        let (kind, endpoint) = (&answer["messageType"], answer["pushEndpoint"].as_str());
        match (self.requested.take(), endpoint) {
            (Some(id), Some(endpoint)) if kind == "register" && answer["status"] == 200 => {
                let channel = Channel { id, endpoint: endpoint.to_owned() };
                self.client.channels.borrow_mut().push(channel);
            }
            _ => self.state.ledger().report(format!("nothing was asked, or not this: {answer}")),
        }
    }
}

/// The number at the start of a message's body.
fn number_of(notification: &Notification) -> usize {
    let number = notification.body().split(' ').next().and_then(|number| number.parse().ok());
    number.expect("a body begins with a number")
}

/// Sends a close frame without waiting for the answer.
pub(super) async fn send_close_frame(mut socket: Socket) {
    // Fails if the node is down.
    let _ = socket.send(Message::Close(None)).await;
}
