//! One agent with two connections: the newer one stays, the older one is notified and closes.

use serde_json::json;
use state_machine::Span;
use state_machine::connection::{CloseReason, Event};
use state_machine::delivery::Outcome;

use super::Places;
use crate::clockwork::{self, pass, settle};
use crate::node::{ACK_WAIT, Bounds, CHANNEL, Fate, UserAgent, Way};

/// Longer than anything else in these tests takes.
const LATE: Span = Span(5000);

#[test]
fn an_agent_that_connects_again_is_closed_on_the_older_connection_and_gets_what_it_held() {
    for is_elsewhere in [true, false] {
        clockwork::run(async {
            let places = Places::new().await;
            let (mut older, id, sent) = places.with_unacked().await;
            let (node, name) = if is_elsewhere { (&places.b, "b") } else { (&places.a, "a") };
            let mut newer = UserAgent::back(node, older.uaid).await;
            assert_eq!(older.is_closed().await, CloseReason::Replaced, "connected to {name}");
            assert_eq!(sent.await.unwrap(), Outcome::Stored, "with no time gone by");
            assert_eq!(places.a.find(older.uaid).await.is_none(), is_elsewhere);
            assert_eq!(places.node_of(older.uaid).await.as_deref(), Some(name));
            places.takes_all(&mut newer, &[id]).await;
            places.sender.delivers(&mut newer).await;
        });
    }
}

#[clockwork::test]
async fn an_ack_on_the_newer_connection_counts_though_its_message_is_stored_after_it() {
    let places = Places::new().await;
    let (mut older, id, sent) = places.with_unacked().await;

    places.sender.gate.set_open(false);
    let mut newer = UserAgent::back(&places.b, older.uaid).await;
    assert_eq!(older.is_closed().await, CloseReason::Replaced);
    places.sender.gate.has_messages(1).await;
    newer.acks(id);
    settle().await;
    places.sender.gate.set_open(true);
    assert_eq!(sent.await.unwrap(), Outcome::Stored);
    places.takes_all(&mut newer, &[]).await;
}

#[clockwork::test]
async fn an_ack_on_the_newer_connection_deletes_what_the_endpoint_had_stored() {
    let places = Places::new().await;
    let (mut older, id, sent) = places.with_unacked().await;
    pass(ACK_WAIT).await;
    assert_eq!(sent.await.unwrap(), Outcome::Stored, "it was sent and not acked");

    // Its first fetch is not answered when the ack arrives.
    places.b.orders.set(2, Fate::Held);
    let mut newer = UserAgent::back(&places.b, older.uaid).await;
    assert_eq!(older.is_closed().await, CloseReason::Replaced);
    places.b.orders.has_met(1).await;
    newer.acks(id);
    settle().await;
    places.b.orders.release();
    places.takes_all(&mut newer, &[]).await;
}

#[clockwork::test]
async fn a_late_connected_elsewhere_does_not_close_an_agent_that_reconnected() {
    let places = Places::new().await;
    let mut first = UserAgent::new(&places.a, 1).await;
    places.set_way("a", Way::Slow(LATE));
    let mut second = UserAgent::back(&places.b, first.uaid).await;
    pass(Span(10)).await;
    let mut third = UserAgent::back(&places.a, first.uaid).await;
    assert_eq!(first.is_closed().await, CloseReason::Replaced, "the registry of a notified it");
    assert_eq!(second.is_closed().await, CloseReason::Replaced, "b was notified");
    places.set_way("a", Way::Open);
    pass(LATE).await;

    third.heard_nothing_more();
    assert!(places.a.find(third.uaid).await.is_some());
    assert_eq!(places.node_of(third.uaid).await.as_deref(), Some("a"));
    places.sender.delivers(&mut third).await;
}

#[clockwork::test]
async fn an_older_connected_elsewhere_during_a_registration_is_ignored() {
    let places = Places::with_clocks(0, 10_000).await;
    let uaid = UserAgent::new(&places.a, 1).await.hangs_up().await;
    places.set_way("a", Way::Slow(LATE));
    let mut second = UserAgent::back(&places.b, uaid).await;
    settle().await;
    // By the clock of node a, it reconnects before it left.
    places.a.orders.set(0, Fate::Held);
    let mut third = UserAgent::connect(&places.a, uaid);
    third.says_hello();
    places.a.orders.has_met(1).await;
    pass(LATE).await;
    third.heard_nothing_more();

    places.a.orders.release();
    assert_eq!(third.hears().await["uaid"], uaid.to_string());
    assert_eq!(second.is_closed().await, CloseReason::Replaced);
    assert_eq!(places.node_of(uaid).await.as_deref(), Some("a"));
    settle().await;
    third.heard_nothing_more();
}

