//! A slow client costs itself a detour through storage, and other clients nothing.

use state_machine::delivery::Outcome;
use state_machine::{Message, NodeId, Span, Uaid};
use storage::StoreOp;

use crate::clockwork::{self, pass, settle};
use crate::node::{ACK_WAIT, Bounds, Ground, Node, UserAgent, Way};

/// Pushes that wait for an ack, more than there may be of those that want the store.
const WAITING: u8 = 5;

#[clockwork::test]
async fn pushes_that_wait_for_acks_leave_room_for_pushes_to_be_stored() {
    let node = with_room_for_one().await;
    let offline = offline(&node, 99).await;
    let (mut agents, mut waiting) = (Vec::new(), Vec::new());
    for number in 0..WAITING {
        let mut agent = UserAgent::new(&node, number).await;
        waiting.push(node.sends(&mut agent).await.1);
        agents.push(agent);
    }
    assert_eq!(node.endpoints.in_flight(), usize::from(WAITING));
    node.stores(offline).await;
    pass(ACK_WAIT).await;
    for sent in waiting {
        assert_eq!(sent.await.unwrap(), Outcome::Stored);
    }
    assert_eq!(node.endpoints.in_flight(), 0);
}

#[clockwork::test]
async fn a_push_beyond_in_flight_max_is_rejected() {
    let node = with_room_for_one().await;
    let [first, second] = [offline(&node, 1).await, offline(&node, 2).await];
    node.gate.set_open(false);
    let stored = node.send(first, node.message());
    node.gate.has_messages(1).await;
    let refused = node.send(second, node.message()).await.unwrap();
    assert_eq!(refused, Outcome::Unavailable);
    assert_eq!(node.endpoints.in_flight(), 1, "the refused push does not count");

    node.gate.set_open(true);
    assert_eq!(stored.await.unwrap(), Outcome::Stored);
    node.stores(second).await;
}

#[clockwork::test]
async fn a_push_that_was_not_acked_is_stored_though_in_flight_max_is_reached() {
    let node = with_room_for_one().await;
    let mut agent = UserAgent::new(&node, 1).await;
    let offline = offline(&node, 2).await;
    let (_, waiting) = node.sends(&mut agent).await;
    node.gate.set_open(false);
    let stored = node.send(offline, node.message());
    node.gate.has_messages(1).await;
    pass(ACK_WAIT).await;
    node.gate.has_messages(2).await;
    node.gate.set_open(true);
    assert_eq!(waiting.await.unwrap(), Outcome::Stored);
    assert_eq!(stored.await.unwrap(), Outcome::Stored);
}

#[clockwork::test]
async fn at_most_ack_waiters_max_pushes_wait_for_a_frozen_connection() {
    let mut bounds = Bounds::default();
    bounds.endpoint.pushes_awaiting_ack_max = 1;
    let (node, mut agent) = Node::with_agent(bounds).await;
    let go_on = agent.stands_still().await;
    let fleeting = || Message { ttl: Span(0), ..node.message() };
    let first = fleeting();
    let waits = node.send(agent.uaid, first.clone());
    settle().await;
    assert_eq!(node.send(agent.uaid, fleeting()).await.unwrap(), Outcome::Dropped);
    drop(go_on);
    assert_eq!(waits.await.unwrap(), Outcome::Delivered);
    assert_eq!(agent.is_notified().await, first.id);
    agent.heard_nothing_more();
}

#[clockwork::test]
async fn an_agent_whose_pushes_wait_leaves_room_for_those_of_others() {
    let mut bounds = Bounds::default();
    bounds.endpoint.pushes_awaiting_ack_max = 2;
    bounds.endpoint.agent_pushes_awaiting_ack_max = 1;
    let node = Node::within(bounds).await;
    let [frozen, mut other] = [UserAgent::new(&node, 1).await, UserAgent::new(&node, 2).await];
    let go_on = frozen.stands_still().await;
    let fleeting = || Message { ttl: Span(0), ..node.message() };
    let waits = node.send(frozen.uaid, fleeting());
    settle().await;
    assert_eq!(node.send(frozen.uaid, fleeting()).await.unwrap(), Outcome::Dropped);
    node.delivers(&mut other).await;
    drop(go_on);
    assert_eq!(waits.await.unwrap(), Outcome::Delivered);
}

