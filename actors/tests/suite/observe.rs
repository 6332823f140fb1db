//! The state that each actor reports follows what its agents, endpoints and followers do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actors::mailbox::MailboxState;
use actors::observe::{
    BreakerState, ClientState, EndpointState, Observe, PeerStatus, RegistryState,
};
use actors::registry::{ObserveClient, ShutDown};
use actors::{FeedLimits, NodeDirectory};
use serde_json::json;
use state_machine::connection::PhaseName;
use state_machine::delivery::{NodeAnswer, Outcome};
use state_machine::feed::FeedSyncId;
use state_machine::store::FullScope;
use state_machine::{Message, NodeId, Span, Time, Uaid};
use tokio::sync::oneshot;

use crate::backpressure::offline;
use crate::broadcasts::Town;
use crate::clockwork::{self, pass, settle};
use crate::feeds::{self, Call, FeedStore, Reader, feed, put};
use crate::node::{ACK_WAIT, Bounds, Fate, Node, UserAgent, WAITING_MAX, fill};

#[clockwork::test]
async fn the_registry_counts_clients_by_phase_until_all_are_closed() {
    let node = Node::start().await;
    assert_eq!(phases(&node).await, []);
    let silent = UserAgent::connect(&node, Uaid([9; 16]));
    settle().await;
    assert_eq!(phases(&node).await, [(PhaseName::AwaitingHello, 1)]);

    let agents = [UserAgent::new(&node, 1).await, UserAgent::new(&node, 2).await];
    settle().await;
    let open = [(PhaseName::AwaitingHello, 1), (PhaseName::Ready, 2)];
    assert_eq!(phases(&node).await, open);
    assert_eq!(registry(&node).await.connections, 2);

    let silent_uaid = silent.hangs_up().await;
    assert_eq!(silent_uaid, Uaid([9; 16]));
    for agent in agents {
        agent.hangs_up().await;
    }
    settle().await;
    assert_eq!(phases(&node).await, []);
    assert_eq!(registry(&node).await.connections, 0);
}

#[clockwork::test]
async fn a_client_whose_registration_is_not_stored_is_counted_as_identified() {
    let node = Node::start().await;
    let uaid = UserAgent::new(&node, 1).await.hangs_up().await;
    node.orders.set(0, Fate::Held);
    let agent = UserAgent::connect(&node, uaid);
    agent.says_hello();
    settle().await;
    assert_eq!(phases(&node).await, [(PhaseName::Identified, 1)]);
    agent.hangs_up().await;
    settle().await;
    assert_eq!(phases(&node).await, []);
}

#[clockwork::test]
async fn a_client_actor_that_vanishes_is_no_longer_counted() {
    let (node, mut agent) = Node::with_agent(Bounds::default()).await;
    let message = node.message();
    let waiting = node.deliver(agent.uaid, message.clone());
    assert_eq!(agent.is_notified().await, message.id);
    assert_eq!(registry(&node).await.clients.pushes_waiting, 1);
    agent.client.try_send(crate::wire::Vanish).unwrap();
    settle().await;
    drop(waiting);
    let clients = registry(&node).await.clients;
    assert_eq!((clients.phases, clients.pushes_waiting), (BTreeMap::new(), 0));
}

#[clockwork::test]
async fn the_endpoint_and_the_registry_count_a_push_until_it_is_acked() {
    let (node, mut agent) = Node::with_agent(Bounds::default()).await;
    assert_eq!(pushes(&node).await, (0, 0, 0));
    let (id, sent) = node.sends(&mut agent).await;
    assert_eq!(pushes(&node).await, (0, 1, 1));
    agent.acks(id);
    assert_eq!(sent.await.unwrap(), Outcome::Delivered);
    assert_eq!(pushes(&node).await, (0, 0, 0));
}

#[clockwork::test]
async fn the_endpoint_counts_a_push_that_waits_for_the_store() {
    let node = Node::start().await;
    let uaid = offline(&node, 1).await;
    node.gate.set_open(false);
    let sent = node.send(uaid, node.message());
    node.gate.has_messages(1).await;
    assert_eq!(pushes(&node).await, (1, 0, 0));
    node.gate.set_open(true);
    assert_eq!(sent.await.unwrap(), Outcome::Stored);
    let EndpointState { in_flight_max, pushes_awaiting_ack_max, mailbox, .. } =
        endpoint(&node).await;
    assert_eq!((in_flight_max, pushes_awaiting_ack_max), (100, 100));
    assert_eq!(mailbox, MailboxState { length: 0, max: 100 });
}

