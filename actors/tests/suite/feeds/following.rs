//! Following a feed: every last state, from any cursor, however often one stops waiting.

use actors::{FeedSubscription, SubscriptionError};
use state_machine::feed::{ConsumerEnd, FeedKey, FeedSyncId};

use super::{Call, FeedStore, Reader, feed, node, put, shown};
use crate::clockwork::{self, settle};

#[test]
fn a_follower_begins_behind_its_cursor() {
    clockwork::run(async {
        let (store, fred) = (FeedStore::new(), feed("fred"));
        let feeds = node(&store);
        for number in 1..=3 {
            put(&feeds, &fred, &format!("key {number}"), "value").await;
            settle().await;
        }
        let mut follower = feeds.subscribe(fred, FeedSyncId(2)).unwrap();
        assert_eq!(follower.cursor(), FeedSyncId(2));
        let page = follower.next().await.unwrap();
        assert_eq!(page.updates.iter().map(shown).collect::<Vec<_>>(), ["key 3=value"]);
        assert_eq!(follower.cursor(), FeedSyncId(3));
    });
}

#[test]
fn a_feed_that_is_not_there_cannot_be_followed() {
    clockwork::run(async {
        let feeds = node(&FeedStore::new());
        let mut follower = feeds.subscribe(feed("fred"), FeedSyncId::NONE).unwrap();
        let end = SubscriptionError::End(ConsumerEnd::NoSuchFeed);
        assert_eq!(follower.next().await, Err(end));
        assert_eq!(follower.next().await, Err(end), "and it stays so");
    });
}

#[test]
fn a_cursor_from_the_future_cannot_be_followed_from() {
    clockwork::run(async {
        let fred = feed("fred");
        let feeds = node(&FeedStore::new());
        put(&feeds, &fred, "name", "bob").await;
        settle().await;
        let mut follower = feeds.subscribe(fred, FeedSyncId(2)).unwrap();
        let end = ConsumerEnd::CursorFromTheFuture { head: FeedSyncId(1) };
        assert_eq!(follower.next().await, Err(SubscriptionError::End(end)));
    });
}

#[test]
fn a_feed_that_is_waited_for_is_followed_from_its_first_write_on() {
    clockwork::run(async {
        let fred = feed("fred");
        let feeds = node(&FeedStore::new());
        let mut follower = feeds.subscribe_when_created(fred.clone(), FeedSyncId::NONE);
        assert!(stops_waiting(&mut follower).await);
        put(&feeds, &fred, "name", "bob").await;
        let page = follower.next().await.unwrap();
        assert_eq!(page.updates.iter().map(shown).collect::<Vec<_>>(), ["name=bob"]);
    });
}

#[test]
fn whoever_stops_waiting_and_waits_again_misses_nothing() {
    clockwork::run(async {
        let (store, fred) = (FeedStore::new(), feed("fred"));
        let feeds = node(&store);
        put(&feeds, &fred, "name", "bob").await;
        settle().await;
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
    });
}

#[test]
fn a_follower_that_takes_its_time_is_not_read_ahead_for() {
    clockwork::run(async {
        let (store, fred) = (FeedStore::new(), feed("fred"));
        let feeds = node(&store);
        for number in 0..20 {
            put(&feeds, &fred, &format!("key {number}"), "value").await;
        }
        settle().await;
        let mut reader = Reader::of(&feeds, &fred);
        assert_eq!(reader.next().await.updates.len(), 4, "a page");
        put(&feeds, &fred, "key 0", "another").await;
        settle().await;
        assert_eq!(store.calls(Call::Fetch), 1);
        reader.catches_up().await;
        reader.has_seen_all(&store, &fred);
    });
}

#[test]
fn a_follower_is_told_how_far_a_feed_has_come_though_nothing_is_left_there() {
    clockwork::run(async {
        let (store, fred) = (FeedStore::new(), feed("fred"));
        let feeds = node(&store);
        put(&feeds, &fred, "name", "bob").await;
        settle().await;
        put(&feeds, &fred, "other", "value").await;
        settle().await;
        // The last number is given up, and there is no new one before it is published again.
        store.fails([Call::Publish]);
        feeds.republish(fred.clone(), FeedKey::parse("other").unwrap()).await.unwrap();
        let mut follower = feeds.subscribe(fred, FeedSyncId(1)).unwrap();
        let page = follower.next().await.unwrap();
        assert_eq!((page.updates.len(), page.cursor), (0, FeedSyncId(2)));
        assert_eq!(follower.cursor(), FeedSyncId(2));
    });
}

#[test]
fn followers_that_are_gone_leave_nothing_behind() {
    clockwork::run(async {
        let (store, names) = (FeedStore::new(), ["a", "b", "c"].map(feed));
        let feeds = node(&store);
        for name in &names {
            put(&feeds, name, "key", "value").await;
        }
        let mut readers: Vec<Reader> = names
            .iter()
            .flat_map(|name| [Reader::of(&feeds, name), Reader::of(&feeds, name)])
            .collect();
        for reader in &mut readers {
            reader.catches_up().await;
        }
        let load = feeds.stats();
        assert_eq!((load.followers, load.followed, load.open), (6, 3, 3));

        readers.truncate(3);
        settle().await;
        let load = feeds.stats();
        assert_eq!((load.followers, load.followed, load.open), (3, 2, 2));

        drop(readers);
        settle().await;
        let load = feeds.stats();
        assert_eq!((load.followers, load.followed, load.open), (0, 0, 0));
    });
}

#[test]
fn a_node_that_stops_lets_its_followers_go_and_publishes_on() {
    clockwork::run(async {
        let (store, fred) = (FeedStore::new(), feed("fred"));
        let feeds = node(&store);
        put(&feeds, &fred, "name", "bob").await;
        let mut reader = Reader::of(&feeds, &fred);
        assert_eq!(reader.hears().await, "name=bob");
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
    });
}

/// Waits for a page and gives up; whether none came.
async fn stops_waiting(follower: &mut FeedSubscription) -> bool {
    tokio::select! {
        biased;
        _ = follower.next() => false,
        () = settle() => true,
    }
}
