//! Every queue is bounded, and a message that finds one full is handled otherwise; none is lost.

use std::sync::Arc;

use actix::dev::SendError;
use actors::registry::{ConnectedElsewhere, MessageStored, NotifyResult};
use actors::{Directory, NoPeers, NodeDirectory, RegistryActor};
use serde_json::json;
use state_machine::connection::CloseReason;
use state_machine::delivery::{NodeAnswer, Outcome};
use state_machine::{Month, NodeId, Time, Uaid};

use crate::clockwork::{self, pass, settle};
use crate::node::{ACK_WAIT, Bounds, Node, UserAgent, fill, log};
use crate::sessions::scripted_broadcasts::ScriptedBroadcasts;

#[clockwork::test]
async fn a_push_into_a_full_mailbox_is_busy_at_once() {
    let (node, mut agent) =
        Node::with_agent(Bounds { client_mailbox_max: 1, ..Bounds::default() }).await;
    let go_on = agent.stands_still().await;
    let (first, second) = (node.message(), node.message());
    let mut waits = node.deliver(agent.uaid, first.clone());
    let refused = node.deliver(agent.uaid, second);
    assert_eq!(refused.await, Ok(NodeAnswer::Busy));
    assert!(waits.try_recv().is_err(), "the first push is in the mailbox");

    drop(go_on);
    assert_eq!(agent.is_notified().await, first.id);
    agent.acks(first.id);
    assert_eq!(waits.await, Ok(NodeAnswer::Accepted));
}

#[clockwork::test]
async fn a_message_stored_while_the_mailbox_is_full_is_found_without_another_notification() {
    let (node, mut agent) =
        Node::with_agent(Bounds { client_mailbox_max: 1, ..Bounds::default() }).await;
    let go_on = agent.stands_still().await;
    let in_the_mailbox = node.deliver(agent.uaid, node.message());
    drop(in_the_mailbox);

    let message = node.stores(agent.uaid).await;
    settle().await;
    agent.heard_nothing_more();

    drop(go_on);
    node.is_taken(&mut agent, message).await;
}

#[clockwork::test]
async fn a_push_beyond_the_ack_waiters_is_stored_at_once() {
    let mut bounds = Bounds::default();
    bounds.endpoint.pushes_awaiting_ack_max = 1;
    let node = Node::within(bounds).await;
    let mut slow = UserAgent::new(&node, 1).await;
    let mut quick = UserAgent::new(&node, 2).await;
    let (waits, waiting) = node.sends(&mut slow).await;

    let goes_round = node.stores(quick.uaid).await;
    node.is_taken(&mut quick, goes_round).await;

    slow.acks(waits);
    assert_eq!(waiting.await.unwrap(), Outcome::Delivered);
    // There is room to wait again.
    node.delivers(&mut quick).await;
    assert_eq!(node.gate.messages(), 1);
}

#[clockwork::test]
async fn a_push_whose_node_never_answers_is_stored_after_the_answer_wait() {
    let (node, mut agent) = Node::with_agent(Bounds::default()).await;
    let go_on = agent.stands_still().await;
    let message = node.message();
    let sent = node.send(agent.uaid, message.clone());
    settle().await;
    pass(ACK_WAIT).await;
    assert_eq!(node.gate.messages(), 0, "the endpoint still waits");
    pass(ACK_WAIT).await;
    assert_eq!(sent.await.unwrap(), Outcome::Stored);

    // The endpoint of the push in the mailbox has given up: only the stored message is sent.
    drop(go_on);
    node.is_taken(&mut agent, message.id).await;
    agent.heard_nothing_more();
}

#[clockwork::test]
async fn a_push_reaches_its_agent_while_the_registrys_mailbox_is_full() {
    let (node, mut agent) =
        Node::with_agent(Bounds { registry_mailbox_max: 1, ..Bounds::default() }).await;
    settle().await;
    fill(&node.registry);
    accepts(&node, &mut agent).await;
}

#[clockwork::test]
async fn a_connection_is_closed_if_the_registrys_mailbox_is_full() {
    let node = Node::within(Bounds { registry_mailbox_max: 1, ..Bounds::default() }).await;
    let mut agent = UserAgent::connect(&node, Uaid([1; 16]));
    settle().await;
    agent.says(&json!({"messageType": "hello"}));
    // The client runs before the registry, whose mailbox stays full until then.
    fill(&node.clients.registry);
    assert_eq!(agent.hears().await["status"], 200);
    assert_eq!(agent.is_closed().await, CloseReason::Shutdown);
    assert_eq!(node.find(agent.uaid).await, None);
}

