//! A peer that stops reading: its connection freezes, mailbox and timers, until it must end. No other waits for it.

use std::collections::VecDeque;
use std::time::Duration;

use actors::registry::ShutDown;
use serde_json::{Value, json};
use state_machine::connection::{CloseReason, ConnectionSeed};
use state_machine::delivery::Outcome;
use state_machine::{Message, MessageId, Payload, Span, Uaid};

use crate::clockwork::{self, pass};
use crate::net::{Heard, Peer, Server};
use crate::node::{ACK_WAIT, CHANNEL, Node, UserAgent};

const SLOW: Uaid = Uaid([7; 16]);

/// Enough to fill every buffer between a client actor and its peer.
const MESSAGES: usize = 40;
const PAYLOAD_BYTES: usize = 4096;

const DRAIN: Duration = Duration::from_secs(10);

/// Longer than a server waits for its last bytes to be read.
const LAST_BYTES: Span = Span::from_secs(2);

#[clockwork::test]
async fn a_peer_that_stops_reading_delays_no_other_and_gets_all_messages_when_it_resumes() {
    let mut frozen = Frozen::set_up().await;
    frozen.nobody_else_waits().await;
    frozen.a_push_is_stored_after_the_answer_wait().await;
    let Frozen { node, mut peer, expected, .. } = frozen;
    takes_all(&mut peer, expected).await;
    node.until_nothing_is_stored(SLOW).await;
}

#[clockwork::test]
async fn a_peer_that_stopped_reading_gets_all_messages_when_it_reconnects() {
    let mut frozen = Frozen::set_up().await;
    frozen.a_push_is_stored_after_the_answer_wait().await;
    let Frozen { node, server, expected, peer: _deaf } = frozen;
    let before = node.find(SLOW).await;
    let mut peer = hello(&server).await;
    assert_ne!(node.find(SLOW).await, before);
    takes_all(&mut peer, expected).await;
    node.until_nothing_is_stored(SLOW).await;
}

#[clockwork::test]
async fn a_peer_that_stopped_reading_delays_no_drain_and_is_closed_in_its_turn() {
    let frozen = Frozen::set_up().await;
    let mut neighbours =
        [UserAgent::new(&frozen.node, 1).await, UserAgent::new(&frozen.node, 2).await];
    let Frozen { node, mut peer, .. } = frozen;
    node.registry.send(ShutDown { spread: DRAIN }).await.unwrap();
    pass(Span(DRAIN.as_millis() as u64)).await;
    for neighbour in &mut neighbours {
        assert_eq!(neighbour.is_closed().await, CloseReason::Shutdown);
    }
    assert_eq!(node.find(SLOW).await, None);
    pass(LAST_BYTES).await;
    while peer.listener.hear().await != Heard::End {}
}

/// A node with a connection that is frozen because its peer does not read.
struct Frozen {
    node: Node,
    server: Server,
    peer: Peer,
    /// The messages on their way to it.
    expected: VecDeque<MessageId>,
}

impl Frozen {
    async fn set_up() -> Self {
        let node = Node::start().await;
        UserAgent::with_uaid(&node, SLOW).await.hangs_up().await;
        let mut expected = VecDeque::new();
        for _ in 0..MESSAGES {
            let message = large(node.message());
            expected.push_back(message.id);
            assert_eq!(node.send(SLOW, message).await.unwrap(), Outcome::Stored);
        }
        let seed = ConnectionSeed { fresh_uaid: SLOW, jitter: 0 };
        let server = Server::with_small_buffers(&node.clients, seed).await;
        let peer = hello(&server).await;
        peer.traffic.until_server_sent(PAYLOAD_BYTES).await;
        peer.traffic.stall().await;
        Self { node, server, peer, expected }
    }

    async fn nobody_else_waits(&self) {
        let mut neighbour = UserAgent::new(&self.node, 1).await;
        // With no time gone by.
        self.node.delivers(&mut neighbour).await;
    }

    async fn a_push_is_stored_after_the_answer_wait(&mut self) {
        let came_to_the_store = self.node.gate.messages();
        let message = self.node.message();
        let sent = self.node.send(SLOW, message.clone());
        self.peer.traffic.stall().await;
        pass(ACK_WAIT).await;
        assert_eq!(self.node.gate.messages(), came_to_the_store, "the connection does not answer");
        pass(ACK_WAIT).await;
        assert_eq!(sent.await.unwrap(), Outcome::Stored);
        self.expected.push_back(message.id);
    }
}

async fn hello(server: &Server) -> Peer {
    let mut peer = server.connect().await;
    peer.speaker.say(&json!({"messageType": "hello", "uaid": SLOW.to_string()}).to_string()).await;
    assert_eq!(hears(&mut peer).await["uaid"], SLOW.to_string());
    peer
}

/// Reads and acks until every message is received, each once and in order.
async fn takes_all(peer: &mut Peer, mut expected: VecDeque<MessageId>) {
    while let Some(next) = expected.pop_front() {
        let message = hears(peer).await;
        assert_eq!(message["version"], next.to_string());
        let update = json!({"channelID": CHANNEL.to_string(), "version": next.to_string()});
        peer.speaker.say(&json!({"messageType": "ack", "updates": [update]}).to_string()).await;
    }
}

async fn hears(peer: &mut Peer) -> Value {
    match peer.listener.hear().await {
        Heard::Text(json) => serde_json::from_str(&json).unwrap(),
        other => panic!("expected a message, got {other:?}"),
    }
}

fn large(message: Message) -> Message {
    let payload =
        message.payload.map(|payload| Payload { data: vec![0; PAYLOAD_BYTES].into(), ..payload });
    Message { payload, ..message }
}