#[clockwork::test]
async fn the_endpoint_counts_the_pushes_that_it_refuses_because_too_many_messages_wait() {
    let node = Node::start().await;
    let uaid = offline(&node, 1).await;
    for _ in 0..WAITING_MAX {
        node.stores(uaid).await;
    }
    assert_eq!(endpoint(&node).await.refused_full, 0);
    for refused in 1..=2 {
        let outcome = node.send(uaid, node.message()).await.unwrap();
        assert_eq!(outcome, Outcome::Full(FullScope::User));
        assert_eq!(endpoint(&node).await.refused_full, refused);
    }
}

#[clockwork::test]
async fn a_client_reports_its_phase_its_unacked_messages_and_its_mailbox() {
    let (node, mut agent) = Node::with_agent(Bounds::default()).await;
    settle().await;
    let message = node.message();
    let waiting = node.deliver(agent.uaid, message.clone());
    assert_eq!(agent.is_notified().await, message.id);
    let state = client(&node, agent.uaid).await.unwrap();
    assert_eq!(Some(state.connection), node.find(agent.uaid).await);
    assert_eq!(state.phase, PhaseName::Ready);
    assert_eq!((state.unacked, state.pushes_waiting), (1, 1));
    assert_eq!(state.mailbox, MailboxState { length: 0, max: 100 });
    let (at, _) = state.deadline.unwrap();
    assert!(at <= node.clients.clock.now() + ACK_WAIT);

    agent.acks(message.id);
    assert_eq!(waiting.await, Ok(NodeAnswer::Accepted));
    let state = client(&node, agent.uaid).await.unwrap();
    assert_eq!((state.unacked, state.pushes_waiting), (0, 0));
    assert_eq!(client(&node, Uaid([2; 16])).await, None);
}

#[clockwork::test]
async fn messages_behind_the_observer_are_counted_in_the_mailbox() {
    let (node, agent) = Node::with_agent(Bounds::default()).await;
    settle().await;
    let go_on = agent.stands_still().await;
    let (reply, state) = oneshot::channel();
    node.registry.try_send(ObserveClient { uaid: agent.uaid, reply }).unwrap();
    settle().await;
    let waiting: Vec<_> = (0..3).map(|_| node.deliver(agent.uaid, node.message())).collect();
    settle().await;
    drop(go_on);
    assert_eq!(state.await.unwrap().mailbox, MailboxState { length: 3, max: 100 });
    settle().await;
    assert_eq!(client(&node, agent.uaid).await.unwrap().mailbox.length, 0);
    drop(waiting);
    pass(ACK_WAIT).await;
}

#[clockwork::test]
async fn the_registry_counts_the_messages_in_its_mailbox() {
    let bounds = Bounds { registry_mailbox_max: 4, ..Bounds::default() };
    let node = Node::within(bounds).await;
    let observed = node.registry.send(Observe::<RegistryState>::new());
    fill(&node.registry);
    let MailboxState { length, max } = observed.await.unwrap().mailbox;
    assert!(length >= 3 && max == 4, "{length} of {max}");
    assert_eq!(registry(&node).await.mailbox, MailboxState { length: 0, max: 4 });
}

#[clockwork::test]
async fn the_registry_counts_the_sessions_that_a_drain_has_yet_to_close() {
    let node = Node::start().await;
    let mut agents = Vec::new();
    for number in 1..=4 {
        agents.push(UserAgent::new(&node, number).await);
    }
    settle().await;
    assert_eq!(registry(&node).await.draining, None);
    node.registry.send(ShutDown { spread: Duration::from_secs(40) }).await.unwrap();
    settle().await;
    assert_eq!(registry(&node).await.draining, Some(3), "the first is closed at once");
    pass(Span::from_secs(20)).await;
    assert_eq!(registry(&node).await.draining, Some(1));
    assert_eq!(phases(&node).await, [(PhaseName::Ready, 1)]);
    pass(Span::from_secs(20)).await;
    assert_eq!(registry(&node).await.draining, Some(0));
    assert_eq!(phases(&node).await, []);
}

