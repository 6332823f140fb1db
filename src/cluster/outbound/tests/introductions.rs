//! The introduction of this node to those that it calls.

use state_machine::Span;
use state_machine::delivery::NodeAnswer;

use super::node::{Act, Node};
use super::world::{World, limits};
use crate::cluster::about::Introduction;
use crate::cluster::fixture::NOW;
use crate::cluster::outbound::RemoteLimits;
use crate::system::build::Build;

const LINE: &str = "PUT /notif/00000000000000000000000000000000";

/// A directory that introduces its node after each of these times.
fn introducing(every: Span) -> World {
    let world = World::new(RemoteLimits { introduce_every: every, ..limits() });
    world.nodes.introduce("a.example:8080", "endpoint");
    world
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
    let world = introducing(Span(20));
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
    let world = introducing(Span::from_secs(3600));
    let mut node = world.called_node(1200).await;
    let time_ms = introduced(&mut node).await.time_ms;
    assert!((NOW.0..NOW.0 + 60_000).contains(&time_ms), "{time_ms}");
}

#[tokio::test]
async fn a_node_is_introduced_to_with_its_first_call_and_not_with_each() {
    let world = introducing(Span::from_secs(3600));
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
    let world = introducing(Span(20));
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
async fn an_introduction_that_fails_opens_no_breaker() {
    let world = introducing(Span(20));
    let mut node = world.called_node(0).await;
    node.set(Act::write("HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n"));
    for _ in 0..3 {
        introduced(&mut node).await;
    }
    node.set(world.answers(200));
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::Accepted);
}
