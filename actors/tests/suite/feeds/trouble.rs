//! A store that fails for a while costs time and nothing else.

use actors::SubscriptionError;
use state_machine::Span;
use state_machine::feed::{FeedKey, FeedSyncId, FeedValue};
use storage::StoreError;

use super::{
    Call, FeedStore, POLL, RETRY, Reader, SWEEP, feed, fred, fred_with_bob, fred_with_reader, node,
    put, put_each,
};
use crate::clockwork::{self, pass, settle};

#[clockwork::test]
async fn a_feed_that_could_not_be_published_is_published_later() {
    let (store, fred, feeds, mut reader) = fred_with_reader().await;
    store.fails([Call::Publish]);
    let before = store.calls(Call::Publish);
    put(&feeds, &fred, "name", "jim").await;
    settle().await;
    for _ in 0..70 {
        pass(RETRY).await;
    }
    let asked = store.calls(Call::Publish) - before;
    assert!((5..=8).contains(&asked), "{asked} times in 70 waits: they double");
    store.fails([]);
    pass(Span(RETRY.0 * 64)).await;
    assert_eq!(reader.hears().await, "name=jim");
}

#[clockwork::test]
async fn a_follower_whose_page_could_not_be_read_gets_it_later() {
    let (store, fred, feeds) = fred_with_bob().await;
    store.fails([Call::Fetch]);
    let mut reader = Reader::of(&feeds, &fred);
    reader.catches_up().await;
    assert_eq!((reader.pages, store.calls(Call::Fetch)), (0, 1));
    // Every time that it waits anew, for less than the wait that is left.
    for _ in 0..4 {
        pass(Span(RETRY.0 / 4)).await;
        reader.catches_up().await;
    }
    assert_eq!((reader.pages, store.calls(Call::Fetch)), (0, 2));
    store.fails([]);
    pass(Span(RETRY.0 * 2)).await;
    assert_eq!(reader.hears().await, "name=bob");
}

#[clockwork::test]
async fn a_failed_write_is_reported_and_published_if_it_was_written() {
    let (store, fred, feeds) = fred();
    settle().await;
    store.fails([Call::Write]);
    let (key, value) = (FeedKey::parse("name").unwrap(), FeedValue::parse("bob").unwrap());
    let written = feeds.write(fred.clone(), key, value).await;
    assert_eq!(written, Err(StoreError::Busy));
    settle().await;
    assert_eq!(store.calls(Call::Publish), 1);
    let mut follower = feeds.subscribe(fred, FeedSyncId::NONE).unwrap();
    assert!(matches!(follower.next().await, Err(SubscriptionError::End(_))));
}

#[clockwork::test]
async fn a_sweep_that_could_not_list_the_feeds_is_retried() {
    let (store, fred) = (FeedStore::new(), feed("fred"));
    store.writes_and_dies(&fred, "name", "bob");
    store.fails([Call::List]);
    let _feeds = node(&store);
    settle().await;
    pass(RETRY).await;
    assert_eq!((store.calls(Call::List), store.pending()), (2, 1));
    store.fails([]);
    pass(RETRY).await;
    assert_eq!((store.calls(Call::List), store.pending()), (3, 0));
}

#[clockwork::test]
async fn while_the_store_fails_for_one_feed_others_are_published() {
    let store = FeedStore::new();
    let feeds = node(&store);
    settle().await;
    store.fails([Call::Publish]);
    put(&feeds, &feed("a"), "key", "value").await;
    settle().await;
    store.fails([]);
    put(&feeds, &feed("b"), "key", "value").await;
    settle().await;
    assert_eq!(store.pending(), 1);
    pass(RETRY).await;
    assert_eq!((store.pending(), feeds.stats().open), (0, 0));
}

#[clockwork::test]
async fn a_late_answer_of_the_store_delays_no_other_feed() {
    let (store, names) = (FeedStore::new(), ["a", "b"].map(feed));
    let feeds = node(&store);
    put_each(&feeds, &names).await;
    let mut reader = Reader::of(&feeds, &names[0]);
    reader.catches_up().await;
    store.keeps_back([Call::Publish, Call::List]);
    pass(POLL).await;
    pass(SWEEP).await;
    let asked = store.calls(Call::Publish);
    pass(SWEEP).await;
    assert_eq!(store.calls(Call::Publish), asked, "no feed is asked for twice");
    store.keeps_back([]);
    settle().await;
    put(&feeds, &names[0], "key", "another").await;
    assert_eq!(reader.hears().await, "key=another");
}
