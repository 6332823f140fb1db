//! Below the protocol's messages: pings of the peer, close frames, cut sockets.

use serde_json::json;
use state_machine::Uaid;
use state_machine::connection::ConnectionSeed;
use state_machine::delivery::Outcome;

use crate::clockwork::{self, settle};
use crate::net::{Heard, Peer, Server};
use crate::node::{CHANNEL, Node};

const WHO: Uaid = Uaid([7; 16]);

#[clockwork::test]
async fn a_ping_is_answered_with_its_payload() {
    let (_node, _server, mut peer) = greeted().await;
    peer.speaker.ping("payload").await;
    assert_eq!(peer.listener.hear().await, Heard::Pong("payload".into()));
}

#[clockwork::test]
async fn a_close_frame_is_answered_and_the_socket_closed_at_once() {
    let (node, _server, mut peer) = greeted().await;
    peer.speaker.close().await;
    assert_eq!(peer.listener.hear().await, Heard::Close(None));
    assert_eq!(peer.listener.hear().await, Heard::End);
    assert_eq!(node.find(WHO).await, None);
}

#[clockwork::test]
async fn a_connection_whose_socket_was_cut_leaves_the_registry() {
    let (node, _server, peer) = greeted().await;
    assert!(node.find(WHO).await.is_some());
    let traffic = peer.traffic.clone();
    drop(peer);
    traffic.settle().await;
    assert_eq!(node.find(WHO).await, None);
}

#[clockwork::test]
async fn a_connection_that_is_dropped_by_its_server_leaves_and_its_endpoints_store() {
    let (node, server, mut peer) = greeted().await;
    let register = json!({"messageType": "register", "channelID": CHANNEL.to_string()});
    peer.speaker.say(&register.to_string()).await;
    assert!(matches!(peer.listener.hear().await, Heard::Text(_)));
    let message = node.message();
    let sent = node.send(WHO, message.clone());
    assert!(matches!(peer.listener.hear().await, Heard::Text(_)));
    server.drop_connections();
    settle().await;
    assert_eq!(node.find(WHO).await, None);
    assert_eq!(sent.await.unwrap(), Outcome::Stored, "with no time gone by");
    assert_eq!(node.stored(WHO).await, [message.id]);
}

/// A new agent that sent hello.
async fn greeted() -> (Node, Server, Peer) {
    let node = Node::start().await;
    let seed = ConnectionSeed { fresh_uaid: WHO, jitter: 0 };
    let server = Server::start(&node.clients, seed).await;
    let mut peer = server.connect().await;
    peer.speaker.say(&json!({"messageType": "hello"}).to_string()).await;
    assert!(matches!(peer.listener.hear().await, Heard::Text(_)));
    peer.traffic.settle().await;
    (node, server, peer)
}
