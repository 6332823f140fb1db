//! The status of peers, as it is reported to an operator.

use actors::NodeDirectory;
use actors::observe::BreakerState;
use state_machine::Span;
use state_machine::delivery::NodeAnswer;

use super::node::Act;
use super::world::{AGENT, World, limits, soon};

#[tokio::test]
async fn a_peer_is_reported_with_its_breaker_and_what_waits_for_it() {
    let world = World::new(limits());
    assert_eq!(world.nodes.peers(), []);
    let mut node = world.node_that(world.answers(200)).await;
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::Accepted);
    let [peer] = &world.nodes.peers()[..] else { panic!("one peer was called") };
    assert_eq!((&peer.node, peer.breaker), (&node.id, BreakerState::Closed));
    assert_eq!((peer.pushes_in_flight, peer.notifications_pending), (0, 0));

    let (answers, hold) = Act::hold();
    node.set(hold);
    let push = world.push(&node.id);
    assert_eq!(node.asked().await.line, format!("PUT /push/{AGENT}"));
    assert_eq!(node.asked().await.line, format!("PUT /push/{AGENT}"));
    assert_eq!(world.nodes.peers()[0].pushes_in_flight, 1);
    drop(answers);
    assert_eq!(push.await, Ok(NodeAnswer::Unreachable));
    world.nodes.notify_stored(&node.id, AGENT);
    let peer = &world.nodes.peers()[0];
    let BreakerState::Open { probe_in } = peer.breaker else { panic!("{peer:?}") };
    assert!(probe_in > Span::from_secs(3500));
    assert_eq!((peer.pushes_in_flight, peer.notifications_pending), (0, 1));
}

#[tokio::test]
async fn the_breaker_of_a_peer_is_half_open_during_the_probe_and_closed_after_it() {
    let world = World::new(soon());
    let mut node = world.broken_node().await;
    let (answers, hold) = Act::hold();
    node.set(hold);
    while !node.asked().await.line.starts_with("PUT /notif/") {}
    while world.nodes.peers()[0].breaker != BreakerState::HalfOpen {
        tokio::task::yield_now().await;
    }
    answers.send_replace(Some(404));
    world.rests().await;
    assert_eq!(world.nodes.peers()[0].breaker, BreakerState::Closed);
}
