//! An agent on stores that are unkind: with short pages, with every write done twice, with
//! every method failing once, and with slow answers.

use std::sync::Arc;

use serde_json::json;
use state_machine::delivery::Outcome;
use state_machine::{Message, Month, Span, Uaid};
use storage::{StoreAdmin, WaitingLimits};
use unkind_store::UnkindStore;

use crate::clockwork::{self, settle};
use crate::engines::{Engine, InDirectory};
use crate::node::{Bounds, CHANNEL, Ground, Node, UserAgent};

/// More than a page of a connection.
const MESSAGES: usize = 25;

/// The messages live until the next month.
const LIFETIME: Span = Span::from_secs(60 * 24 * 60 * 60);

#[test]
fn an_agent_gets_all_messages_from_short_pages() {
    clockwork::run_in_real_time(gets_all_messages(UnkindStore::with_short_pages));
}

#[test]
fn an_agent_gets_all_messages_though_every_write_is_done_twice() {
    clockwork::run_in_real_time(gets_all_messages(UnkindStore::repeating));
}

#[test]
fn an_agent_gets_all_messages_though_every_call_fails_once() {
    clockwork::run_in_real_time(gets_all_messages(UnkindStore::failing_once));
}

#[test]
fn an_agent_gets_all_messages_though_every_answer_is_slow() {
    clockwork::run_in_real_time(gets_all_messages(UnkindStore::slow));
}

/// Stores messages in a month for an agent that takes them in the next one.
async fn gets_all_messages(unkind: fn(Arc<dyn StoreAdmin>) -> UnkindStore) {
    let engine = InDirectory::new(WaitingLimits::NONE);
    let store = engine.open();
    let mut bounds = Bounds::default();
    bounds.limits.store_retry = Span(10);
    let this = Month::of(bounds.now);
    let next = this.next();
    for month in [this, next] {
        store.ensure_month(month).await.unwrap();
    }
    let ground = Ground::of(Arc::new(unkind(store)));
    let node = Node::on(&ground, &bounds);
    let uaid = subscribed(&node, Uaid([1; 16])).await;
    let mut stored = Vec::new();
    for _ in 0..MESSAGES {
        let message = Message { ttl: LIFETIME, ..node.message() };
        stored.push(message.id);
        // The sender repeats a push that was refused.
        while node.send(uaid, message.clone()).await.unwrap() != Outcome::Stored {}
    }
    while Month::of(bounds.now) < next {
        bounds.now = bounds.now + Span::from_secs(24 * 60 * 60);
    }
    let node = Node::on(&ground, &bounds);
    let mut agent = UserAgent::back(&node, uaid).await;
    for _ in 0..MESSAGES {
        let id = agent.is_notified().await;
        let at = stored.iter().position(|stored| *stored == id).expect("each message once");
        stored.swap_remove(at);
        agent.acks(id);
        settle().await;
    }
    node.until_nothing_is_stored(uaid).await;
    let months = async || {
        let record = node.store.record(uaid).await.unwrap().unwrap();
        (record.curmonth, record.oldmonth)
    };
    clockwork::until("months", months, |months| *months == (next, None)).await;
    assert!(node.store.channels(uaid, next).await.unwrap().unwrap().contains(&CHANNEL));
    agent.heard_nothing_more();
}

/// An agent with [`CHANNEL`]. It repeats the registration until the answer is 200.
async fn subscribed(node: &Node, uaid: Uaid) -> Uaid {
    let mut agent = UserAgent::connect(node, uaid);
    agent.says(&json!({"messageType": "hello"}));
    assert_eq!(agent.hears().await["uaid"], uaid.to_string());
    loop {
        agent.says(&json!({"messageType": "register", "channelID": CHANNEL.to_string()}));
        if agent.hears().await["status"] == 200 {
            return agent.hangs_up().await;
        }
    }
}