#[clockwork::test]
async fn a_connection_is_closed_if_the_broadcasters_mailbox_is_full() {
    let broadcasts = ScriptedBroadcasts::within(1);
    let node = telling(&broadcasts).await;
    settle().await;
    let agents = [1, 2].map(|number| UserAgent::connect(&node, Uaid([number; 16])));
    settle().await;
    // Both are served before the actor is.
    for agent in &agents {
        agent.says(&json!({"messageType": "hello", "broadcasts": {"news": "v1"}}));
    }
    let [mut first, mut second] = agents;
    let refused = json!({"errors": {"news": "Broadcast not found"}});
    for agent in [&mut first, &mut second] {
        assert_eq!(agent.hears().await["broadcasts"], refused);
    }
    assert_eq!(second.is_closed().await, CloseReason::Shutdown);
    first.heard_nothing_more();
}

#[clockwork::test]
async fn a_connection_is_served_though_the_broadcaster_has_stopped() {
    let broadcasts = ScriptedBroadcasts::within(1);
    let node = telling(&broadcasts).await;
    broadcasts.stop().await;
    settle().await;
    let mut agent = UserAgent::new(&node, 1).await;
    agent.says(&json!({"messageType": "broadcast_subscribe", "broadcasts": {"news": "v1"}}));
    assert_eq!(agent.hears().await["messageType"], "broadcast");
    accepts(&node, &mut agent).await;
}

#[clockwork::test]
async fn a_notification_is_answered_with_whether_the_agent_is_connected() {
    let (node, mut agent) = Node::with_agent(Bounds::default()).await;
    let (here, stranger) = (agent.uaid, Uaid([2; 16]));
    let moved = |uaid| ConnectedElsewhere { uaid, connected_at: Time(u64::MAX) };
    let stored = async |uaid| node.registry.send(MessageStored { uaid }).await;
    assert_eq!(stored(here).await, Ok(NotifyResult::Delivered));
    assert_eq!(stored(stranger).await, Ok(NotifyResult::NotConnected));
    assert_eq!(node.registry.send(moved(stranger)).await, Ok(NotifyResult::NotConnected));
    settle().await;
    agent.heard_nothing_more();
    assert_eq!(node.registry.send(moved(here)).await, Ok(NotifyResult::Delivered));
    assert_eq!(agent.is_closed().await, CloseReason::Replaced);
    assert_eq!(stored(here).await, Ok(NotifyResult::NotConnected));
}

#[clockwork::test]
async fn a_full_registry_rejects_a_try_send_and_answers_a_send() {
    let (node, mut agent) =
        Node::with_agent(Bounds { registry_mailbox_max: 1, ..Bounds::default() }).await;
    let uaid = agent.uaid;
    settle().await;
    let message = node.message();
    let month = Month::of(message.accepted_at);
    node.store.store_message(uaid, month, message.clone()).await.unwrap();

    fill(&node.registry);
    assert!(matches!(node.registry.try_send(MessageStored { uaid }), Err(SendError::Full(_))));
    // Its sender is a further one, with a place of its own.
    let waits = node.registry.send(MessageStored { uaid });
    assert_eq!(waits.await, Ok(NotifyResult::Delivered));
    node.is_taken(&mut agent, message.id).await;
}

#[clockwork::test]
async fn a_signal_for_a_connection_with_a_full_mailbox_is_handled_later() {
    let (node, mut agent) =
        Node::with_agent(Bounds { client_mailbox_max: 1, ..Bounds::default() }).await;
    let go_on = agent.stands_still().await;
    drop(node.deliver(agent.uaid, node.message()));
    settle().await;
    node.directory.notify_stored(&node.clients.config.node, agent.uaid);
    let connected_at = Time(u64::MAX);
    node.directory.notify_moved(&node.clients.config.node, agent.uaid, connected_at);
    node.directory.notify_moved(&node.clients.config.node, agent.uaid, Time(1));
    settle().await;
    drop(go_on);
    assert_eq!(agent.is_closed().await, CloseReason::Replaced);
}

#[clockwork::test]
async fn a_node_without_peers_gives_its_answer_for_records_of_other_nodes() {
    let (node, agent) = Node::with_agent(Bounds::default()).await;
    for foreign_answer in [NodeAnswer::NotHere, NodeAnswer::Unreachable] {
        let name = node.clients.config.node.clone();
        let peers = Arc::new(NoPeers(foreign_answer));
        let directory = Directory::start(RegistryActor::new(16, peers, log()), Some(name));
        let answer = directory.deliver(&NodeId::new("else"), agent.uaid, node.message());
        assert_eq!(answer.await, Ok(foreign_answer));
    }
}

/// A push that its agent acks is accepted.
async fn accepts(node: &Node, agent: &mut UserAgent) {
    let message = node.message();
    let answer = node.deliver(agent.uaid, message.clone());
    assert_eq!(agent.is_notified().await, message.id);
    agent.acks(message.id);
    assert_eq!(answer.await, Ok(NodeAnswer::Accepted));
}

/// A node without any broadcast.
async fn telling(broadcasts: &ScriptedBroadcasts) -> Node {
    Node::within(Bounds { broadcasts: Some(broadcasts.view()), ..Bounds::default() }).await
}