#[clockwork::test]
async fn an_older_connection_that_was_not_notified_gets_no_push_of_the_newer_one() {
    let places = Places::new().await;
    let mut older = UserAgent::new(&places.a, 1).await;
    places.set_way("a", Way::Hangs);
    let mut newer = UserAgent::back(&places.b, older.uaid).await;
    settle().await;
    older.heard_nothing_more();
    places.sender.delivers(&mut newer).await;

    older.does(Event::ShutdownBegan);
    assert_eq!(older.is_closed().await, CloseReason::Shutdown);
    settle().await;
    assert_eq!(places.node_of(newer.uaid).await.as_deref(), Some("b"), "cleared only its own");
    newer.heard_nothing_more();
}

#[clockwork::test]
async fn a_connection_on_a_node_whose_clock_is_behind_is_still_the_newer_one() {
    let places = Places::with_clocks(10_000, 0).await;
    let mut older = UserAgent::new(&places.a, 1).await;
    let since = places.record(older.uaid).await.connected_at;
    let mut newer = UserAgent::back(&places.b, older.uaid).await;
    assert_eq!(older.is_closed().await, CloseReason::Replaced);
    let record = places.record(newer.uaid).await;
    assert_eq!(record.connected_at, since + Span(1));
    assert_eq!(places.node_of(newer.uaid).await.as_deref(), Some("b"));
    settle().await;
    newer.heard_nothing_more();
}

#[clockwork::test]
async fn an_older_frozen_connection_with_a_full_mailbox_closes_when_it_resumes() {
    let places = Places::new().await;
    let mut older = UserAgent::new(&places.a, 1).await;
    let message = places.sender.message();
    let go_on = older.stands_still().await;
    for _ in 0..Bounds::default().client_mailbox_max {
        drop(places.a.deliver(older.uaid, places.a.message()));
        settle().await;
    }
    let sent = places.sender.send(older.uaid, message.clone());
    assert_eq!(sent.await.unwrap(), Outcome::Stored, "with no time gone by");

    let mut newer = UserAgent::back(&places.b, older.uaid).await;
    places.takes_all(&mut newer, &[message.id]).await;
    older.heard_nothing_more();
    drop(go_on);
    assert_eq!(older.is_closed().await, CloseReason::Replaced);
    assert_eq!(places.node_of(newer.uaid).await.as_deref(), Some("b"));
}

#[clockwork::test]
async fn a_push_held_by_a_frozen_connection_is_found_by_the_newer_one_after_the_answer_wait() {
    let places = Places::new().await;
    let mut older = UserAgent::new(&places.a, 1).await;
    let message = places.sender.message();
    let go_on = older.stands_still().await;
    let sent = places.sender.send(older.uaid, message.clone());
    settle().await;
    let mut newer = UserAgent::back(&places.b, older.uaid).await;
    settle().await;
    newer.heard_nothing_more();
    pass(ACK_WAIT).await;
    pass(ACK_WAIT).await;
    assert_eq!(sent.await.unwrap(), Outcome::Stored);
    places.takes_all(&mut newer, &[message.id]).await;
    drop(go_on);
    assert_eq!(older.is_closed().await, CloseReason::Replaced, "and it sent nothing");
}

#[clockwork::test]
async fn one_of_two_nodes_that_register_an_agent_at_once_keeps_it() {
    let places = Places::new().await;
    let uaid = UserAgent::new(&places.a, 1).await.hangs_up().await;
    places.a.orders.set(0, Fate::Held);
    let mut slow = UserAgent::connect(&places.a, uaid);
    slow.says_hello();
    places.a.orders.has_met(1).await;
    pass(Span(10)).await;
    let mut quick = UserAgent::back(&places.b, uaid).await;
    places.a.orders.release();

    assert_eq!(slow.is_closed().await, CloseReason::Replaced);
    assert_eq!(places.node_of(uaid).await.as_deref(), Some("b"));
    places.sender.delivers(&mut quick).await;
}

#[clockwork::test]
async fn a_channel_registered_on_the_newer_connection_is_delivered_there() {
    let places = Places::new().await;
    let mut older = UserAgent::new(&places.a, 1).await;
    let mut newer = UserAgent::back(&places.b, older.uaid).await;
    assert_eq!(older.is_closed().await, CloseReason::Replaced);
    newer.says(&json!({"messageType": "unregister", "channelID": CHANNEL.to_string()}));
    assert_eq!(newer.hears().await["status"], 200);
    let sent = places.sender.send(newer.uaid, places.sender.message());
    assert_eq!(sent.await.unwrap(), Outcome::NoSuchChannel);
}

#[clockwork::test]
async fn a_connection_that_ends_while_it_registers_still_notifies_the_previous_node() {
    let places = Places::new().await;
    let mut oldest = UserAgent::new(&places.a, 1).await;
    pass(Span(1)).await;
    places.b.orders.set(0, Fate::Held);
    let second = UserAgent::connect(&places.b, oldest.uaid);
    second.says_hello();
    places.b.orders.has_met(1).await;
    // Its registration is with the store, and it hangs up.
    second.hangs_up().await;
    settle().await;
    places.b.orders.release();
    assert_eq!(oldest.is_closed().await, CloseReason::Replaced);
    assert_eq!(places.node_of(oldest.uaid).await.as_deref(), Some("b"));
}
