//! A user agent that records its messages, and acks them unless the test sets otherwise.

use actix::dev::SendError;
use serde_json::{Value, json};
use state_machine::connection::{CloseReason, Event, PhaseName, Wait};
use state_machine::wire::ClientMessage;
use state_machine::{Chid, MessageId, Span, Uaid};

use super::world::{DRAIN_WAIT, STORE_RETRY};
use crate::node::{CHANNEL, Node, UserAgent};
use crate::traces::{self, LineNow};
use crate::wire::{Came, Sent, Vanish};

/// An agent and its connection.
pub(crate) struct Agent {
    agent: UserAgent,
    /// Whether it acks what it gets at once.
    acks: bool,
    /// Messages that it sent.
    said: usize,
    /// What it was called in the answer to hello.
    pub(crate) greeted_as: Option<String>,
    /// The messages received, in their order.
    pub(crate) got: Vec<MessageId>,
    /// Of them, those that it has not acked.
    unacked: Vec<MessageId>,
    /// The answers to its commands: the channels.
    pub(crate) answers: Vec<String>,
    pub(crate) closed: Option<CloseReason>,
}

impl Agent {
    /// A new agent registers its channel and leaves. Its uaid is made of `number`.
    pub(crate) async fn subscribes(node: &Node, number: u8) -> Uaid {
        UserAgent::new(node, number).await.hangs_up().await
    }

    /// An agent that reconnects and sends hello.
    pub(crate) fn connects(node: &Node, uaid: Uaid) -> Self {
        Self::connects_with_luck(node, uaid, uaid)
    }

    /// The same, and what it would be called where it must have a new name.
    pub(crate) fn connects_with_luck(node: &Node, uaid: Uaid, fresh: Uaid) -> Self {
        let agent = UserAgent { uaid, ..UserAgent::connect(node, fresh) };
        agent.says_hello();
        Self {
            agent,
            acks: true,
            said: 1,
            greeted_as: None,
            got: Vec::new(),
            unacked: Vec::new(),
            answers: Vec::new(),
            closed: None,
        }
    }

    /// An agent that acks nothing until the test wants it.
    pub(crate) fn silent(node: &Node, uaid: Uaid) -> Self {
        Self { acks: false, ..Self::connects(node, uaid) }
    }

    /// An agent that reconnects, receives its stored messages and stays.
    pub(crate) async fn settles(node: &Node, uaid: Uaid) -> Self {
        let mut agent = Self::connects(node, uaid);
        agent.comes_to_rest(node).await;
        assert_eq!((agent.closed, agent.greeted_as.clone()), (None, Some(uaid.to_string())));
        agent
    }

    /// An agent that reconnects, receives its stored messages and leaves. Returns the messages.
    pub(crate) async fn visits(node: &Node, uaid: Uaid) -> Vec<MessageId> {
        Self::settles(node, uaid).await.hangs_up().await
    }

    /// Whether it acks nothing.
    pub(crate) fn is_silent(&self) -> bool {
        !self.acks
    }

    pub(crate) fn uaid(&self) -> Uaid {
        self.agent.uaid
    }

    pub(crate) fn line(&self) -> usize {
        self.agent.line
    }

    pub(crate) fn says(&mut self, message: &Value) {
        let message = ClientMessage::parse(&message.to_string()).unwrap();
        self.does(Event::MessageReceived(message));
    }

    /// Events on a connection that has ended are ignored.
    fn does(&mut self, event: Event) {
        let is_said = matches!(event, Event::MessageReceived(_));
        match self.agent.client.try_send(Came(event)) {
            Ok(()) => self.said += usize::from(is_said),
            Err(SendError::Closed(_)) => {}
            Err(SendError::Full(_)) => panic!("a test sends no more than a mailbox holds"),
        }
    }

    /// Asks for a channel.
    pub(crate) fn registers(&mut self, chid: Chid) {
        self.says(&json!({"messageType": "register", "channelID": chid.to_string()}));
    }

    /// Acks all messages received, in one frame, and later ones at once.
    pub(crate) fn acks_all(&mut self) {
        self.acks = true;
        let update =
            |id: MessageId| json!({"channelID": CHANNEL.to_string(), "version": id.to_string()});
        let updates: Vec<Value> = self.unacked.drain(..).map(update).collect();
        if !updates.is_empty() {
            self.says(&json!({"messageType": "ack", "updates": updates}));
        }
    }

