//! A user agent that moves from one month to the next.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::Message;
use uuid::Uuid;

use super::ledger::Slot;
use super::state::RunState;
use crate::harness::{Channel, Closed, Notification, Sender, Socket, ack};

/// A user agent with subscriptions.
#[derive(Debug)]
pub(super) struct MovingAgent {
    pub(super) number: usize,
    pub(super) uaid: String,
    pub(super) channels: Vec<Channel>,
    /// The habit during the storm; afterwards the agent acks on arrival.
    pub(super) ack_policy: AckPolicy,
}

/// When the agent acks what it receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AckPolicy {
    /// Acks every message on arrival.
    Prompt,
    /// Acks all messages at once when it is in December.
    Late,
    /// Does not ack at all.
    Silent,
    /// Disconnects after its first message, or in December if none arrived, and reconnects with the
    /// habit `Prompt`.
    Restless,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parting {
    /// The agent sent a close frame and is done.
    Done,
    /// The agent disconnected early.
    BrokeOff,
    /// The server closed the connection with this code.
    Sent(u16),
    /// The server was killed.
    Gone,
}

/// One connection of the agent.
struct AgentConnection<'a> {
    agent: &'a MovingAgent,
    state: &'a RunState,
    ack_policy: AckPolicy,
    socket: Socket,
    /// The time of the first answer to a command: commands are answered only after the move to
    /// December.
    ready_since: Option<Instant>,
    /// Received notifications that are not acked.
    unacked: Vec<Notification>,
    /// Numbers of the received messages, and of those whose acks are not known to be durable.
    came: BTreeSet<usize>,
    acked: Vec<usize>,
    proof: Option<Proof>,
    end: watch::Receiver<bool>,
}

/// A channel that is registered and unregistered, to prove that earlier writes are durable.
struct Proof {
    channel: String,
    /// Messages that were acked before.
    of: Vec<usize>,
}

impl MovingAgent {
    /// Connects, and reconnects after each disconnect, until the end of the storm.
    pub(super) async fn run(&self, state: &RunState) {
        let mut ack_policy = self.ack_policy;
        loop {
            let restarts = state.restarts();
            match or_parting(self.pass(state, ack_policy).await) {
                Parting::Done => return,
                Parting::BrokeOff => ack_policy = AckPolicy::Prompt,
                Parting::Sent(code) => state.connection_closed(code),
                Parting::Gone => state.restart_after(restarts).await,
            }
        }
    }

    async fn pass(&self, state: &RunState, ack_policy: AckPolicy) -> Result<Parting, Closed> {
        let mut connection = self.arrive(state, ack_policy).await?;
        if ack_policy == AckPolicy::Restless {
            connection
                .until(|connection| connection.ready_since.is_some() || !connection.came.is_empty())
                .await?;
            return Ok(Parting::BrokeOff);
        }
        connection.until(|_| state.is_over()).await?;
        connection.leave().await
    }

    /// Connects once more and receives what is left, up to a message that is posted now. Afterwards
    /// all acks are settled.
    pub(super) async fn take_the_rest(&self, state: &RunState, sender: &Sender) {
        let parting = or_parting(self.take(state, sender).await);
        assert_eq!(parting, Parting::Done, "the server is not killed any more");
    }

    /// The last message has a topic, because such a message is not sent ahead of stored ones.
    async fn take(&self, state: &RunState, sender: &Sender) -> Result<Parting, Closed> {
        let mut connection = self.arrive(state, AckPolicy::Prompt).await?;
        connection.until(|connection| connection.ready_since.is_some()).await?;
        let slot = Slot { agent: self.number, channel: 0, topic: Some("last") };
        let last = state.ledger().post(slot);
        let pushed = state.push(sender, last, &self.channels[0]);
        let (pushed, came) =
            tokio::join!(pushed, connection.until(|connection| connection.came.contains(&last)));
        assert_eq!(pushed, Some(true), "the server is not killed any more");
        came?;
        connection
            .until(|connection| connection.acked.is_empty() && connection.proof.is_none())
            .await?;
        connection.leave().await
    }

