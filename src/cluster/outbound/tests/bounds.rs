//! The limits of requests and of the table of nodes, and the shutdown.

use std::sync::Arc;

use actors::NodeDirectory;
use state_machine::delivery::NodeAnswer;
use state_machine::{NodeId, Span};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::node::Seen;
use super::world::{AGENT, World, limits, soon};
use crate::cluster::fixture::LONG;
use crate::cluster::outbound::RemoteLimits;

#[tokio::test]
async fn a_push_above_the_limit_is_busy_at_once() {
    let world = World::new(RemoteLimits { requests_max: 3, ..limits() });
    let (release, mut node) = world.holding_node().await;
    let other = world.node(200).await;
    let pushes = [world.push(&node.id), world.push(&node.id), world.push(&node.id)];
    assert_eq!(world.refused(&node.id), NodeAnswer::Busy);
    assert_eq!(world.pushed(&other.id).await, NodeAnswer::Accepted, "each node has its own bound");
    for _ in 0..3 {
        node.asked().await;
    }
    release.send_replace(Some(202));
    for push in pushes {
        assert_eq!(push.await, Ok(NodeAnswer::Unconfirmed));
    }
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::Unconfirmed);
    assert!(node.noticed().iter().all(|seen| *seen != Seen::HungUp));
}

#[tokio::test]
async fn a_node_that_answers_has_no_task() {
    let world = World::new(limits());
    let node = world.called_node(0).await;
    world.nodes.notify_stored(&node.id, AGENT);
    world.rests().await;
}

#[tokio::test]
async fn a_full_table_admits_a_node_once_another_is_unused() {
    let limits = RemoteLimits { nodes_max: 2, evict_after: Span(20), ..limits() };
    let world = World::new(limits);
    let [a, b, c] = [world.node(200).await, world.node(200).await, world.node(200).await];
    for node in [&a, &b] {
        assert_eq!(world.pushed(&node.id).await, NodeAnswer::Accepted);
    }
    assert_eq!(world.refused(&c.id), NodeAnswer::Unreachable);
    let admitted = async {
        while world.pushed(&c.id).await != NodeAnswer::Accepted {
            assert_eq!(world.pushed(&b.id).await, NodeAnswer::Accepted);
        }
    };
    timeout(LONG, admitted).await.expect("a node that is unused makes room");
    let is_known = |node: &NodeId| world.nodes.shared.peers.read().by_node.contains_key(node);
    assert!(!is_known(&a.id) && is_known(&c.id));
}

#[tokio::test]
async fn a_full_table_evicts_unreachable_nodes() {
    let world = World::new(RemoteLimits { nodes_max: 2, ..limits() });
    for _ in 0..3 {
        let (id, _) = world.dead_node().await;
        assert_eq!(world.pushed(&id).await, NodeAnswer::Unreachable);
    }
    let node = world.node(200).await;
    world.accepted(&node.id).await;
    let remembered = world.nodes.shared.peers.read().by_node.len();
    assert!(remembered <= 2, "{remembered}");
}

#[tokio::test]
async fn a_node_with_a_request_in_flight_is_not_evicted() {
    let limits = RemoteLimits { nodes_max: 1, evict_after: Span(0), ..limits() };
    let world = World::new(limits);
    let (release, mut node) = world.holding_node().await;
    let other = world.node(200).await;
    let push = world.push(&node.id);
    node.asked().await;
    assert_eq!(world.refused(&other.id), NodeAnswer::Unreachable);
    release.send_replace(Some(202));
    assert_eq!(push.await, Ok(NodeAnswer::Unconfirmed));
    world.accepted(&other.id).await;
}

#[tokio::test]
async fn an_unreachable_node_without_requests_is_evicted_with_its_notifications() {
    let world = World::new(RemoteLimits { evict_after: Span(20), ..soon() });
    let (id, _) = world.dead_node().await;
    world.nodes.notify_stored(&id, AGENT);
    world.rests().await;
    assert!(world.nodes.shared.peers.read().by_node.is_empty());
}

#[tokio::test]
async fn after_close_no_request_is_sent() {
    let world = World::new(soon());
    let (id, address) = world.dead_node().await;
    assert_eq!(world.pushed(&id).await, NodeAnswer::Unreachable);
    world.nodes.notify_stored(&id, AGENT);
    world.nodes.close();
    world.rests().await;
    let mut node = world.node_at(address).await;
    world.nodes.notify_stored(&id, AGENT);
    assert_eq!(world.refused(&id), NodeAnswer::Unreachable);
    world.rests().await;
    assert_eq!(node.noticed(), []);
}

#[tokio::test]
async fn after_drop_no_worker_runs() {
    let world = World::new(limits());
    let shared = Arc::downgrade(&world.nodes.shared);
    let (id, _) = world.dead_node().await;
    assert_eq!(world.pushed(&id).await, NodeAnswer::Unreachable);
    drop(world);
    while shared.upgrade().is_some() {
        yield_now().await;
    }
}