    /// Acks nothing from now on, as an agent whose socket was cut unnoticed.
    pub(crate) fn falls_silent(&mut self) {
        self.takes_in();
        self.acks = false;
    }

    /// Receives messages until its connection is in the wanted state and has handled all messages
    /// of this agent.
    pub(crate) async fn until(&mut self, mut is_there: impl FnMut(&Self, LineNow) -> bool) {
        traces::until(|| {
            self.takes_in();
            let now = traces::line(self.line());
            self.closed.is_some() || (now.said == self.said && is_there(self, now))
        })
        .await;
    }

    /// Until its connection is closed, for this reason.
    pub(crate) async fn until_closed(&mut self, reason: CloseReason) {
        self.until(|_, _| false).await;
        assert_eq!(self.closed, Some(reason));
    }

    /// Until its connection is in a phase.
    pub(crate) async fn is_in(&mut self, phase: PhaseName) {
        self.until(|_, now| now.phase == phase).await;
        assert_eq!(traces::line(self.line()).phase, phase);
    }

    /// Receives messages until only its acks or a deadline are left to wait for.
    pub(crate) async fn is_waited_for(&mut self) {
        self.until(|_, now| now.open_orders == 0).await;
    }

    /// Receives messages until its connection is ready and idle. The clock advances if only that
    /// helps: after a failed operation, and for an agent that does not ack.
    pub(crate) async fn comes_to_rest(&mut self, node: &Node) {
        if node.gate.is_open() {
            node.endpoints_rest().await;
        }
        // The registry has delivered: the answer to a ping follows its messages in the mailbox.
        node.find(self.agent.uaid).await;
        self.says(&json!({}));
        loop {
            self.is_waited_for().await;
            let now = traces::line(self.line());
            match now.waits_for {
                _ if self.closed.is_some() => return,
                Some(Wait::Retry) => self.lets_pass(node, STORE_RETRY),
                _ if now.phase == PhaseName::Ready => return,
                _ if !self.acks => self.lets_pass(node, DRAIN_WAIT),
                wait => panic!("it stands still in {} and waits for {wait:?}", now.phase),
            }
        }
    }

    /// Advances the clock of its node, and lets its connection notice.
    pub(crate) fn lets_pass(&mut self, node: &Node, span: Span) {
        let clock = &node.clients.clock;
        clock.set(clock.now() + span);
        self.notices_the_time();
    }

    /// Its connection looks at the clock.
    pub(crate) fn notices_the_time(&mut self) {
        self.does(Event::TimePassed);
        self.says(&json!({}));
    }

    /// Leaves; what it got.
    pub(crate) async fn hangs_up(mut self) -> Vec<MessageId> {
        self.takes_in();
        if self.closed.is_none() {
            self.does(Event::SocketClosed);
            self.until(|_, _| false).await;
        }
        self.got
    }

    /// Its connection vanishes without a signal. Returns the messages received.
    pub(crate) async fn vanishes(mut self) -> Vec<MessageId> {
        self.takes_in();
        // Refused where the connection is closed already.
        let _ = self.agent.client.send(Vanish).await;
        self.got
    }

    fn takes_in(&mut self) {
        while let Ok(frame) = self.agent.sent.try_recv() {
            match frame {
                Sent::Text(json) => self.hears(&serde_json::from_str(&json).unwrap()),
                Sent::Ping => {}
                Sent::Close(reason) => self.closed = Some(reason),
            }
        }
        if self.acks {
            self.acks_all();
        }
    }

    fn hears(&mut self, message: &Value) {
        match message["messageType"].as_str() {
            Some("hello") => self.greeted_as = message["uaid"].as_str().map(str::to_owned),
            Some("notification") => {
                let id = MessageId::parse(message["version"].as_str().unwrap()).unwrap();
                self.got.push(id);
                self.unacked.push(id);
            }
            Some("register" | "unregister") => {
                assert_eq!(message["status"], 200);
                self.answers.push(message["channelID"].as_str().unwrap().to_owned());
            }
            _ => {}
        }
    }
}
