//! Two nodes on a store of each kind, and on stores that are unkind, in real time.

use std::collections::BTreeMap;
use std::sync::Arc;

use actors::{Clock, FeedLimits, FeedSubscription, Feeds};
use futures_util::future::join_all;
use state_machine::Span;
use state_machine::feed::{
    FeedKey, FeedName, FeedSyncId, FeedValue, PublisherLimits, Update, WriteResult,
};
use storage::{FeedTables, StoreAdmin, WaitingLimits};
use unkind_store::UnkindStore;

use super::{NOW, feed, limits, node_on, put};
use crate::clockwork;
use crate::engines::{Engine, InDirectory, OnPostgres, OnWireServer};
use crate::node::log;

/// Keys that the nodes write, each of them as often as there are rounds.
const KEYS: usize = 10;

const ROUNDS: usize = 5;

#[test]
fn every_follower_of_two_nodes_on_files_sees_the_last_state_of_every_key() {
    let engine = InDirectory::new(WaitingLimits::NONE);
    clockwork::run_in_real_time(two_nodes_tell_every_follower(engine.open()));
}

#[test]
fn every_follower_of_two_nodes_on_dynamodb_sees_the_last_state_of_every_key() {
    let engine = OnWireServer::new(WaitingLimits::NONE);
    clockwork::run_in_real_time(two_nodes_tell_every_follower(engine.open()));
}

#[test]
fn every_follower_of_two_nodes_on_postgresql_sees_the_last_state_of_every_key() {
    let engine = OnPostgres::new(WaitingLimits::NONE);
    clockwork::run_in_real_time(two_nodes_tell_every_follower(engine.open()));
}

#[test]
fn every_follower_of_two_nodes_on_an_unkind_store_sees_the_last_state_of_every_key() {
    for unkind in UNKIND {
        let engine = InDirectory::new(WaitingLimits::NONE);
        let store = Arc::new(unkind(engine.open()));
        clockwork::run_in_real_time(two_nodes_tell_every_follower(store));
    }
}

#[test]
fn old_tombstones_of_each_feed_of_an_unkind_store_are_forgotten() {
    for unkind in UNKIND {
        let engine = InDirectory::new(WaitingLimits::NONE);
        let store = Arc::new(unkind(engine.open()));
        clockwork::run_in_real_time(tombstones_are_forgotten(store));
    }
}

const UNKIND: [fn(Arc<dyn StoreAdmin>) -> UnkindStore; 4] = [
    UnkindStore::with_short_pages,
    UnkindStore::repeating,
    UnkindStore::failing_once,
    UnkindStore::slow,
];

/// The sweep waits for ten milliseconds, and tombstones are kept for one.
async fn tombstones_are_forgotten(store: Arc<dyn FeedTables>) {
    while store.ensure_feeds().await.is_err() {}
    let limits = FeedLimits { sweep: Span(10), tombstones_keep: Some(Span(1)), ..limits() };
    let clock = Clock::starting_at(NOW);
    let feeds = Feeds::start(Arc::clone(&store), clock.clone(), limits, log());
    let names: Vec<_> = (0..3).map(|number| feed(&format!("feed-{number}"))).collect();
    for name in &names {
        for number in 0..KEYS {
            put_at_last(&feeds, name, &format!("key {number}"), "value").await;
            let key = FeedKey::parse(&format!("key {number}")).unwrap();
            while number > 0 && feeds.delete(name.clone(), key.clone()).await.is_err() {}
        }
    }
    let keys = async || {
        clock.set(clock.now() + Span(1000));
        let listed = store.feeds(None, names.len()).await.unwrap_or_default();
        listed.iter().map(|feed| feed.sequence.keys).collect::<Vec<_>>()
    };
    clockwork::until("keys", keys, |keys| *keys == [1; 3]).await;
}

/// Writes a key of a store that may fail once.
async fn put_at_last(feeds: &Feeds, feed: &FeedName, key: &str, value: &str) {
    let (key, value) = (FeedKey::parse(key).unwrap(), FeedValue::parse(value).unwrap());
    let write = async || feeds.write(feed.clone(), key.clone(), value.clone()).await;
    let written = match write().await {
        Ok(written) => written,
        Err(_) => write().await.unwrap(),
    };
    assert!(matches!(written, WriteResult::Done(_)));
}

async fn two_nodes_tell_every_follower(store: Arc<dyn FeedTables>) {
    while store.ensure_feeds().await.is_err() {}
    let publisher = PublisherLimits { poll: Span(20), ..limits().publisher };
    let limits = FeedLimits { publisher, ..limits() };
    let nodes = [node_on(Arc::clone(&store), limits.clone()), node_on(store, limits)];
    let fred = feed("fred");
    put_at_last(&nodes[0], &fred, "key 0", "first").await;
    let followers = [0, 1, 0, 1].map(|node: usize| {
        let follower = nodes[node].subscribe(fred.clone(), FeedSyncId::NONE).unwrap();
        actix_web::rt::spawn(until_all_is_seen(follower))
    });
    for round in 1..=ROUNDS {
        let writes = (0..KEYS * 2).map(|number| {
            let (node, key) = (&nodes[number % 2], format!("key {}", number / 2));
            let fred = &fred;
            async move { put(node, fred, &key, &round.to_string()).await }
        });
        join_all(writes).await;
    }
    for seen in join_all(followers).await {
        assert_eq!(seen.unwrap().len(), KEYS);
    }
}

/// Follows until every key has its last value; panics where numbers run backwards.
async fn until_all_is_seen(mut follower: FeedSubscription) -> BTreeMap<FeedKey, Update> {
    let (mut seen, mut last) = (BTreeMap::new(), FeedSyncId::NONE);
    let is_last = |update: &Update| {
        update.value.as_ref().is_some_and(|value| value.as_str() == ROUNDS.to_string())
    };
    while seen.values().filter(|update| is_last(update)).count() < KEYS {
        for update in follower.next().await.unwrap().updates {
            assert!(last < update.feed_sync_id, "numbers run backwards");
            last = update.feed_sync_id;
            seen.insert(update.key.clone(), update);
        }
    }
    seen
}
