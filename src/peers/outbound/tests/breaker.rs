//! Nodes that are left alone, and tried again.

use actors::NodeDirectory;
use state_machine::Uaid;
use state_machine::delivery::NodeAnswer;
use tokio::task::yield_now;

use super::node::{Act, Node};
use super::world::{AGENT, World, limits, soon};

const LEFT_ALONE: &str = "WARN a node failed and is left alone";

#[tokio::test]
async fn all_that_is_under_way_when_a_node_dies_is_one_failure() {
    let mut world = World::new(limits());
    let (tell, hold) = Act::hold();
    let mut node = world.node_that(hold).await;
    let pushes: Vec<_> = (0..300).map(|_| world.push(&node.id)).collect();
    for _ in 0..300 {
        node.asked().await;
    }
    drop(tell);
    for push in pushes {
        assert_eq!(push.await, Ok(NodeAnswer::Unreachable));
    }
    assert_eq!(world.said(), [LEFT_ALONE]);
    assert_eq!(world.refused(&node.id), NodeAnswer::Unreachable);
}

#[tokio::test]
async fn no_push_tries_a_node_that_is_left_alone() {
    let world = World::new(limits());
    let mut node = world.node_that(Act::Reset(Vec::new())).await;
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::Unreachable);
    for _ in 0..100 {
        assert_eq!(world.refused(&node.id), NodeAnswer::Unreachable);
        world.nodes.notify_stored(&node.id, AGENT);
    }
    assert_eq!(node.requests(), [format!("PUT /push/{AGENT}")]);
}

#[tokio::test]
async fn a_node_is_asked_for_nobody_when_its_rest_is_over_and_is_back_when_it_answers() {
    let mut world = World::new(soon());
    let mut node = world.node_that(Act::Reset(Vec::new())).await;
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::Unreachable);
    world.says(LEFT_ALONE).await;
    assert_eq!(node.asked().await.line, format!("PUT /push/{AGENT}"));
    let nobody = Uaid([0; 16]);
    for _ in 0..3 {
        assert_eq!(node.asked().await.line, format!("PUT /notif/{nobody}"));
    }
    node.set(world.answers(404));
    world.says("INFO a node is back").await;
    world.rests().await;
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::NotHere);
    assert_eq!(world.said(), [""; 0], "once for each change");
}

#[tokio::test]
async fn a_node_that_is_another_ones_now_is_not_back() {
    let mut world = World::new(soon());
    let mut node = world.node_that(Act::write("HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n")).await;
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::Unreachable);
    for _ in 0..4 {
        node.asked().await;
    }
    let said = world.said();
    let of_keys = said.iter().filter(|line| line.contains("cluster_keys"));
    assert_eq!(of_keys.count(), 1, "once a minute");
    assert_eq!(world.refused(&node.id), NodeAnswer::Unreachable);
}

#[tokio::test]
async fn a_node_is_tried_with_one_request_and_nobody_else_asks_it_until_that_is_answered() {
    let world = World::new(soon());
    let mut node = world.node_that(Act::Reset(Vec::new())).await;
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::Unreachable);
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
async fn an_answer_that_was_under_way_shows_that_a_node_is_back_and_it_is_told_at_once() {
    let mut world = World::new(limits());
    let (tell, hold) = Act::hold();
    let mut node = world.node_that(hold).await;
    let push = world.push(&node.id);
    node.asked().await;
    node.set(Act::Reset(Vec::new()));
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::Unreachable);
    world.nodes.notify_stored(&node.id, AGENT);
    assert!(world.leaves_alone(&node.id));
    node.requests();
    node.set(world.answers(200));
    tell.send_replace(Some(200));
    assert_eq!(push.await, Ok(NodeAnswer::Accepted));
    world.says("INFO a node is back").await;
    world.rests().await;
    assert_eq!(node.requests(), [format!("PUT /notif/{AGENT}")]);
}

#[tokio::test]
async fn a_node_that_died_is_found_again_where_it_was() {
    let mut world = World::new(soon());
    let node = world.node(200).await;
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::Accepted);
    let id = node.id.clone();
    let address = node.die().await;
    assert_eq!(world.pushed(&id).await, NodeAnswer::Unreachable);
    world.says(LEFT_ALONE).await;
    let _node = Node::start_at(address, &world.keys, &world.clock, world.answers(200)).await;
    world.says("INFO a node is back").await;
    assert_eq!(world.pushed(&id).await, NodeAnswer::Accepted);
}
