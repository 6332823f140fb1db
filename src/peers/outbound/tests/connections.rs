//! Connections that are kept, and what becomes of those that are not.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use state_machine::delivery::NodeAnswer;
use tokio::runtime;
use tokio::task::yield_now;

use super::node::{Act, Node, Seen, signed};
use super::world::{AGENT, World, limits};
use crate::peers::outbound::RemoteLimits;

#[tokio::test]
async fn one_push_after_the_other_takes_the_same_connection() {
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
async fn a_connection_that_the_node_closed_while_it_was_idle_is_no_failure() {
    let mut world = World::new(limits());
    let keys = Arc::clone(&world.keys);
    let act = Act::AnswerAndClose(Arc::new(move |mac| signed(&keys, mac, 200, "")));
    let mut node = world.node_that(act).await;
    for _ in 0..20 {
        assert_eq!(world.pushed(&node.id).await, NodeAnswer::Accepted);
        assert_eq!(node.next().await, Seen::Connected);
        assert!(matches!(node.next().await, Seen::Asked(_)));
        assert_eq!(node.next().await, Seen::HungUp);
        // The runtime hears of the end of the connection when it next looks at its sockets.
        yield_now().await;
    }
    assert_eq!(world.said(), [""; 0]);
}

#[tokio::test]
async fn no_more_connections_than_allowed_are_kept_while_they_are_idle() {
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
async fn no_connection_is_kept_idle_for_longer_than_allowed() {
    let connection_idle = Duration::from_millis(100);
    let world = World::new(RemoteLimits { connection_idle, ..limits() });
    let mut node = five_at_once(&world).await;
    for _ in 0..5 {
        assert_eq!(node.next().await, Seen::HungUp);
    }
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::Accepted);
    assert_eq!(node.next().await, Seen::Connected);
}

/// A node that was asked five things at once, on five connections, and has answered.
async fn five_at_once(world: &World) -> Node {
    let (tell, hold) = Act::hold();
    let mut node = world.node_that(hold).await;
    let pushes: Vec<_> = (0..5).map(|_| world.push(&node.id)).collect();
    for _ in 0..5 {
        node.asked().await;
    }
    tell.send_replace(Some(200));
    for push in pushes {
        assert_eq!(push.await, Ok(NodeAnswer::Accepted));
    }
    node.set(world.answers(200));
    node
}

#[tokio::test]
async fn a_worker_that_ends_takes_nobody_elses_connections_along() {
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
    let connected = node.noticed().into_iter().filter(|seen| *seen == Seen::Connected);
    assert_eq!(connected.count(), 2, "one for each thread");
    assert!(!world.leaves_alone(&node.id));
}

#[tokio::test]
async fn who_no_longer_waits_cancels_the_request_and_gives_its_place_back() {
    let mut world = World::new(RemoteLimits { requests_max: 1, ..limits() });
    let (_tell, hold) = Act::hold();
    let mut node = world.node_that(hold).await;
    let push = world.push(&node.id);
    assert_eq!(node.asked().await.line, format!("PUT /push/{AGENT}"));
    assert_eq!(world.refused(&node.id), NodeAnswer::Busy);
    drop(push);
    assert_eq!(node.next().await, Seen::HungUp);
    node.set(world.answers(200));
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::Accepted);
    assert_eq!(world.said(), [""; 0], "nothing failed");
}
