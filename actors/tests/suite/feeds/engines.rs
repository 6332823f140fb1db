//! Two nodes on a store of each kind, in real time.

use std::collections::BTreeMap;
use std::sync::Arc;

use actors::{FeedLimits, FeedSubscription};
use futures_util::future::join_all;
use state_machine::Span;
use state_machine::feed::{FeedKey, FeedSyncId, PublisherLimits, Update};
use storage::{FeedTables, WaitingLimits};

use super::{feed, limits, node_on, put};
use crate::clockwork;
use crate::engines::{Engine, InDirectory, OnPostgres, OnWireServer};

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

async fn two_nodes_tell_every_follower(store: Arc<dyn FeedTables>) {
    store.ensure_feeds().await.unwrap();
    let publisher = PublisherLimits { poll: Span(20), ..limits().publisher };
    let limits = FeedLimits { publisher, ..limits() };
    let nodes = [node_on(Arc::clone(&store), limits.clone()), node_on(store, limits)];
    let fred = feed("fred");
    put(&nodes[0], &fred, "key 0", "first").await;
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
