//! What nodes are told beside pushes, and that it is told once they can hear it.

use actors::NodeDirectory;
use state_machine::{Time, Uaid};

use super::node::{Act, Node};
use super::world::{AGENT, OTHER_AGENT, World, limits, soon};
use crate::peers::outbound::RemoteLimits;

fn stored(agent: Uaid) -> String {
    format!("PUT /notif/{agent}")
}

fn moved(agent: Uaid, since: u64) -> String {
    format!("DELETE /notif/{agent}/{since}")
}

#[tokio::test]
async fn a_node_that_answers_is_told_at_once_and_whatever_it_says_is_the_last_word() {
    let world = World::new(limits());
    for status in [200, 404, 400, 410, 500] {
        let mut node = world.node(status).await;
        world.nodes.notify_stored(&node.id, AGENT);
        world.nodes.notify_moved(&node.id, OTHER_AGENT, Time(17));
        world.rests().await;
        let mut told = node.requests();
        told.sort();
        assert_eq!(told, [moved(OTHER_AGENT, 17), stored(AGENT)], "{status}");
    }
}

#[tokio::test]
async fn a_node_that_has_no_room_is_told_again_after_a_rest() {
    for status in [202, 503] {
        let world = World::new(soon());
        let mut node = world.node(status).await;
        world.nodes.notify_stored(&node.id, AGENT);
        for _ in 0..3 {
            assert_eq!(node.asked().await.line, stored(AGENT));
        }
        assert!(!world.leaves_alone(&node.id), "it answers");
        node.set(world.answers(200));
        world.rests().await;
    }
}

#[tokio::test]
async fn what_was_lost_with_a_node_is_told_when_it_is_back_and_each_thing_once() {
    let mut world = World::new(soon());
    let mut node = world.node_that(Act::Reset(Vec::new())).await;
    world.nodes.notify_stored(&node.id, AGENT);
    assert_eq!(node.asked().await.line, stored(AGENT));
    world.says("left alone").await;
    let id = node.id.clone();
    let address = node.die().await;
    for _ in 0..100 {
        world.nodes.notify_stored(&id, AGENT);
        world.nodes.notify_stored(&id, OTHER_AGENT);
    }
    for since in [5, 9, 7] {
        world.nodes.notify_moved(&id, AGENT, Time(since));
    }
    let act = world.answers(200);
    let mut node = Node::start_at(address, &world.keys, &world.clock, act).await;
    world.says("a node is back").await;
    world.rests().await;
    let mut told = node.requests();
    told.sort();
    assert_eq!(told, [moved(AGENT, 9), stored(AGENT), stored(OTHER_AGENT)]);
}

#[tokio::test]
async fn more_than_may_wait_are_not_remembered() {
    let mut world = World::new(RemoteLimits { pending_notifications_max: 2, ..soon() });
    let mut node = world.node_that(Act::Reset(Vec::new())).await;
    world.push(&node.id).await.unwrap();
    for number in 1..10 {
        world.nodes.notify_stored(&node.id, Uaid([number; 16]));
    }
    node.noticed();
    node.set(world.answers(200));
    world.says("a node is back").await;
    world.rests().await;
    assert_eq!(node.requests(), [1, 2].map(|number| stored(Uaid([number; 16]))));
}

#[tokio::test]
async fn many_are_told_though_each_waits_for_an_answer() {
    let world = World::new(limits());
    let mut node = world.node(200).await;
    for number in 0..200 {
        world.nodes.notify_stored(&node.id, Uaid([number; 16]));
    }
    world.rests().await;
    assert_eq!(node.requests().len(), 200);
}
