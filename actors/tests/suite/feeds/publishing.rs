//! Every write is published, whichever node wrote it.

use std::slice;

use actors::Feeds;
use futures_util::future::join_all;
use state_machine::Span;
use state_machine::feed::{FeedKey, FeedName, FeedSyncId, Version};

use super::{
    Call, FeedStore, NOW, POLL, Reader, SWEEP, feed, fred, fred_with_bob, fred_with_reader, limits,
    node, node_within, put, put_all,
};
use crate::clockwork::{self, pass, settle};

#[clockwork::test]
async fn a_write_reaches_its_follower() {
    let (store, fred, feeds) = fred();
    assert_eq!(put(&feeds, &fred, "name", "bob").await, Version(1));
    let mut reader = Reader::of(&feeds, &fred);
    assert_eq!(reader.hears().await, "name=bob");
    assert_eq!(put(&feeds, &fred, "name", "jim").await, Version(3));
    assert_eq!(reader.hears().await, "name=jim");
    reader.has_seen_all(&store, &fred);
}

#[clockwork::test]
async fn a_republished_last_record_reaches_a_consumer_that_has_read_it() {
    let (_, fred, feeds) = fred_with_bob().await;
    let mut reader = Reader::of(&feeds, &fred);
    assert_eq!(reader.next().await.updates[0].version, Version(2));
    let name = FeedKey::parse("name").unwrap();
    let version = feeds.republish(fred.clone(), name.clone()).await.unwrap();
    assert_eq!(version, Some(Version(3)));
    let again = reader.next().await.updates.remove(0);
    assert_eq!((again.feed_sync_id, again.version), (FeedSyncId(2), Version(4)));
    assert_eq!(feeds.delete(fred, name).await.unwrap(), Some(Version(5)));
    assert_eq!(reader.hears().await, "name deleted");
}

#[clockwork::test]
async fn more_keys_than_a_batch_are_published_in_several_batches() {
    let (store, fred, feeds) = fred();
    put_all(&feeds, &fred, (0..20).map(|number| format!("key {number}"))).await;
    let mut reader = Reader::of(&feeds, &fred);
    reader.catches_up().await;
    reader.has_seen_all(&store, &fred);
    assert_eq!(store.table(&fred).sequence().value, FeedSyncId(20));
}

#[clockwork::test]
async fn an_update_reaches_a_hundred_followers() {
    let (_, fred, feeds) = fred_with_bob().await;
    let mut readers: Vec<Reader> = (0..100).map(|_| Reader::of(&feeds, &fred)).collect();
    let heard = join_all(readers.iter_mut().map(Reader::hears)).await;
    assert!(heard.iter().all(|heard| heard == "name=bob"));
    put(&feeds, &fred, "name", "jim").await;
    let heard = join_all(readers.iter_mut().map(Reader::hears)).await;
    assert!(heard.iter().all(|heard| heard == "name=jim"));
    assert_eq!(feeds.stats().followers, 100);
}

#[clockwork::test]
async fn concurrent_writes_of_two_nodes_reach_the_followers_of_both() {
    let (store, fred) = (FeedStore::new(), feed("fred"));
    let nodes = [node(&store), node(&store)];
    put(&nodes[0], &fred, "key 0", "first").await;
    let mut readers: Vec<Reader> =
        nodes.iter().flat_map(|node| [Reader::of(node, &fred), Reader::of(node, &fred)]).collect();
    for round in 0..10 {
        let write = async |node: &Feeds, number: usize| {
            put(node, &fred, &format!("key {}", (round + number) % 7), &format!("{round}")).await
        };
        let writes = (0..8).map(|number| write(&nodes[number % 2], number));
        join_all(writes).await;
        join_all(readers.iter_mut().map(Reader::catches_up)).await;
    }
    pass(POLL).await;
    for reader in &mut readers {
        reader.catches_up().await;
        reader.has_seen_all(&store, &fred);
    }
}

#[clockwork::test]
async fn an_update_of_another_node_is_read_within_a_poll() {
    let (store, fred, _here, mut reader) = fred_with_reader().await;
    let there = node(&store);
    settle().await;
    put(&there, &fred, "name", "jim").await;
    reader.catches_up().await;
    assert_eq!(reader.pages, 1, "this node was not notified");
    pass(POLL).await;
    assert_eq!(reader.hears().await, "name=jim");
}

#[clockwork::test]
async fn a_node_that_starts_publishes_what_an_earlier_one_left_unpublished() {
    let store = FeedStore::new();
    for number in 0..250 {
        store.writes_and_dies(&feed(&format!("feed-{number}")), "key", "value");
    }
    let _feeds = node(&store);
    clockwork::until("pending", async || store.pending(), |pending| *pending == 0).await;
    assert_eq!(store.calls(Call::List), 3, "pages of feeds");
}

#[clockwork::test]
async fn a_sweep_publishes_what_a_killed_node_left_unpublished() {
    let (store, fred, feeds) = fred();
    settle().await;
    store.writes_and_dies(&fred, "name", "bob");
    pass(Span(SWEEP.0 - 1)).await;
    assert_eq!(store.pending(), 1);
    pass(Span(1)).await;
    assert_eq!(store.pending(), 0);
    assert_eq!(Reader::of(&feeds, &fred).hears().await, "name=bob");
}

#[clockwork::test]
async fn a_followed_feed_is_published_at_the_next_poll_after_its_writer_was_killed() {
    let (store, fred, _feeds, mut reader) = fred_with_reader().await;
    store.writes_and_dies(&fred, "name", "jim");
    pass(POLL).await;
    assert_eq!(reader.hears().await, "name=jim");
}

#[clockwork::test]
async fn receipts_that_a_killed_node_left_unpublished_are_published_for_their_reader_and_by_no_sweep()
 {
    let (store, subscription) = (FeedStore::new(), FeedName::receipts(NOW + SWEEP, 1));
    let feeds = node(&store);
    store.writes_and_dies(&subscription, "/m/a", "expired");
    pass(SWEEP).await;
    assert_eq!(store.pending(), 1);
    feeds.publish(slice::from_ref(&subscription));
    settle().await;
    assert_eq!(store.pending(), 0);
    let mut follower = Reader::of(&feeds, &subscription);
    assert_eq!(follower.hears().await, "/m/a=expired");
    store.writes_and_dies(&subscription, "/m/b", "expired");
    pass(POLL).await;
    assert_eq!(follower.hears().await, "/m/b=expired");
}

#[clockwork::test]
async fn a_feed_without_followers_is_visited_by_sweeps_only() {
    let (store, fred, feeds) = fred();
    settle().await;
    put(&feeds, &fred, "name", "bob").await;
    settle().await;
    assert_eq!((store.calls(Call::Publish), store.pending()), (1, 0));
    for _ in 0..59 {
        pass(Span::from_secs(1)).await;
    }
    assert_eq!(store.calls(Call::Publish), 1);
    pass(Span::from_secs(1)).await;
    assert_eq!(store.calls(Call::Publish), 2);
}

#[clockwork::test]
async fn a_write_whose_caller_is_dropped_is_published() {
    let (store, fred) = (FeedStore::new(), feed("fred"));
    let feeds = node_within(&store, limits());
    settle().await;
    store.keeps_back([Call::Write]);
    tokio::select! {
        biased;
        _ = put(&feeds, &fred, "name", "bob") => panic!("the answer is kept back"),
        () = settle() => {}
    }
    store.keeps_back([]);
    settle().await;
    assert_eq!(store.pending(), 0);
}
