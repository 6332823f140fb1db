//! Reuse and limits of connections.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use state_machine::delivery::NodeAnswer;
use tokio::runtime;
use tokio::task::yield_now;

use super::node::{Act, Node, Seen, signed};
use super::world::{AGENT, World, limits};
use crate::cluster::outbound::RemoteLimits;

#[tokio::test]
async fn consecutive_pushes_reuse_a_connection() {
    let world = World::new(limits());
    let mut node = world.node(404).await;
    for _ in 0..10 {
        assert_eq!(world.pushed(&node.id).await, NodeAnswer::NotHere);
    }
    let seen = node.noticed();
    assert_eq!(seen.iter().filter(|seen| **seen == Seen::Connected).count(), 1);
    assert_eq!(seen.len(), 11);
}

#[tokio::test]
async fn a_closed_idle_connection_is_no_failure() {
    let mut world = World::new(limits());
    let keys = Arc::clone(&world.keys);
    let act = Act::AnswerAndClose(Arc::new(move |mac| signed(&keys, mac, 200, "")));
    let mut node = world.node_that(act).await;
    for _ in 0..20 {
        assert_eq!(world.pushed(&node.id).await, NodeAnswer::Accepted);
        assert_eq!(node.next().await, Seen::Connected);
        assert!(matches!(node.next().await, Seen::Asked(_)));
        assert_eq!(node.next().await, Seen::HungUp);
        // The runtime notices the end of the connection when it next polls its sockets.
        yield_now().await;
    }
    assert_eq!(world.log.said(), [""; 0]);
}

#[tokio::test]
async fn the_number_of_idle_connections_is_bounded() {
    let world = World::new(RemoteLimits { connections_idle_max: 2, ..limits() });
    let mut node = five_at_once(&world).await;
    for _ in 0..3 {
        assert_eq!(node.next().await, Seen::HungUp);
    }
    let pushes = [world.push(&node.id), world.push(&node.id)];
    for push in pushes {
        assert_eq!(push.await, Ok(NodeAnswer::Accepted));
    }
    assert!(node.noticed().iter().all(|seen| matches!(seen, Seen::Asked(_))));
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_its_time() {
    let connection_idle = Duration::from_millis(100);
    let world = World::new(RemoteLimits { connection_idle, ..limits() });
    let mut node = five_at_once(&world).await;
    for _ in 0..5 {
        assert_eq!(node.next().await, Seen::HungUp);
    }
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::Accepted);
    assert_eq!(node.next().await, Seen::Connected);
}

/// A node that has answered five concurrent requests on five connections.
async fn five_at_once(world: &World) -> Node {
    let (release, mut node) = world.holding_node().await;
    let pushes: Vec<_> = (0..5).map(|_| world.push(&node.id)).collect();
    for _ in 0..5 {
        node.asked().await;
    }
    release.send_replace(Some(200));
    for push in pushes {
        assert_eq!(push.await, Ok(NodeAnswer::Accepted));
    }
    node.set(world.answers(200));
    node
}

#[tokio::test]
async fn a_thread_that_ends_closes_no_connections_of_others() {
    let world = Arc::new(World::new(limits()));
    let mut node = world.node(200).await;
    let worker = {
        let (world, id) = (Arc::clone(&world), node.id.clone());
        thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(world.pushed(&id))
        })
    };
    while !worker.is_finished() {
        yield_now().await;
    }
    assert_eq!(worker.join().unwrap(), NodeAnswer::Accepted);
    for _ in 0..3 {
        assert_eq!(world.pushed(&node.id).await, NodeAnswer::Accepted);
    }
    assert_eq!(node.connections(), 2, "one for each thread");
    assert!(!world.is_open(&node.id));
}

#[tokio::test]
async fn a_cancelled_push_cancels_its_request_and_returns_its_permit() {
    let mut world = World::new(RemoteLimits { requests_max: 1, ..limits() });
    let (_tell, mut node) = world.holding_node().await;
    let push = world.push(&node.id);
    assert_eq!(node.asked().await.line, format!("PUT /push/{AGENT}"));
    assert_eq!(world.refused(&node.id), NodeAnswer::Busy);
    drop(push);
    assert_eq!(node.next().await, Seen::HungUp);
    node.set(world.answers(200));
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::Accepted);
    assert_eq!(world.log.said(), [""; 0], "nothing failed");
}
