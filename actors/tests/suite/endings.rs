//! Actors, callers and the node may end at any time; the operations that they began are completed.

use std::time::Duration;

use actors::registry::{MessageStored, NotifyResult, ShutDown};
use serde_json::json;
use state_machine::connection::{CloseReason, Event};
use state_machine::delivery::{NodeAnswer, Outcome};
use state_machine::{Chid, Month, Span, Uaid};

use crate::clockwork::{self, pass, settle};
use crate::node::{ACK_WAIT, Bounds, Node, UserAgent};
use crate::wire::Vanish;

#[clockwork::test]
async fn the_store_operations_of_a_client_that_stops_at_once_are_done() {
    let (node, mut agent) = Node::with_agent(Bounds::default()).await;
    let other = Chid([0xC2; 16]);
    agent.says(&json!({"messageType": "register", "channelID": other.to_string()}));
    agent.does(Event::SocketClosed);
    assert_eq!(agent.is_closed().await, CloseReason::SocketClosed);
    let channels = async || {
        let month = Month::of(node.clients.clock.now());
        node.store.channels(agent.uaid, month).await.unwrap().unwrap()
    };
    clockwork::until("channels", channels, |channels| channels.contains(&other)).await;
}

#[clockwork::test]
async fn the_last_acks_are_settled_though_the_agent_hangs_up_at_once() {
    let node = Node::start().await;
    let uaid = UserAgent::new(&node, 1).await.hangs_up().await;
    let [first, second] = [node.stores(uaid).await, node.stores(uaid).await];
    let mut agent = UserAgent::back(&node, uaid).await;
    assert_eq!(agent.is_notified().await, first);
    assert_eq!(agent.is_notified().await, second);
    agent.acks(second);
    agent.acks(first);
    agent.does(Event::SocketClosed);
    assert_eq!(agent.is_closed().await, CloseReason::SocketClosed);
    node.until_nothing_is_stored(uaid).await;
}

#[clockwork::test]
async fn a_push_is_delivered_though_its_caller_was_dropped() {
    let (node, mut agent) = Node::with_agent(Bounds::default()).await;
    let (id, sent) = node.sends(&mut agent).await;
    sent.abort();
    pass(ACK_WAIT).await;
    node.until_stored(agent.uaid, &[id]).await;
    node.endpoints_rest().await;
}

#[clockwork::test]
async fn a_shutdown_answers_the_endpoints_that_wait_and_they_store() {
    let node = Node::start().await;
    let mut agents = [UserAgent::new(&node, 1).await, UserAgent::new(&node, 2).await];
    let mut waiting = Vec::new();
    for agent in &mut agents {
        waiting.push((agent.uaid, node.sends(agent).await));
    }
    node.registry.send(ShutDown { spread: Duration::ZERO }).await.unwrap();
    for agent in &mut agents {
        assert_eq!(agent.is_closed().await, CloseReason::Shutdown);
    }
    for (uaid, (id, sent)) in waiting {
        assert_eq!(sent.await.unwrap(), Outcome::Stored, "with no time gone by");
        assert_eq!(node.stored(uaid).await, [id]);
    }
}

#[clockwork::test]
async fn a_connection_that_sends_hello_during_a_shutdown_is_closed() {
    let node = Node::start().await;
    let mut agent = UserAgent::connect(&node, Uaid([1; 16]));
    node.registry.send(ShutDown { spread: Duration::ZERO }).await.unwrap();
    settle().await;
    agent.heard_nothing_more();
    agent.says(&json!({"messageType": "hello"}));
    assert_eq!(agent.hears().await["status"], 200);
    assert_eq!(agent.is_closed().await, CloseReason::Shutdown);
    assert_eq!(node.find(agent.uaid).await, None);
}

#[clockwork::test]
async fn an_older_connection_is_replaced_and_leaves_its_successor_registered() {
    let node = Node::start().await;
    let mut older = UserAgent::new(&node, 1).await;
    let before = node.find(older.uaid).await;
    let (id, sent) = node.sends(&mut older).await;

    let mut newer = UserAgent::back(&node, older.uaid).await;
    assert_eq!(older.is_closed().await, CloseReason::Replaced);
    assert_eq!(sent.await.unwrap(), Outcome::Stored, "what the older one held");
    settle().await;
    let after = node.find(older.uaid).await;
    assert!(after.is_some() && after != before);
    node.is_taken(&mut newer, id).await;
}

#[clockwork::test]
async fn a_connection_that_vanished_is_forgotten_at_the_next_push() {
    let (node, mut agent) = Node::with_agent(Bounds::default()).await;
    agent.client.try_send(Vanish).unwrap();
    settle().await;
    assert!(node.find(agent.uaid).await.is_some(), "the registry was not notified");
    let answer = node.deliver(agent.uaid, node.message()).await;
    assert_eq!(answer, Ok(NodeAnswer::NotHere));
    assert_eq!(node.find(agent.uaid).await, None);

    // The endpoint takes that for gone: the record names no node any more.
    node.stores(agent.uaid).await;
    let record = node.store.record(agent.uaid).await.unwrap().unwrap();
    assert_eq!(record.node, None);
    agent.heard_nothing_more();
}

#[clockwork::test]
async fn a_connection_that_vanished_is_forgotten_at_the_next_notification() {
    let (node, agent) = Node::with_agent(Bounds::default()).await;
    agent.client.try_send(Vanish).unwrap();
    settle().await;
    let nudge = || node.registry.send(MessageStored { uaid: agent.uaid });
    assert_eq!(nudge().await, Ok(NotifyResult::NotConnected));
    assert_eq!(node.find(agent.uaid).await, None);
}

#[clockwork::test]
async fn a_push_in_the_mailbox_of_a_client_that_stops_is_stored() {
    let (node, agent) = Node::with_agent(Bounds::default()).await;
    let go_on = agent.stands_still().await;
    agent.does(Event::SocketClosed);
    let message = node.message();
    let sent = node.send(agent.uaid, message.clone());
    settle().await;
    drop(go_on);
    assert_eq!(sent.await.unwrap(), Outcome::Stored, "with no time gone by");
    assert_eq!(node.stored(agent.uaid).await, [message.id]);
}

#[test]
fn deadlines_are_kept_in_each_runtime_of_a_thread() {
    for _ in 0..2 {
        clockwork::run(async {
            let node = Node::start().await;
            let limit = node.clients.config.limits.hello_timeout;
            let mut agents = [1, 2].map(|number| UserAgent::connect(&node, Uaid([number; 16])));
            settle().await;
            pass(Span(limit.0 - 1)).await;
            agents.iter_mut().for_each(UserAgent::heard_nothing_more);
            pass(Span(1)).await;
            for agent in &mut agents {
                assert_eq!(agent.is_closed().await, CloseReason::HelloTimeout);
            }
        });
    }
}
