//! The introduction of this node to those that it calls.

use actors::NodeDirectory;
use state_machine::Span;
use state_machine::delivery::NodeAnswer;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::node::Node;
use super::world::{World, limits, soon};
use crate::cluster::about::Introduction;
use crate::cluster::fixture::{LONG, NOW};
use crate::cluster::outbound::RemoteLimits;
use crate::system::build::Build;

const LINE: &str = "PUT /notif/00000000000000000000000000000000";

/// A directory that introduces its node.
fn introducing(limits: RemoteLimits) -> World {
    let world = World::new(limits);
    world.nodes.introduce("a.example:8080", "endpoint");
    world
}

fn often() -> RemoteLimits {
    RemoteLimits { introduce_every: Span(20), ..limits() }
}

/// The next introduction to a node.
async fn introduced(node: &mut Node) -> Introduction {
    loop {
        let asked = node.asked().await;
        if asked.line == LINE {
            return Introduction::parse(&asked.body).expect("it is an introduction");
        }
    }
}

#[tokio::test]
async fn a_node_that_is_called_learns_name_role_version_and_clock_again_and_again() {
    let world = introducing(often());
    let mut node = world.node(404).await;
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::NotHere);
    for _ in 0..3 {
        let Introduction { name, role, version, time_ms } = introduced(&mut node).await;
        assert_eq!((&*name, &*role, &*version), ("a.example:8080", "endpoint", Build::TEXT));
        assert!((NOW.0..NOW.0 + 60_000).contains(&time_ms), "{time_ms}");
    }
}

#[tokio::test]
async fn a_node_with_another_clock_learns_that_of_this_node() {
    let world = introducing(limits());
    let mut node = world.called_node(1200).await;
    let time_ms = introduced(&mut node).await.time_ms;
    assert!((NOW.0..NOW.0 + 60_000).contains(&time_ms), "{time_ms}");
}

#[tokio::test]
async fn a_node_is_introduced_to_with_its_first_call_and_not_with_each() {
    let world = introducing(limits());
    let mut first = world.called_node(0).await;
    introduced(&mut first).await;
    for _ in 0..3 {
        let mut next = world.called_node(0).await;
        introduced(&mut next).await;
        assert_eq!(world.pushed(&first.id).await, NodeAnswer::Accepted);
    }
    assert!(first.requests().iter().all(|line| line != LINE));
}

#[tokio::test]
async fn a_node_that_does_not_answer_is_not_introduced_to() {
    let world = introducing(often());
    let mut broken = world.broken_node().await;
    let mut node = world.called_node(0).await;
    // An introduction may have begun before the push failed.
    introduced(&mut node).await;
    broken.requests();
    for _ in 0..3 {
        introduced(&mut node).await;
    }
    assert_eq!(broken.requests(), [""; 0]);
}

#[tokio::test]
async fn a_node_that_ends_is_found_without_a_push_and_leaves_the_table() {
    let limits = RemoteLimits { introduce_every: Span(20), evict_after: Span(20), ..soon() };
    let mut world = introducing(limits);
    let mut node = world.called_node(0).await;
    introduced(&mut node).await;
    node.die().await;
    world.log.says("a node is unreachable").await;
    let left = async {
        while !world.nodes.peers().is_empty() {
            yield_now().await;
        }
    };
    timeout(LONG, left).await.expect("an unused node that is down is evicted");
}
