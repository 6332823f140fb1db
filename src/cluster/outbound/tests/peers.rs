//! The status of peers, as it is reported to an operator.

use actors::NodeDirectory;
use actors::observe::BreakerState;
use state_machine::delivery::NodeAnswer;
use state_machine::{NodeId, Span, Time};

use super::node::Act;
use super::world::{AGENT, World, limits, soon};
use crate::cluster::fixture::{LONG, Log};
use crate::cluster::outbound::RemoteLimits;
use crate::cluster::outbound::peer::{CallError, Peer};
use crate::cluster::outbound::peer_state::{NextAction, PeerState};
use crate::system::node_address::AllowedNodes;

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

#[test]
fn an_unused_node_whose_introduction_fails_is_seen_as_long_as_one_that_was_used() {
    let limits = RemoteLimits { evict_after: Span(100), ..limits() };
    let node = NodeId::new("http://127.0.0.1:8081");
    let peer = Peer::allowed(&node, &AllowedNodes::loopback()).unwrap();
    let peer = PeerState::new(peer, limits, &Log::new().0, Time(0));
    peer.finished(peer.epoch().unwrap(), &Err(CallError::TimedOut(LONG)), Time(1000));
    assert!(matches!(peer.next(Time(1099)), NextAction::Wait(_)));
    assert!(matches!(peer.observe(&node, Time(1099)).breaker, BreakerState::Open { .. }));
    assert!(matches!(peer.next(Time(1100)), NextAction::Evict));
}
