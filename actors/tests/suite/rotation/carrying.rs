//! Unacked messages are moved to the new month.

use serde_json::json;
use state_machine::connection::{CloseReason, PhaseName};
use state_machine::delivery::Outcome;
use state_machine::{Message, MessageId, Span, Topic, Urgency};

use super::agent::Agent;
use super::moving::small_pages;
use super::world::{DRAIN_WAIT, NEW, OLD, World, in_month, in_table, it_becomes, lasting, month};
use crate::node::{Fate, Node};
use crate::traces;

pub(crate) async fn unacked_messages_are_moved_and_redelivered_until_acked(world: World) {
    let (node, uaid, waiting) = world.agent_to_move(2).await;
    let mut agent = Agent::silent(&node, uaid);
    agent.is_waited_for().await;
    agent.lets_pass(&node, Span(DRAIN_WAIT.0 / 2));
    agent.is_waited_for().await;
    assert_eq!(traces::line(agent.line()).phase, PhaseName::DrainingOldMonth);
    assert_eq!(world.rows(uaid).await, in_table(OLD, &waiting));

    agent.comes_to_rest(&node).await;
    assert_eq!(agent.got, waiting, "once on one connection");
    assert_eq!(world.rows(uaid).await, in_table(NEW, &waiting));
    let record = world.record_of(uaid).await;
    assert_eq!((record.curmonth, record.oldmonth), (month(NEW), None));
    agent.hangs_up().await;

    assert_eq!(Agent::visits(&node, uaid).await, waiting, "from the new month");
    world.is_done_after_visit(&node, uaid, &[], NEW).await;
}

pub(crate) async fn messages_that_had_no_room_to_be_sent_are_carried_over_too(world: World) {
    let node = world.node(in_month(OLD), small_pages);
    let (uaid, waiting) = world.agent_of_last_month(&node, 1, 9).await;
    it_becomes(&node, NEW);
    let mut agent = Agent::silent(&node, uaid);
    agent.comes_to_rest(&node).await;
    assert_eq!(agent.got.len(), 4, "that much may be unacked");
    assert_eq!(world.rows(uaid).await, in_table(NEW, &waiting));
    agent.acks_all();
    agent.comes_to_rest(&node).await;
    assert_eq!(agent.got, waiting);
    agent.hangs_up().await;
    world.is_done_after_visit(&node, uaid, &[], NEW).await;
}

pub(crate) async fn an_ack_after_the_carrying_settles_the_message(world: World) {
    let (node, uaid, waiting) = world.agent_to_move(2).await;
    let mut agent = Agent::silent(&node, uaid);
    agent.comes_to_rest(&node).await;
    assert_eq!(world.rows(uaid).await, in_table(NEW, &waiting));
    agent.acks_all();
    agent.comes_to_rest(&node).await;
    assert_eq!(world.rows(uaid).await, []);
    agent.hangs_up().await;
    world.is_done_after_visit(&node, uaid, &[], NEW).await;
}

pub(crate) async fn a_drain_wait_of_nothing_waits_for_the_acks_for_ever(world: World) {
    const DAYS_10: Span = Span::from_secs(10 * 24 * 60 * 60);
    let node = world.node(in_month(OLD), |bounds| bounds.limits.drain_wait = Span::ZERO);
    let (uaid, waiting) = world.agent_of_last_month(&node, 1, 2).await;
    it_becomes(&node, NEW);
    let mut agent = Agent::silent(&node, uaid);
    agent.is_waited_for().await;
    agent.lets_pass(&node, DAYS_10);
    agent.is_waited_for().await;
    assert_eq!(traces::line(agent.line()).phase, PhaseName::DrainingOldMonth);
    assert_eq!(world.rows(uaid).await, in_table(OLD, &waiting));
    assert_eq!(world.record_of(uaid).await.curmonth, month(OLD));

    agent.acks_all();
    agent.comes_to_rest(&node).await;
    assert_eq!(agent.got, waiting);
    assert_eq!(agent.closed, None::<CloseReason>);
    world.is_done_with(uaid, NEW).await;
}

/// Held back by an urgency filter that was set before the move was over, a row is not lost either.
pub(crate) async fn messages_that_no_connection_can_take_are_carried_over_too(world: World) {
    let (node, uaid, mut waiting) = world.agent_with(1).await;
    let low = Message { urgency: Urgency::VeryLow, ..lasting(&node) };
    waiting.push(low.id);
    node.send(uaid, low).await.unwrap();
    it_becomes(&node, NEW);
    let mut agent = Agent::silent(&node, uaid);
    agent.says(&json!({"messageType": "urgency", "min": "high"}));
    agent.comes_to_rest(&node).await;
    agent.hangs_up().await;
    assert_eq!(world.rows(uaid).await, in_table(NEW, &waiting));
    world.is_done_after_visit(&node, uaid, &waiting, NEW).await;
}

pub(crate) async fn of_a_topic_only_the_newest_message_is_left_after_the_carrying(world: World) {
    let (node, uaid, _) = world.agent_with(0).await;
    let (first, second) = (of_a_topic(&node), of_a_topic(&node));
    assert_eq!(node.send(uaid, first.clone()).await.unwrap(), Outcome::Stored);
    it_becomes(&node, NEW);
    // Register, channels, fetch, offers, copy, record: the carrying is next.
    node.orders.set(6, Fate::Held);
    let mut agent = Agent::silent(&node, uaid);
    agent.is_waited_for().await;
    agent.lets_pass(&node, DRAIN_WAIT);
    node.orders.has_met(1).await;
    assert_eq!(node.orders.orders().last().unwrap(), "carry 2026_11 2026_12");
    assert_eq!(node.send(uaid, second.clone()).await.unwrap(), Outcome::Stored);
    let rows = [in_table(OLD, &[first.id]), in_table(NEW, &[second.id])];
    assert_eq!(world.rows(uaid).await, rows.concat());
    node.orders.release();
    agent.comes_to_rest(&node).await;
    assert_eq!(world.rows(uaid).await, in_table(NEW, &[second.id]));
    agent.hangs_up().await;
    world.is_done_after_visit(&node, uaid, &[second.id], NEW).await;
}

fn of_a_topic(node: &Node) -> Message {
    let message = lasting(node);
    let mut id = message.id.to_bytes();
    // The lowest bit of an id marks a topic.
    id[15] |= 1;
    let topic = Some(Topic::parse("news").unwrap());
    Message { id: MessageId::from_bytes(id), topic, ..message }
}
