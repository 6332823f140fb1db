//! Old tombstones are forgotten.

use actors::feeds::SubscriptionError;
use actors::{FeedLimits, Feeds};
use state_machine::Span;
use state_machine::feed::{ConsumerEnd, FeedKey, FeedName, FeedSyncId, Version};

use super::{Call, FeedStore, Reader, SWEEP, feed, limits, node_within, put};
use crate::clockwork::{self, pass, settle};

const KEEP: Span = Span::from_secs(3600);

fn keeping(store: &FeedStore, keep: Option<Span>) -> Feeds {
    node_within(store, FeedLimits { tombstones_keep: keep, ..limits() })
}

async fn delete(feeds: &Feeds, feed: &FeedName, key: &str) {
    let key = FeedKey::parse(key).unwrap();
    feeds.delete(feed.clone(), key).await.unwrap().expect("the key is there");
}

/// A feed with the tombstone `b` between the values `a` and `c`, and the consumers that have all of it.
async fn fill(store: &FeedStore, keep: Option<Span>) -> (Feeds, FeedName, Reader) {
    let (feeds, fred) = (keeping(store, keep), feed("fred"));
    for key in ["a", "b"] {
        put(&feeds, &fred, key, "value").await;
    }
    settle().await;
    delete(&feeds, &fred, "b").await;
    settle().await;
    put(&feeds, &fred, "c", "value").await;
    let mut reader = Reader::of(&feeds, &fred);
    reader.catches_up().await;
    (feeds, fred, reader)
}

/// Longer than a mark and the next take, a sweep each.
async fn pass_two_periods() {
    for _sweep in 0..125 {
        pass(SWEEP).await;
        settle().await;
    }
}

#[clockwork::test]
async fn a_tombstone_is_forgotten_once_it_is_old_and_values_stay() {
    let store = FeedStore::new();
    let (feeds, fred, mut reader) = fill(&store, Some(KEEP)).await;
    pass_two_periods().await;
    let table = store.table(&fred);
    assert_eq!(table.sequence().keys, 2);
    assert!(table.row("b").is_none());
    assert_eq!(table.sequence().horizon, FeedSyncId(3), "the number of the tombstone");
    assert_eq!(feeds.stats().forgotten, 1);
    // The follower that was there has everything, and one that begins now needs no tombstone.
    reader.catches_up().await;
    for mut reader in [reader, Reader::of(&feeds, &fred)] {
        reader.catches_up().await;
        reader.forgets("b");
        reader.has_seen_all(&store, &fred);
    }
    assert_eq!(put(&feeds, &fred, "b", "again").await, Version(5), "above the tombstone's");
}

#[clockwork::test]
async fn a_tombstone_is_kept_for_its_time_and_for_ever_without_one() {
    for (keep, sweeps) in [(Some(KEEP), 59), (None, 200)] {
        let store = FeedStore::new();
        let (_feeds, fred, _reader) = fill(&store, keep).await;
        for _sweep in 0..sweeps {
            pass(SWEEP).await;
            settle().await;
        }
        assert_eq!(store.table(&fred).sequence().keys, 3, "{keep:?}");
        assert_eq!(store.calls(Call::Forget) > 0, keep.is_some(), "a mark is set");
    }
}

#[clockwork::test]
async fn a_consumer_that_missed_a_forgotten_tombstone_is_ended() {
    let store = FeedStore::new();
    let (feeds, fred, _reader) = fill(&store, Some(KEEP)).await;
    pass_two_periods().await;
    let mut late = feeds.subscribe(fred, FeedSyncId(2)).unwrap();
    let end = ConsumerEnd::CursorTooOld { horizon: FeedSyncId(3) };
    assert_eq!(late.next().await, Err(SubscriptionError::End(end)));
}

#[clockwork::test]
async fn a_store_that_fails_is_tried_again_with_the_next_sweep() {
    let store = FeedStore::new();
    let (_feeds, fred, _reader) = fill(&store, Some(KEEP)).await;
    store.fails([Call::Forget]);
    pass_two_periods().await;
    assert_eq!(store.table(&fred).sequence().keys, 3);
    store.fails([]);
    pass_two_periods().await;
    assert_eq!(store.table(&fred).sequence().keys, 2);
}
