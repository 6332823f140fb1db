//! The circuit breaker of a node.

use actors::NodeDirectory;
use state_machine::Uaid;
use state_machine::delivery::NodeAnswer;
use tokio::task::yield_now;

use super::node::Act;
use super::world::{AGENT, World, limits, soon};

const UNREACHABLE: &str = "WARN a node is unreachable, its messages are stored";

#[tokio::test]
async fn requests_in_progress_when_a_node_dies_count_as_one_failure() {
    let mut world = World::new(limits());
    let (tell, mut node) = world.holding_node().await;
    let pushes: Vec<_> = (0..300).map(|_| world.push(&node.id)).collect();
    for _ in 0..300 {
        node.asked().await;
    }
    drop(tell);
    for push in pushes {
        assert_eq!(push.await, Ok(NodeAnswer::Unreachable));
    }
    assert_eq!(world.log.said(), [UNREACHABLE]);
    assert_eq!(world.refused(&node.id), NodeAnswer::Unreachable);
}

#[tokio::test]
async fn no_push_is_sent_while_the_breaker_is_open() {
    let world = World::new(limits());
    let mut node = world.broken_node().await;
    for _ in 0..100 {
        assert_eq!(world.refused(&node.id), NodeAnswer::Unreachable);
        world.nodes.notify_stored(&node.id, AGENT);
    }
    assert_eq!(node.requests(), [format!("PUT /push/{AGENT}")]);
}

#[tokio::test]
async fn a_node_is_probed_after_the_backoff_and_the_breaker_closes_when_it_answers() {
    let mut world = World::new(soon());
    let mut node = world.broken_node().await;
    world.log.says(UNREACHABLE).await;
    assert_eq!(node.asked().await.line, format!("PUT /push/{AGENT}"));
    let probe_agent = Uaid([0; 16]);
    for _ in 0..3 {
        assert_eq!(node.asked().await.line, format!("PUT /notif/{probe_agent}"));
    }
    node.set(world.answers(404));
    world.log.says("INFO a node is reachable again").await;
    world.rests().await;
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::NotHere);
    assert_eq!(world.log.said(), [""; 0], "once for each change");
}

#[tokio::test]
async fn an_unsigned_answer_does_not_close_the_breaker() {
    let mut world = World::new(soon());
    let mut node = world.node_that(Act::write("HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n")).await;
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::Unreachable);
    for _ in 0..4 {
        node.asked().await;
    }
    let said = world.log.said();
    let of_keys = said.iter().filter(|line| line.contains("cluster_keys"));
    assert_eq!(of_keys.count(), 1, "once a minute");
    assert_eq!(world.refused(&node.id), NodeAnswer::Unreachable);
}

#[tokio::test]
async fn a_half_open_breaker_allows_one_request() {
    let world = World::new(soon());
    let mut node = world.broken_node().await;
    let (tell, hold) = Act::hold();
    node.set(hold);
    while !node.asked().await.line.starts_with("PUT /notif/") {}
    for number in 1..=100 {
        world.nodes.notify_stored(&node.id, Uaid([number; 16]));
        assert_eq!(world.refused(&node.id), NodeAnswer::Unreachable);
        yield_now().await;
    }
    assert_eq!(node.requests(), [""; 0]);
    tell.send_replace(Some(404));
    world.rests().await;
    assert_eq!(node.requests().len(), 100);
}

#[tokio::test]
async fn an_answer_to_an_earlier_request_closes_the_breaker_and_notifications_are_sent() {
    let mut world = World::new(limits());
    let (tell, mut node) = world.holding_node().await;
    let push = world.push(&node.id);
    node.asked().await;
    node.set(Act::Reset(Vec::new()));
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::Unreachable);
    world.nodes.notify_stored(&node.id, AGENT);
    assert!(world.is_open(&node.id));
    node.requests();
    node.set(world.answers(200));
    tell.send_replace(Some(200));
    assert_eq!(push.await, Ok(NodeAnswer::Accepted));
    world.log.says("INFO a node is reachable again").await;
    world.rests().await;
    assert_eq!(node.requests(), [format!("PUT /notif/{AGENT}")]);
}

#[tokio::test]
async fn a_restarted_node_is_reachable_again() {
    let mut world = World::new(soon());
    let node = world.called_node(0).await;
    let id = node.id.clone();
    let address = node.die().await;
    assert_eq!(world.pushed(&id).await, NodeAnswer::Unreachable);
    world.log.says(UNREACHABLE).await;
    let _node = world.node_at(address).await;
    world.log.says("INFO a node is reachable again").await;
    assert_eq!(world.pushed(&id).await, NodeAnswer::Accepted);
}
