//! The check of a node's own URL.

use std::sync::Arc;

use state_machine::{NodeId, Uaid};

use super::node::Act;
use super::world::{SHORT, World, limits};
use crate::cluster::outbound::{NodeAccess, PeerIdentity, RemoteLimits};
use crate::system::node_address::AllowedNodes;

const INSTANCE: Uaid = Uaid([0xef; 16]);

async fn ask(world: &World, node: &NodeId, limits: RemoteLimits) -> PeerIdentity {
    let (keys, allowed) = (Arc::clone(&world.keys), AllowedNodes::loopback());
    let access = NodeAccess { keys, allowed, limits, callers: Arc::default() };
    access.ask(node.clone(), INSTANCE, world.clock.clone()).await.identity
}

#[tokio::test]
async fn only_200_is_the_answer_of_this_node() {
    let world = World::new(limits());
    for (status, identity) in [
        (200, PeerIdentity::ThisNode),
        (202, PeerIdentity::OtherNode),
        (400, PeerIdentity::OtherNode),
        (404, PeerIdentity::OtherNode),
        (503, PeerIdentity::OtherNode),
    ] {
        let mut node = world.node(status).await;
        assert_eq!(ask(&world, &node.id, limits()).await, identity, "{status}");
        assert_eq!(node.requests(), [format!("PUT /notif/{INSTANCE}")]);
    }
}

#[tokio::test]
async fn without_a_signed_answer_the_url_is_unreachable() {
    let world = World::new(limits());
    let (_tell, hold) = Act::hold();
    let unsigned = Act::write("HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n");
    for act in [unsigned, Act::Reset(Vec::new()), hold] {
        let node = world.node_that(act).await;
        let limits = RemoteLimits { notification_wait: SHORT, ..limits() };
        let identity = ask(&world, &node.id, limits).await;
        assert!(matches!(identity, PeerIdentity::Unreachable(_)), "{identity:?}");
    }
}

#[tokio::test]
async fn each_check_uses_a_new_connection() {
    let world = World::new(limits());
    let mut node = world.node(200).await;
    for _ in 0..3 {
        assert_eq!(ask(&world, &node.id, limits()).await, PeerIdentity::ThisNode);
    }
    node.asked().await;
    assert_eq!(node.connections(), 2, "beside the first");
}

#[tokio::test]
async fn a_url_that_is_not_allowed_is_not_called() {
    let world = World::new(limits());
    let identity = ask(&world, &NodeId::new("http://192.0.2.1:8081"), limits()).await;
    assert_eq!(identity, PeerIdentity::Unreachable("nodes_allowed does not allow it".to_owned()));
}
