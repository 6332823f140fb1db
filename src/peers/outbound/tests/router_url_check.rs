//! A node that asks for itself.

use std::sync::Arc;

use state_machine::{NodeId, Uaid};

use super::node::{Act, Seen};
use super::world::{SHORT, World, limits};
use crate::peers::address::AllowedNodes;
use crate::peers::outbound::{PeerIdentity, RemoteLimits, RouterUrlCheck};

const INSTANCE: Uaid = Uaid([0xef; 16]);

fn own_url(world: &World, node: &NodeId, limits: RemoteLimits) -> RouterUrlCheck {
    let (keys, allowed) = (Arc::clone(&world.keys), AllowedNodes::loopback());
    RouterUrlCheck::new(node.clone(), INSTANCE, keys, &allowed, limits, world.clock.clone())
}

#[tokio::test]
async fn it_asks_for_its_instance_and_only_200_is_its_own_answer() {
    let world = World::new(limits());
    for (status, echo) in [
        (200, PeerIdentity::ThisNode),
        (202, PeerIdentity::OtherNode),
        (400, PeerIdentity::OtherNode),
        (404, PeerIdentity::OtherNode),
        (503, PeerIdentity::OtherNode),
    ] {
        let mut node = world.node(status).await;
        assert_eq!(own_url(&world, &node.id, limits()).ask().await, echo, "{status}");
        assert_eq!(node.requests(), [format!("PUT /notif/{INSTANCE}")]);
    }
}

#[tokio::test]
async fn what_is_not_signed_is_nobody() {
    let world = World::new(limits());
    let (_tell, hold) = Act::hold();
    let unsigned = Act::write("HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n");
    for act in [unsigned, Act::Reset(Vec::new()), hold] {
        let node = world.node_that(act).await;
        let limits = RemoteLimits { notification_wait: SHORT, ..limits() };
        let echo = own_url(&world, &node.id, limits).ask().await;
        assert!(matches!(echo, PeerIdentity::Unreachable(_)), "{echo:?}");
    }
}

#[tokio::test]
async fn each_question_is_asked_on_a_connection_of_its_own() {
    let world = World::new(limits());
    let mut node = world.node(200).await;
    let url = own_url(&world, &node.id, limits());
    for _ in 0..3 {
        assert_eq!(url.ask().await, PeerIdentity::ThisNode);
    }
    node.asked().await;
    let connected = node.noticed().into_iter().filter(|seen| *seen == Seen::Connected);
    assert_eq!(connected.count(), 2, "beside the first");
}

#[tokio::test]
async fn a_url_that_may_not_be_called_is_not_called() {
    let world = World::new(limits());
    let url = own_url(&world, &NodeId::new("http://192.0.2.1:8081"), limits());
    assert_eq!(
        url.ask().await,
        PeerIdentity::Unreachable("nodes_allowed does not have it".to_owned())
    );
}