#[clockwork::test]
async fn the_registry_reports_its_peers_and_their_breakers() {
    let peers = Arc::new(OnePeer::default());
    let node = Node::within(Bounds { peers: Arc::clone(&peers) as _, ..Bounds::default() });
    let node = node.await;
    assert_eq!(registry(&node).await.peers, []);
    let elsewhere = NodeId::new("elsewhere");
    let answer = node.directory.deliver(&elsewhere, Uaid([1; 16]), node.message()).await;
    assert!(answer.is_err(), "the peer is unreachable");
    let reported = registry(&node).await.peers;
    assert_eq!(reported.len(), 1);
    assert_eq!(reported[0].node, elsewhere);
    assert_eq!(reported[0].breaker, BreakerState::Open { probe_in: Span(1000) });
}

#[clockwork::test]
async fn the_publisher_reports_followers_feeds_and_failures() {
    let (store, name) = (FeedStore::new(), feed("fred"));
    let limits = FeedLimits { mailbox_max: 7, ..feeds::limits() };
    let feeds = feeds::node_within(&store, limits);
    put(&feeds, &name, "key", "value").await;
    let mut reader = Reader::of(&feeds, &name);
    reader.catches_up().await;
    let state = feeds.observe().await.unwrap();
    assert_eq!(state.mailbox, MailboxState { length: 0, max: 7 });
    assert_eq!((state.feeds.followers, state.feeds.followed, state.feeds.open), (1, 1, 1));
    assert_eq!(state.failing, 0);

    store.fails([Call::Publish]);
    pass(feeds::POLL).await;
    assert_eq!(feeds.observe().await.unwrap().failing, 1);
    store.fails([]);
    pass(feeds::RETRY).await;
    assert_eq!(feeds.observe().await.unwrap().failing, 0);

    drop(reader);
    settle().await;
    let state = feeds.observe().await.unwrap();
    assert_eq!((state.feeds.followers, state.feeds.followed, state.feeds.open), (0, 0, 0));
}

#[clockwork::test]
async fn the_broadcaster_reports_its_subscribers_and_its_cursor() {
    let town = Town::on(&FeedStore::new()).await;
    let observe = async || {
        let view = town.node.clients.broadcasts.as_ref().unwrap();
        view.observe.send(Observe::new()).await.unwrap()
    };
    let before = observe().await;
    assert_eq!((before.subscribers, before.cursor), (0, FeedSyncId::NONE));
    assert_eq!(before.mailbox, MailboxState { length: 0, max: 2000 });
    town.puts("v1").await;
    let (agent, told) = town.agent(0, "v0").await;
    assert_eq!(told, json!({"monitor": "v1"}));
    let subscribed = observe().await;
    assert_eq!(subscribed.subscribers, 1);
    assert!(subscribed.cursor > before.cursor);
    agent.hangs_up().await;
    settle().await;
    assert_eq!(observe().await.subscribers, 0);
}

/// A peer that is unreachable from its first push on.
#[derive(Default)]
struct OnePeer(Mutex<Option<NodeId>>);

impl NodeDirectory for OnePeer {
    fn deliver(&self, node: &NodeId, _: Uaid, _: Message) -> oneshot::Receiver<NodeAnswer> {
        *self.0.lock().unwrap() = Some(node.clone());
        oneshot::channel().1
    }

    fn notify_stored(&self, _: &NodeId, _: Uaid) {}

    fn notify_moved(&self, _: &NodeId, _: Uaid, _: Time) {}

    fn peers(&self) -> Vec<PeerStatus> {
        let breaker = BreakerState::Open { probe_in: Span(1000) };
        let state =
            |node| PeerStatus { node, breaker, pushes_in_flight: 0, notifications_pending: 0 };
        self.0.lock().unwrap().clone().map(state).into_iter().collect()
    }
}

async fn registry(node: &Node) -> RegistryState {
    node.registry.send(Observe::new()).await.unwrap()
}

async fn endpoint(node: &Node) -> EndpointState {
    node.endpoint.send(Observe::new()).await.unwrap()
}

async fn client(node: &Node, uaid: Uaid) -> Option<ClientState> {
    let (reply, state) = oneshot::channel();
    node.registry.try_send(ObserveClient { uaid, reply }).unwrap();
    state.await.ok()
}

async fn phases(node: &Node) -> Vec<(PhaseName, usize)> {
    registry(node).await.clients.phases.into_iter().collect()
}

/// Pushes that wait for the store, that wait for an ack, and that clients have not answered.
async fn pushes(node: &Node) -> (usize, usize, usize) {
    let EndpointState { in_flight, ack_waiters, .. } = endpoint(node).await;
    (in_flight, ack_waiters, registry(node).await.clients.pushes_waiting)
}
