//! Following a feed: every last state, from any cursor, however often one stops waiting.

use actors::{FeedSubscription, SubscriptionError};
use state_machine::feed::{ConsumerEnd, FeedKey, FeedSyncId};

use super::{
    Call, FeedStore, Reader, feed, fred, fred_with_bob, fred_with_reader, node, put, put_each,
    shown,
};
use crate::clockwork::{self, settle};

#[clockwork::test]
async fn a_follower_begins_behind_its_cursor() {
    let (_, fred, feeds) = fred();
    for number in 1..=3 {
        put(&feeds, &fred, &format!("key {number}"), "value").await;
        settle().await;
    }
    let mut follower = feeds.subscribe(fred, FeedSyncId(2)).unwrap();
    assert_eq!(follower.cursor(), FeedSyncId(2));
    let page = follower.next().await.unwrap();
    assert_eq!(page.updates.iter().map(shown).collect::<Vec<_>>(), ["key 3=value"]);
    assert_eq!(follower.cursor(), FeedSyncId(3));
}

#[clockwork::test]
async fn a_feed_that_is_not_there_cannot_be_followed() {
    let (_, fred, feeds) = fred();
    let mut follower = feeds.subscribe(fred, FeedSyncId::NONE).unwrap();
    let end = SubscriptionError::End(ConsumerEnd::NoSuchFeed);
    assert_eq!(follower.next().await, Err(end));
    assert_eq!(follower.next().await, Err(end), "and it stays so");
}

#[clockwork::test]
async fn a_cursor_from_the_future_cannot_be_followed_from() {
    let (_, fred, feeds) = fred_with_bob().await;
    let mut follower = feeds.subscribe(fred, FeedSyncId(2)).unwrap();
    let end = ConsumerEnd::CursorFromTheFuture { head: FeedSyncId(1) };
    assert_eq!(follower.next().await, Err(SubscriptionError::End(end)));
}

#[clockwork::test]
async fn a_subscription_to_a_missing_feed_begins_with_its_first_write() {
    let (_, fred, feeds) = fred();
    let mut follower = feeds.subscribe_when_created(fred.clone(), FeedSyncId::NONE);
    assert!(stops_waiting(&mut follower).await);
    put(&feeds, &fred, "name", "bob").await;
    let page = follower.next().await.unwrap();
    assert_eq!(page.updates.iter().map(shown).collect::<Vec<_>>(), ["name=bob"]);
}

#[clockwork::test]
async fn a_next_call_that_is_dropped_loses_no_update() {
    let (store, fred, feeds) = fred_with_bob().await;
    let mut follower = feeds.subscribe(fred.clone(), FeedSyncId::NONE).unwrap();
    store.keeps_back([Call::Fetch]);
    for _ in 0..3 {
        assert!(stops_waiting(&mut follower).await, "the page is kept back");
        assert_eq!(follower.cursor(), FeedSyncId::NONE);
    }
    assert_eq!(store.calls(Call::Fetch), 1, "the page is on its way still");
    store.keeps_back([]);
    assert_eq!(follower.next().await.unwrap().updates.len(), 1);

    for value in ["jim", "joe"] {
        assert!(stops_waiting(&mut follower).await);
        put(&feeds, &fred, "name", value).await;
        settle().await;
        let page = follower.next().await.unwrap();
        assert_eq!(shown(&page.updates[0]), format!("name={value}"));
    }
}

#[clockwork::test]
async fn a_slow_follower_is_not_read_ahead_for() {
    let (store, fred, feeds) = fred();
    for number in 0..20 {
        put(&feeds, &fred, &format!("key {number}"), "value").await;
    }
    settle().await;
    let mut reader = Reader::of(&feeds, &fred);
    assert_eq!(reader.next().await.updates.len(), 4, "a page");
    put(&feeds, &fred, "key 0", "another").await;
    settle().await;
    assert_eq!((store.calls(Call::Fetch), feeds.stats().followers_behind), (1, 1));
    reader.catches_up().await;
    reader.has_seen_all(&store, &fred);
    assert_eq!(feeds.stats().followers_behind, 0);

    let mut gone = Reader::of(&feeds, &fred);
    gone.next().await;
    assert_eq!(feeds.stats().followers_behind, 1);
    drop(gone);
    assert_eq!(feeds.stats().followers_behind, 0);
}

#[clockwork::test]
async fn a_follower_learns_the_head_of_a_feed_whose_rows_are_deleted() {
    let (store, fred, feeds) = fred_with_bob().await;
    put(&feeds, &fred, "other", "value").await;
    settle().await;
    // The last number is given up, and there is no new one before it is published again.
    store.fails([Call::Publish]);
    feeds.republish(fred.clone(), FeedKey::parse("other").unwrap()).await.unwrap();
    let mut follower = feeds.subscribe(fred, FeedSyncId(1)).unwrap();
    let page = follower.next().await.unwrap();
    assert_eq!((page.updates.len(), page.cursor), (0, FeedSyncId(2)));
    assert_eq!(follower.cursor(), FeedSyncId(2));
}

#[clockwork::test]
async fn dropped_followers_are_no_longer_counted() {
    let (store, names) = (FeedStore::new(), ["a", "b", "c"].map(feed));
    let feeds = node(&store);
    put_each(&feeds, &names).await;
    let mut readers: Vec<Reader> = names
        .iter()
        .flat_map(|name| [Reader::of(&feeds, name), Reader::of(&feeds, name)])
        .collect();
    for reader in &mut readers {
        reader.catches_up().await;
    }
    for (kept, expected) in [(6, (6, 3, 3)), (3, (3, 2, 2)), (0, (0, 0, 0))] {
        readers.truncate(kept);
        settle().await;
        let load = feeds.stats();
        assert_eq!((load.followers, load.followed, load.open), expected, "{kept} are kept");
    }
}

#[clockwork::test]
async fn a_node_that_stops_ends_subscriptions_and_still_publishes() {
    let (store, fred, feeds, mut reader) = fred_with_reader().await;
    let before = actix_web::rt::spawn(async move { reader.follower.next().await });
    settle().await;
    feeds.close();
    assert_eq!(before.await.unwrap(), Err(SubscriptionError::Closed));

    let mut after = feeds.subscribe(fred.clone(), FeedSyncId(1)).unwrap();
    assert_eq!(after.next().await, Err(SubscriptionError::Closed));
    put(&feeds, &fred, "name", "jim").await;
    settle().await;
    assert_eq!(store.pending(), 0);
    drop(after);
    assert_eq!(feeds.stats().followers, 0);
}

/// Waits for a page and gives up. Returns whether there was none.
async fn stops_waiting(follower: &mut FeedSubscription) -> bool {
    tokio::select! {
        biased;
        _ = follower.next() => false,
        () = settle() => true,
    }
}
