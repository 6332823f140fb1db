//! Every number of feeds, followers and messages is bounded, and nothing is forgotten where a bound
//! is met.

use actors::{FeedLimits, TooManyFollowers};
use state_machine::Span;
use state_machine::feed::{FeedKey, FeedSyncId, FeedValue, WriteResult};

use super::{
    Call, FeedStore, POLL, Reader, feed, fred, limits, node, node_within, put, put_all, put_each,
};
use crate::clockwork::{self, pass, settle};

#[clockwork::test]
async fn a_follower_beyond_followers_max_is_rejected_until_another_ends() {
    let fred = feed("fred");
    let feeds = node_within(&FeedStore::new(), FeedLimits { followers_max: 2, ..limits() });
    put(&feeds, &fred, "name", "bob").await;
    let (first, _second) = (Reader::of(&feeds, &fred), Reader::of(&feeds, &fred));
    let third = feeds.subscribe(fred.clone(), FeedSyncId::NONE);
    assert_eq!(third.err(), Some(TooManyFollowers));
    drop(first);
    assert!(feeds.subscribe(fred, FeedSyncId::NONE).is_ok());
}

#[clockwork::test]
async fn a_further_feed_is_rejected_at_feeds_open_max_and_followed_feeds_are_not() {
    let feeds = node_within(&FeedStore::new(), FeedLimits { feeds_open_max: 1, ..limits() });
    let first = feeds.subscribe(feed("a"), FeedSyncId::NONE).unwrap();
    let other = feeds.subscribe(feed("b"), FeedSyncId::NONE);
    assert_eq!(other.err(), Some(TooManyFollowers));
    assert_eq!(feeds.stats().followers, 1, "the refused one gave its place back");
    assert!(feeds.subscribe(feed("a"), FeedSyncId::NONE).is_ok());
    drop(first);
    assert!(feeds.subscribe(feed("b"), FeedSyncId::NONE).is_ok());
}

#[clockwork::test]
async fn a_key_beyond_keys_max_is_not_written() {
    let fred = feed("fred");
    let feeds = node_within(&FeedStore::new(), FeedLimits { keys_max: 1, ..limits() });
    put(&feeds, &fred, "first", "value").await;
    let (key, value) = (FeedKey::parse("second").unwrap(), FeedValue::parse("").unwrap());
    let written = feeds.write(fred, key, value).await.unwrap();
    assert_eq!(written, WriteResult::TooManyKeys);
}

#[clockwork::test]
async fn feeds_beyond_feeds_open_max_are_published_when_there_is_room() {
    let store = FeedStore::new();
    let feeds = node_within(&store, FeedLimits { feeds_open_max: 2, ..limits() });
    settle().await;
    store.keeps_back([Call::Publish]);
    let names: Vec<_> = (0..10).map(|number| feed(&format!("feed-{number}"))).collect();
    put_each(&feeds, &names).await;
    settle().await;
    assert_eq!((store.calls(Call::Publish), feeds.stats().open), (2, 2));

    store.keeps_back([]);
    settle().await;
    pass(Span(100)).await;
    assert_eq!((store.pending(), feeds.stats().open), (0, 0));
}

#[clockwork::test]
async fn followed_feeds_do_not_keep_others_from_being_published() {
    let store = FeedStore::new();
    let feeds = node_within(&store, FeedLimits { feeds_open_max: 1, ..limits() });
    put(&feeds, &feed("a"), "key", "value").await;
    let mut reader = Reader::of(&feeds, &feed("a"));
    reader.catches_up().await;
    for name in ["b", "c"] {
        put(&feeds, &feed(name), "key", "value").await;
        settle().await;
        assert_eq!(store.pending(), 0, "{name}");
    }
}

#[clockwork::test]
async fn writes_during_a_full_mailbox_are_published_by_a_sweep() {
    let store = FeedStore::new();
    let limits = FeedLimits { mailbox_max: 1, feeds_open_max: 100, ..limits() };
    let feeds = node_within(&store, limits);
    settle().await;
    assert_eq!(store.calls(Call::List), 1, "the sweep at start");
    let names: Vec<_> = (0..50).map(|number| feed(&format!("feed-{number}"))).collect();
    put_each(&feeds, &names).await;
    settle().await;
    assert!(store.pending() > 0, "the publisher has not heard of all");
    pass(Span(100)).await;
    assert_eq!((store.calls(Call::List), store.pending()), (2, 0));
}

#[clockwork::test]
async fn followers_are_noticed_though_the_mailbox_was_full() {
    let (store, names) = (FeedStore::new(), ["a", "b", "c", "d"].map(feed));
    let (here, there) =
        (node_within(&store, FeedLimits { mailbox_max: 1, ..limits() }), node(&store));
    for name in &names {
        put(&there, name, "key", "value").await;
    }
    settle().await;
    let mut readers: Vec<Reader> = names.iter().map(|name| Reader::of(&here, name)).collect();
    for reader in &mut readers {
        reader.catches_up().await;
    }
    assert_eq!(here.stats().open, 4);
    for name in &names {
        put(&there, name, "key", "another").await;
    }
    pass(POLL).await;
    for reader in &mut readers {
        assert_eq!(reader.hears().await, "key=another");
    }
    drop(readers);
    settle().await;
    assert_eq!(here.stats().open, 0);
}

#[clockwork::test]
async fn one_order_of_a_feed_is_under_way_at_a_time() {
    let (store, fred, feeds) = fred();
    settle().await;
    store.keeps_back([Call::Publish]);
    put_all(&feeds, &fred, (0..50).map(|number| format!("key {number}"))).await;
    settle().await;
    assert_eq!(store.calls(Call::Publish), 1);
    store.keeps_back([]);
    settle().await;
    assert_eq!(store.pending(), 0);
}