#[clockwork::test]
async fn a_busy_client_costs_a_push_one_write_and_a_second_look() {
    let (node, mut agent) = Node::with_agent(Bounds::default()).await;
    let (first, waiting) = node.sends(&mut agent).await;
    node.gate.take_calls();
    node.orders.lift();

    let second = node.stores(agent.uaid).await;
    assert_eq!(node.gate.take_calls(), ["record", "store_message", "record"]);
    settle().await;
    assert_eq!(node.orders.orders(), [""; 0], "the client asks for nothing while it is busy");

    agent.acks(first);
    assert_eq!(waiting.await.unwrap(), Outcome::Delivered);
    assert_eq!(agent.is_notified().await, second);
    assert_eq!(node.gate.take_calls(), [""; 0], "a direct push writes nothing");
    agent.acks(second);
    node.until_nothing_is_stored(agent.uaid).await;
}

#[clockwork::test]
async fn a_direct_push_costs_one_read_and_no_write() {
    let (node, mut agent) = Node::with_agent(Bounds::default()).await;
    settle().await;
    node.orders.lift();
    node.delivers(&mut agent).await;
    settle().await;
    assert_eq!(node.gate.take_calls(), ["record"]);
    assert_eq!(node.orders.orders(), [""; 0]);
}

#[test]
fn a_burst_larger_than_the_endpoints_mailbox_is_accepted() {
    const BURST: usize = 30;
    clockwork::run(async {
        let mut bounds = Bounds::default();
        bounds.endpoint.mailbox_max = 1;
        let node = Node::within(bounds).await;
        let offline = offline(&node, 1).await;
        let pushes: Vec<_> = (0..BURST).map(|_| node.send(offline, node.message())).collect();
        for sent in pushes {
            assert_eq!(sent.await.unwrap(), Outcome::Stored);
        }
        assert_eq!(node.stored(offline).await.len(), BURST);
    });
}

#[clockwork::test]
async fn a_node_that_hangs_delays_no_push_for_another_node() {
    let ground = Ground::on_disk().await;
    let [hanging, well, sender] =
        ["hanging", "well", "sender"].map(|name| Node::on(&ground, &named(name)));
    let mut neighbour = UserAgent::new(&well, 100).await;
    let mut waiting = Vec::new();
    let mut agents = Vec::new();
    for number in 0..WAITING {
        agents.push(UserAgent::new(&hanging, number).await);
    }
    ground.neighbours.set_way(&NodeId::new("hanging"), Way::Hangs);
    for agent in &agents {
        waiting.push(sender.send(agent.uaid, sender.message()));
    }
    settle().await;
    // With no time gone by.
    sender.delivers(&mut neighbour).await;
    assert!(waiting.iter().all(|sent| !sent.is_finished()));
    pass(ACK_WAIT).await;
    pass(ACK_WAIT).await;
    for sent in waiting {
        assert_eq!(sent.await.unwrap(), Outcome::Stored);
    }
}

/// A node on which one push may want the store at a time, and many may wait for acks.
async fn with_room_for_one() -> Node {
    let mut bounds = Bounds::default();
    bounds.endpoint.in_flight_max = 1;
    Node::within(bounds).await
}

/// An agent that has disconnected, as its record shows.
pub(crate) async fn offline(node: &Node, number: u8) -> Uaid {
    let uaid = UserAgent::new(node, number).await.hangs_up().await;
    let record = node.store.record(uaid).await.unwrap().unwrap();
    let binding = record.binding().unwrap();
    node.store.execute(StoreOp::ClearNode { uaid, binding }).await.unwrap();
    uaid
}

fn named(name: &'static str) -> Bounds {
    Bounds { name, ..Bounds::default() }
}
