//! The store behind the broadcasts: what is there at start, what others write, and failures.

use actix::dev::SendError;
use actors::broadcasts::{self, BroadcastLimits, Unsubscribe};
use serde_json::json;
use state_machine::ConnectionId;
use state_machine::feed::FeedName;
use storage::StoreError;

use super::{ID, SPREAD, Town, told_one, view};
use crate::clockwork::{self, pass, settle};
use crate::feeds::{Call, FeedStore, NOW, POLL, RETRY, node as feeds_on, put};
use crate::node::log;

#[clockwork::test]
async fn broadcasts_are_read_before_the_first_agent_connects() {
    let store = FeedStore::new();
    let before = feeds_on(&store);
    for number in 0..50 {
        put(&before, &FeedName::broadcasts(), &format!("other {number}"), "1").await;
    }
    put(&before, &FeedName::broadcasts(), ID, "1").await;
    settle().await;
    let view = view(&feeds_on(&store), SPREAD).await.unwrap();
    let now = view.now.borrow().clone();
    assert_eq!((now.iter().count(), now.version(ID).unwrap().as_str()), (51, "1"));
}

#[clockwork::test]
async fn broadcasts_that_cannot_be_read_at_start_are_an_error() {
    let store = FeedStore::new();
    store.fails([Call::Fetch]);
    let started = view(&feeds_on(&store), SPREAD).await;
    assert_eq!(started.err(), Some(StoreError::Busy));
}

#[clockwork::test]
async fn a_failed_read_of_broadcasts_is_retried() {
    let store = FeedStore::new();
    let town = Town::on(&store).await;
    town.puts("1").await;
    let (mut agent, _) = town.agent(500, "1").await;
    store.fails([Call::Fetch, Call::Publish, Call::List]);
    town.puts("2").await;
    pass(RETRY).await;
    store.fails([Call::Fetch]);
    pass(POLL).await;
    pass(SPREAD).await;
    assert_eq!(told_one(&mut agent), None);
    let (_, hello) = town.agent(100, "0").await;
    assert_eq!(hello, json!({ID: "1"}), "the known version is in hello");

    store.fails([]);
    pass(SPREAD).await;
    pass(SPREAD).await;
    assert_eq!(told_one(&mut agent).as_deref(), Some("2"));
}

#[clockwork::test]
async fn a_broadcast_of_another_node_is_sent_here() {
    let store = FeedStore::new();
    let (here, there) = (Town::on(&store).await, Town::on(&store).await);
    here.puts("1").await;
    let (mut agent, _) = here.agent(500, "1").await;
    there.puts("2").await;
    pass(POLL).await;
    pass(SPREAD).await;
    assert_eq!(told_one(&mut agent).as_deref(), Some("2"));
}

#[clockwork::test]
async fn a_node_that_stops_sends_the_broadcasts_that_it_knows() {
    let town = Town::informed().await;
    town.feeds.close();
    settle().await;
    let (_, hello) = town.agent(500, "0").await;
    assert_eq!(hello, json!({ID: "1"}));
}

#[clockwork::test]
async fn the_mailbox_is_bounded() {
    let clock = actors::Clock::starting_at(NOW);
    let limits = BroadcastLimits { spread: SPREAD, mailbox_max: 1 };
    let feeds = feeds_on(&FeedStore::new());
    let view = broadcasts::start(&feeds, limits, clock, log()).await.unwrap();
    settle().await;
    let leave = || view.unsubscribe.try_send(Unsubscribe { connection: ConnectionId(1), slot: 0 });
    assert!(leave().is_ok());
    assert!(matches!(leave(), Err(SendError::Full(_))));
    settle().await;
    assert!(leave().is_ok());
}
