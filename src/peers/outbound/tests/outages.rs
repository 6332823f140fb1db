//! What operators are told of a node that is not reached.

use actors::NodeDirectory;
use state_machine::delivery::NodeAnswer;
use state_machine::{NodeId, Span, Uaid};
use tokio::time::timeout;

use super::node::{Act, Node};
use super::world::{AGENT, SHORT, World, soon};
use crate::peers::outbound::RemoteLimits;

const LEFT_ALONE: &str = "WARN a node failed and is left alone";
const STILL_NOT: &str = "WARN a node is still not reached";

/// The log is told again after this.
fn often() -> RemoteLimits {
    RemoteLimits { tell_every: Span(30), ..soon() }
}

/// Asks for a node until the log is told that it is not reached.
async fn told_again(world: &mut World, node: &NodeId) -> String {
    loop {
        world.nodes.notify_stored(node, AGENT);
        if let Ok(fields) = timeout(SHORT, world.says(STILL_NOT)).await {
            return fields;
        }
    }
}

fn seconds(fields: &str) -> u64 {
    let rest = fields.split_once("since_s=").unwrap().1;
    rest.split(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_node_that_is_asked_for_and_not_reached_is_told_of_again_and_again() {
    let mut world = World::new(often());
    let node = world.node_that(Act::Reset(Vec::new())).await;
    for number in 1..=3 {
        world.nodes.notify_stored(&node.id, Uaid([number; 16]));
    }
    assert!(world.says(LEFT_ALONE).await.contains(" error="));
    for _ in 0..3 {
        let fields = told_again(&mut world, &node.id).await;
        assert!(fields.contains("agents_waiting=4") && fields.contains("error="), "{fields}");
        assert!(seconds(&fields) < 60, "{fields}");
    }
    node.set(world.answers(200));
    world.says("INFO a node is back").await;
    world.rests().await;
    assert_eq!(world.said(), [""; 0]);
}

#[tokio::test]
async fn a_node_that_nobody_asks_for_is_told_of_once() {
    let mut world = World::new(RemoteLimits { tell_every: Span(0), ..soon() });
    let mut node = world.node_that(Act::Reset(Vec::new())).await;
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::Unreachable);
    for _ in 0..5 {
        node.asked().await;
    }
    assert_eq!(world.said(), [LEFT_ALONE]);
}

#[tokio::test]
async fn a_node_is_told_of_no_more_often_than_that() {
    let mut world = World::new(soon());
    let mut node = world.node_that(Act::Reset(Vec::new())).await;
    world.nodes.notify_stored(&node.id, AGENT);
    for _ in 0..5 {
        node.asked().await;
        world.nodes.notify_stored(&node.id, AGENT);
    }
    assert_eq!(world.said(), [LEFT_ALONE]);
}

#[tokio::test]
async fn a_node_that_fails_anew_is_told_of_anew() {
    let mut world = World::new(soon());
    let node = world.node(200).await;
    let id = node.id.clone();
    let mut address = node.die().await;
    for _ in 0..2 {
        assert_eq!(world.pushed(&id).await, NodeAnswer::Unreachable);
        world.says(LEFT_ALONE).await;
        let node = Node::start_at(address, &world.keys, &world.clock, world.answers(200)).await;
        world.says("INFO a node is back").await;
        world.rests().await;
        address = node.die().await;
    }
}