    async fn arrive<'a>(
        &'a self,
        state: &'a RunState,
        ack_policy: AckPolicy,
    ) -> Result<AgentConnection<'a>, Closed> {
        let socket = Socket::open_untimed(state.address).await.map_err(|_| Closed(None))?;
        let mut connection = AgentConnection {
            agent: self,
            state,
            ack_policy,
            socket,
            ready_since: None,
            unacked: Vec::new(),
            came: BTreeSet::new(),
            acked: Vec::new(),
            proof: None,
            end: state.storm_end(),
        };
        let hello = json!({"messageType": "hello", "uaid": self.uaid, "use_webpush": true});
        connection.socket.send_json(&hello).await;
        let answer = connection.socket.receive_untimed().await?;
        assert_eq!((&answer["messageType"], &answer["status"]), (&json!("hello"), &json!(200)));
        assert_eq!(answer["uaid"], *self.uaid, "the server forgot a user agent");
        connection.prove().await;
        Ok(connection)
    }
}

fn or_parting(ended: Result<Parting, Closed>) -> Parting {
    match ended {
        Ok(parting) => parting,
        Err(Closed(Some(code))) => Parting::Sent(code),
        Err(Closed(None)) => Parting::Gone,
    }
}

impl AgentConnection<'_> {
    /// Receives messages until the condition holds.
    async fn until(&mut self, holds: impl Fn(&Self) -> bool) -> Result<(), Closed> {
        while !holds(self) {
            tokio::select! {
                message = self.socket.receive_untimed() => self.on_message(&message?).await,
                changed = self.end.changed() => changed.expect("the run holds the state"),
            }
        }
        Ok(())
    }

    async fn on_message(&mut self, message: &Value) {
        match Notification::read(message) {
            Some(notification) => self.notified(notification).await,
            None => self.answered(message).await,
        }
    }

    async fn notified(&mut self, notification: Notification) {
        let number = notification.body().parse().expect("a body is a number");
        self.state.delivered(self.agent.number, number, &notification.version);
        self.came.insert(number);
        self.unacked.push(notification);
        match self.ack_policy {
            AckPolicy::Prompt | AckPolicy::Restless => self.ack().await,
            AckPolicy::Late if self.ready_since.is_some() => self.ack().await,
            AckPolicy::Late | AckPolicy::Silent => {}
        }
    }

    /// Acks all unacked messages.
    async fn ack(&mut self) {
        let unacked = std::mem::take(&mut self.unacked);
        if unacked.is_empty() {
            return;
        }
        self.socket.send_json(&ack(&unacked)).await;
        for notification in unacked {
            let number = notification.body().parse().expect("a body is a number");
            self.state.ledger().acked(number, self.ready_since);
            self.acked.push(number);
        }
        if self.proof.is_none() {
            self.prove().await;
        }
    }

    /// Starts the proof that the acks so far are durable. The first one also proves that the agent
    /// is in December.
    async fn prove(&mut self) {
        let channel = Uuid::new_v4().to_string();
        self.socket.send_json(&json!({"messageType": "register", "channelID": channel})).await;
        let of = std::mem::take(&mut self.acked);
        self.proof = Some(Proof { channel, of });
    }

    async fn answered(&mut self, answer: &Value) {
        let proof = self.proof.take().unwrap_or_else(|| panic!("nothing was asked: {answer}"));
        let answered = (&answer["channelID"], &answer["status"]);
        assert_eq!(answered, (&json!(proof.channel), &json!(200)), "{answer}");
        if answer["messageType"] == "register" {
            let give_up = json!({"messageType": "unregister", "channelID": proof.channel});
            self.socket.send_json(&give_up).await;
            self.proof = Some(proof);
            self.is_in_december().await;
            return;
        }
        assert_eq!(answer["messageType"], "unregister");
        self.state.ledger().acks_are_durable(&proof.of);
        if !self.acked.is_empty() {
            self.prove().await;
        }
    }

    /// A command is answered only after the move.
    async fn is_in_december(&mut self) {
        if self.ready_since.is_some() {
            return;
        }
        self.ready_since = Some(Instant::now());
        self.state.arrived(self.agent.number);
        if self.ack_policy == AckPolicy::Late {
            self.ack().await;
        }
    }

    async fn leave(mut self) -> Result<Parting, Closed> {
        // Fails if the server was killed.
        let _ = self.socket.send(Message::Close(None)).await;
        while let Ok(message) = self.socket.receive_untimed().await {
            self.on_message_while_leaving(&message);
        }
        Ok(Parting::Done)
    }

    /// A message that arrives after the close frame of the agent counts as delivered.
    fn on_message_while_leaving(&mut self, message: &Value) {
        if let Some(notification) = Notification::read(message) {
            let number = notification.body().parse().expect("a body is a number");
            self.state.delivered(self.agent.number, number, &notification.version);
        }
    }
}
