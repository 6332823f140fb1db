//! Feeds: durability, dropped futures, closing.

use state_machine::feed::{FeedSyncId, WriteResult};
use storage::StoreError;

use crate::conformance::feed_world::*;
use crate::conformance::world::World;

pub(crate) async fn every_feed_is_there_after_a_restart(world: World) {
    write_all(&*world, FEED, &["a", "b", "c"]).await;
    write(&*world, "other", "a", "1").await;
    publish_all(&*world, FEED).await;
    delete(&*world, FEED, "a").await;
    publish_all(&*world, FEED).await;
    republish(&*world, FEED, "b").await;
    let (feeds, seen) = (world.feeds(None, 10).await, updates(&*world, FEED, 0).await);
    let world = world.restart().await;
    assert_eq!(world.feeds(None, 10).await, feeds);
    assert_eq!(updates(&*world, FEED, 0).await, seen);
    assert_eq!((publish_all(&*world, FEED).await, publish_all(&*world, "other").await), (1, 1));
    assert_eq!(updates(&*world, FEED, 4).await, [saw(5, "b", 4, "b")]);
}

pub(crate) async fn calls_for_feeds_whose_futures_are_dropped_are_still_done(world: World) {
    for number in 0..30 {
        let name = key(&format!("{number:02}"));
        drop(world.write_key(feed(FEED), name, value("v"), KEYS_MAX));
    }
    let world = world.restart().await;
    assert_eq!(sequence(&*world, FEED).await.keys, 30);
    write(&*world, FEED, "30", "v").await;
    drop(world.republish_key(feed(FEED), key("30")));
    let world = world.restart().await;
    drop(world.delete_key(feed(FEED), key("00")));
    let world = world.restart().await;
    drop(world.publish(feed(FEED), Some(key("28")), 1));
    let world = world.restart().await;
    assert_eq!(updates(&*world, FEED, 0).await, [saw(1, "29", 2, "v")]);
    assert_eq!(publish_all(&*world, FEED).await, 30);
    let seen = updates(&*world, FEED, 1).await;
    assert_eq!(seen.first(), Some(&saw_gone(2, "00", 3)));
    assert_eq!(seen.last(), Some(&saw(31, "30", 3, "v")));
}

pub(crate) async fn closing_finishes_what_is_queued_for_feeds(world: World) {
    write(&*world, FEED, "k", "v").await;
    let names: Vec<_> = (0..50).map(|number| format!("{number:02}")).collect();
    let write = |name: &String| world.write_key(feed(FEED), key(name), value("v"), KEYS_MAX);
    let queued: Vec<_> = names.iter().map(write).collect();
    assert_eq!(world.close().await, Ok(()));
    for answer in queued {
        assert!(matches!(answer.await, Ok(WriteResult::Done(_))));
    }
    let world = world.restart().await;
    assert_eq!(publish_all(&*world, FEED).await, 51);
}

pub(crate) async fn a_closed_store_takes_no_work_for_feeds(world: World) {
    write(&*world, FEED, "a", "1").await;
    world.close().await.unwrap();
    let written = world.write_key(feed(FEED), key("b"), value("1"), KEYS_MAX).await;
    assert_eq!(written, Err(StoreError::Closed));
    assert_eq!(world.republish_key(feed(FEED), key("a")).await, Err(StoreError::Closed));
    assert_eq!(world.delete_key(feed(FEED), key("a")).await, Err(StoreError::Closed));
    assert_eq!(world.publish(feed(FEED), None, 1).await, Err(StoreError::Closed));
    let fetched = world.fetch_feed(feed(FEED), FeedSyncId::NONE, PAGE).await;
    assert_eq!(fetched, Err(StoreError::Closed));
    assert_eq!(world.feeds(None, 1).await, Err(StoreError::Closed));
    let world = world.restart().await;
    assert_eq!(updates(&*world, FEED, 0).await, []);
    assert_eq!(publish_all(&*world, FEED).await, 1);
}
