//! Followers at the same cursor share the read of a page, and none of them misses an update.

use std::sync::Arc;

use actors::{FeedSubscription, SubscriptionError};
use futures_util::future::join_all;
use state_machine::feed::{ConsumerEnd, FeedSyncId};

use super::{Call, FeedStore, Reader, feed, fred_with_bob, node, put};
use crate::clockwork::{self, settle};

#[clockwork::test]
async fn a_hundred_followers_read_an_update_once() {
    let (store, fred, feeds) = fred_with_bob().await;
    let mut readers: Vec<_> = (0..100).map(|_| Reader::of(&feeds, &fred)).collect();
    join_all(readers.iter_mut().map(Reader::catches_up)).await;
    for value in ["jim", "joe"] {
        let before = store.calls(Call::Fetch);
        put(&feeds, &fred, "name", value).await;
        for update in join_all(readers.iter_mut().map(Reader::hears)).await {
            assert_eq!(update, format!("name={value}"));
        }
        assert_eq!(store.calls(Call::Fetch) - before, 1);
    }
}

#[clockwork::test]
async fn followers_share_a_page_and_its_text() {
    let (_, fred, feeds) = fred_with_bob().await;
    let follow = || feeds.subscribe(fred.clone(), FeedSyncId::NONE).unwrap();
    let [mut one, mut other, mut third] = [follow(), follow(), follow()];
    let (page, same) = (one.next_shared().await.unwrap(), other.next_shared().await.unwrap());
    assert!(Arc::ptr_eq(&page, &same));
    assert_eq!(page.text(|page| page.cursor.to_string()), "1");
    assert_eq!(same.text(|_| unreachable!("the text is written already")), "1");
    drop((page, same));
    let last = third.next_shared().await.unwrap();
    assert_eq!(Arc::strong_count(&last), 1, "a page that all have taken is dropped");
}

#[clockwork::test]
async fn a_follower_does_not_join_a_read_that_began_before_a_greater_head() {
    let (store, fred, feeds) = fred_with_bob().await;
    let mut readers = [Reader::of(&feeds, &fred), Reader::of(&feeds, &fred)];
    settle().await;
    store.keeps_back([Call::Fetch]);
    readers[0].catches_up().await;
    put(&feeds, &fred, "other", "value").await;
    settle().await;
    let mut later = Reader::of(&feeds, &fred);
    later.catches_up().await;
    assert_eq!(store.calls(Call::Fetch), 2);
    store.keeps_back([]);
    for reader in readers.iter_mut().chain([&mut later]) {
        reader.catches_up().await;
        reader.has_seen_all(&store, &fred);
    }
}

#[clockwork::test]
async fn a_follower_with_a_later_cursor_than_the_read_that_it_joins_reads_by_itself() {
    let (store, fred) = (FeedStore::new(), feed("fred"));
    let (feeds, other_node) = (node(&store), node(&store));
    put(&feeds, &fred, "name", "bob").await;
    settle().await;
    let mut early = feeds.subscribe(fred.clone(), FeedSyncId(2)).unwrap();
    let mut later = feeds.subscribe(fred.clone(), FeedSyncId(2)).unwrap();
    settle().await;
    store.keeps_back([Call::Fetch]);
    assert_eq!(page_now(&mut early).await, None);
    // This node does not know of the number yet. A client may have it from a page it has read.
    put(&other_node, &fred, "name", "jim").await;
    settle().await;
    assert_eq!(page_now(&mut later).await, None);
    store.keeps_back([]);
    let end = SubscriptionError::End(ConsumerEnd::CursorFromTheFuture { head: FeedSyncId(1) });
    assert_eq!(page_now(&mut early).await, Some(Err(end)));
    assert_eq!(page_now(&mut later).await, None, "its cursor is that of the feed");
}

#[clockwork::test]
async fn followers_go_on_when_the_one_that_began_their_read_stops_waiting() {
    let (store, fred, feeds) = fred_with_bob().await;
    let mut first = feeds.subscribe(fred.clone(), FeedSyncId::NONE).unwrap();
    let mut reader = Reader::of(&feeds, &fred);
    settle().await;
    store.keeps_back([Call::Fetch]);
    assert_eq!(page_now(&mut first).await, None);
    reader.catches_up().await;
    drop(first);
    assert_eq!(store.calls(Call::Fetch), 1);
    store.keeps_back([]);
    assert_eq!(reader.hears().await, "name=bob");
    assert_eq!(store.calls(Call::Fetch), 1);
}

/// The number of updates of the next page, or why there is none; nothing if it waits.
async fn page_now(follower: &mut FeedSubscription) -> Option<Result<usize, SubscriptionError>> {
    tokio::select! {
        biased;
        page = follower.next() => Some(page.map(|page| page.updates.len())),
        () = settle() => None,
    }
}
