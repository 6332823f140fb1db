//! Endpoints that push while the month of an agent moves.

use serde_json::json;
use state_machine::delivery::Outcome;

use super::agent::Agent;
use super::world::{NEW, OLD, World, in_table, it_becomes, lasting};
use crate::node::{CHANNEL, Fate};

pub(crate) async fn an_endpoint_that_stores_after_the_move_finds_the_new_month(world: World) {
    let (node, uaid, waiting) = world.agent_with(1).await;
    node.gate.set_open(false);
    let message = lasting(&node);
    let sent = node.send(uaid, message.clone());
    node.gate.has_messages(2).await;
    it_becomes(&node, NEW);
    world.is_done_after_visit(&node, uaid, &waiting, NEW).await;

    node.gate.set_open(true);
    assert_eq!(sent.await.unwrap(), Outcome::Stored);
    assert_eq!(world.rows(uaid).await, in_table(NEW, &[message.id]));
    world.is_done_after_visit(&node, uaid, &[message.id], NEW).await;
}

pub(crate) async fn an_endpoint_that_stores_after_the_move_reaches_the_agent_that_stayed(
    world: World,
) {
    let (node, uaid, _) = world.agent_with(0).await;
    node.gate.set_open(false);
    let message = lasting(&node);
    let sent = node.send(uaid, message.clone());
    node.gate.has_messages(1).await;
    it_becomes(&node, NEW);
    let mut agent = Agent::settles(&node, uaid).await;
    node.gate.set_open(true);
    assert_eq!(sent.await.unwrap(), Outcome::Stored);
    agent.comes_to_rest(&node).await;
    assert_eq!(agent.got, [message.id], "the endpoint notified its node");
    world.is_done_with(uaid, NEW).await;
}

pub(crate) async fn a_row_stored_between_the_copy_and_the_record_is_found_by_the_last_look(
    world: World,
) {
    let (node, uaid, _) = world.agent_to_move(0).await;
    // Register, channels, fetch, copy: the next is the record.
    node.orders.set(4, Fate::Held);
    let mut agent = Agent::connects(&node, uaid);
    node.orders.has_met(1).await;
    let message = lasting(&node);
    assert_eq!(node.send(uaid, message.clone()).await.unwrap(), Outcome::Stored);
    assert_eq!(world.rows(uaid).await, in_table(OLD, &[message.id]));
    node.orders.release();
    agent.comes_to_rest(&node).await;
    assert_eq!(agent.got, [message.id]);
    world.is_done_with(uaid, NEW).await;
}

pub(crate) async fn a_second_look_that_fails_promises_nothing_and_the_row_is_found(world: World) {
    let (node, uaid, _) = world.agent_with(0).await;
    let message = lasting(&node);
    node.gate.answers_reads(1);
    assert_eq!(node.send(uaid, message.clone()).await.unwrap(), Outcome::Unavailable);
    assert_eq!(world.rows(uaid).await, in_table(OLD, &[message.id]));
    it_becomes(&node, NEW);
    world.is_done_after_visit(&node, uaid, &[message.id], NEW).await;
}

pub(crate) async fn an_endpoint_whose_channel_was_given_up_after_the_move_leaves_nothing(
    world: World,
) {
    let (node, uaid, _) = world.agent_with(0).await;
    node.gate.set_open(false);
    let sent = node.send(uaid, lasting(&node));
    node.gate.has_messages(1).await;
    it_becomes(&node, NEW);
    let mut agent = Agent::settles(&node, uaid).await;
    agent.says(&json!({"messageType": "unregister", "channelID": CHANNEL.to_string()}));
    agent.until(|agent, _| !agent.answers.is_empty()).await;
    assert_eq!(
        world.channels_in(uaid, OLD).await,
        Some([CHANNEL].into()),
        "that table is not read"
    );

    node.gate.set_open(true);
    assert_eq!(sent.await.unwrap(), Outcome::NoSuchChannel);
    agent.comes_to_rest(&node).await;
    assert_eq!(agent.got, []);
    world.is_done_with(uaid, NEW).await;
}
