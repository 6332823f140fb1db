//! The log of a node that is unreachable.

use actors::NodeDirectory;
use state_machine::delivery::NodeAnswer;
use state_machine::{NodeId, Span, Uaid};
use tokio::time::timeout;

use super::node::Act;
use super::world::{AGENT, SHORT, World, soon};
use crate::cluster::outbound::RemoteLimits;

const UNREACHABLE: &str = "WARN a node is unreachable, its messages are stored";
const STILL_UNREACHABLE: &str = "WARN a node is still unreachable";

/// An outage is logged again after 30 ms.
fn often() -> RemoteLimits {
    RemoteLimits { log_every: Span(30), ..soon() }
}

/// Sends notifications until the outage is logged again.
async fn logged_again(world: &mut World, node: &NodeId) -> String {
    loop {
        world.nodes.notify_stored(node, AGENT);
        if let Ok(fields) = timeout(SHORT, world.log.says(STILL_UNREACHABLE)).await {
            return fields;
        }
    }
}

fn seconds(fields: &str) -> u64 {
    let rest = fields.split_once("since_s=").unwrap().1;
    rest.split(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn an_outage_is_logged_repeatedly_while_there_are_requests() {
    let mut world = World::new(often());
    let node = world.node_that(Act::Reset(Vec::new())).await;
    for number in 1..=3 {
        world.nodes.notify_stored(&node.id, Uaid([number; 16]));
    }
    assert!(world.log.says(UNREACHABLE).await.contains(" error="));
    for _ in 0..3 {
        let fields = logged_again(&mut world, &node.id).await;
        assert!(fields.contains("agents_waiting=4") && fields.contains("error="), "{fields}");
        assert!(seconds(&fields) < 60, "{fields}");
    }
    node.set(world.answers(200));
    world.log.says("INFO a node is reachable again").await;
    world.rests().await;
    assert_eq!(world.log.said(), [""; 0]);
}

#[tokio::test]
async fn an_outage_without_requests_is_logged_once() {
    let mut world = World::new(RemoteLimits { log_every: Span(0), ..soon() });
    let mut node = world.broken_node().await;
    for _ in 0..5 {
        node.asked().await;
    }
    assert_eq!(world.log.said(), [UNREACHABLE]);
}

#[tokio::test]
async fn a_node_that_an_operator_found_silent_is_called_and_its_breaker_opens() {
    let mut world = World::new(soon());
    let node = world.called_node(0).await;
    world.nodes.probe(&NodeId::new("http://127.0.0.1:1"));
    let id = node.id.clone();
    node.die().await;
    world.nodes.probe(&id);
    world.log.says(UNREACHABLE).await;
    let waiting: usize = world.nodes.peers().iter().map(|peer| peer.notifications_pending).sum();
    assert_eq!((world.nodes.peers().len(), waiting), (1, 0));
}

#[tokio::test]
async fn an_outage_is_not_logged_again_before_the_interval() {
    let mut world = World::new(soon());
    let mut node = world.node_that(Act::Reset(Vec::new())).await;
    world.nodes.notify_stored(&node.id, AGENT);
    for _ in 0..5 {
        node.asked().await;
        world.nodes.notify_stored(&node.id, AGENT);
    }
    assert_eq!(world.log.said(), [UNREACHABLE]);
}

#[tokio::test]
async fn a_new_outage_is_logged_at_once() {
    let mut world = World::new(soon());
    let (id, mut address) = world.dead_node().await;
    for _ in 0..2 {
        assert_eq!(world.pushed(&id).await, NodeAnswer::Unreachable);
        world.log.says(UNREACHABLE).await;
        let node = world.node_at(address).await;
        world.log.says("INFO a node is reachable again").await;
        world.rests().await;
        address = node.die().await;
    }
}
