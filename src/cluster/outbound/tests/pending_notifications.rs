//! Delivery of notifications to other nodes.

use actors::NodeDirectory;
use state_machine::{Time, Uaid};

use super::node::Act;
use super::world::{AGENT, OTHER_AGENT, World, limits, soon};
use crate::cluster::outbound::RemoteLimits;

fn stored(agent: Uaid) -> String {
    format!("PUT /notif/{agent}")
}

fn moved(agent: Uaid, since: u64) -> String {
    format!("DELETE /notif/{agent}/{since}")
}

#[tokio::test]
async fn a_notification_is_sent_at_once_and_any_answer_completes_it() {
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
async fn a_notification_is_repeated_if_the_node_has_no_capacity() {
    for status in [202, 503] {
        let world = World::new(soon());
        let mut node = world.node(status).await;
        world.nodes.notify_stored(&node.id, AGENT);
        for _ in 0..3 {
            assert_eq!(node.asked().await.line, stored(AGENT));
        }
        assert!(!world.is_open(&node.id), "it answers");
        node.set(world.answers(200));
        world.rests().await;
    }
}

#[tokio::test]
async fn a_node_without_capacity_is_not_asked_again_before_the_backoff() {
    for status in [202, 503] {
        let world = World::new(limits());
        let mut node = world.node(status).await;
        world.nodes.notify_stored(&node.id, AGENT);
        assert_eq!(node.asked().await.line, stored(AGENT));
        // A notification that is repeated at once would arrive between these.
        for _ in 0..20 {
            world.pushed(&node.id).await;
        }
        let again = node.requests().iter().filter(|line| **line == stored(AGENT)).count();
        assert_eq!(again, 0, "{status}");
    }
}

#[tokio::test]
async fn notifications_of_an_outage_are_sent_once_after_it() {
    let mut world = World::new(soon());
    let mut node = world.node_that(Act::Reset(Vec::new())).await;
    world.nodes.notify_stored(&node.id, AGENT);
    assert_eq!(node.asked().await.line, stored(AGENT));
    world.log.says("is unreachable").await;
    let id = node.id.clone();
    let address = node.die().await;
    for _ in 0..100 {
        world.nodes.notify_stored(&id, AGENT);
        world.nodes.notify_stored(&id, OTHER_AGENT);
    }
    for since in [5, 9, 7] {
        world.nodes.notify_moved(&id, AGENT, Time(since));
    }
    let mut node = world.node_at(address).await;
    world.log.says("a node is reachable again").await;
    world.rests().await;
    let mut told = node.requests();
    told.sort();
    assert_eq!(told, [moved(AGENT, 9), stored(AGENT), stored(OTHER_AGENT)]);
}

#[tokio::test]
async fn notifications_above_the_limit_are_dropped() {
    let mut world = World::new(RemoteLimits { pending_notifications_max: 2, ..soon() });
    let mut node = world.node_that(Act::Reset(Vec::new())).await;
    world.push(&node.id).await.unwrap();
    for number in 1..10 {
        world.nodes.notify_stored(&node.id, Uaid([number; 16]));
    }
    node.noticed();
    node.set(world.answers(200));
    world.log.says("a node is reachable again").await;
    world.rests().await;
    assert_eq!(node.requests(), [1, 2].map(|number| stored(Uaid([number; 16]))));
}

#[tokio::test]
async fn many_notifications_are_sent() {
    let world = World::new(limits());
    let mut node = world.node(200).await;
    for number in 0..200 {
        world.nodes.notify_stored(&node.id, Uaid([number; 16]));
    }
    world.rests().await;
    assert_eq!(node.requests().len(), 200);
}
