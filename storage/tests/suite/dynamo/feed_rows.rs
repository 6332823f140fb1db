//! The feed tables as they are on a real server: the shapes of our rows, rows that make no sense,
//! two nodes at once.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::future::join_all;
use state_machine::feed::{FeedName, FeedSyncId, FeedValue, PublishResult, Version, WriteResult};
use storage::{FeedTables, PageLimit, StoreError};
use storage_dynamodb::Dynamo;

use crate::dynamo::feed_replies::{feed, key, value};
use crate::dynamo::things::*;
use crate::names::until_done;

const KEYS_MAX: u64 = 100;
const ALL: PageLimit = PageLimit { rows: 1000, bytes: 1_000_000 };

impl Tables {
    /// Puts a row of the feed that no engine would write.
    async fn put_feed_row(&self, sort_key: &str, more: &[(&str, AttributeValue)]) {
        let keys = [("feed", s("f")), ("item", s(sort_key))];
        self.put("feeds", keys.iter().chain(more)).await;
    }
}

async fn write(store: &Dynamo, name: &str) -> Version {
    let written = store.write_key(feed(), key(name), value(name), KEYS_MAX).await;
    let Ok(WriteResult::Done(version)) = written else { panic!("{written:?}") };
    version
}

async fn publish(store: &Dynamo) -> PublishResult {
    store.publish(feed(), None, 100).await.unwrap().unwrap()
}

/// Numbers and keys of all that was published.
async fn published(store: &Dynamo) -> Vec<(u64, String)> {
    let page = store.fetch_feed(feed(), FeedSyncId::NONE, ALL).await.unwrap().unwrap();
    assert_eq!(page.cursor, page.head);
    page.updates.iter().map(|update| (update.feed_sync_id.0, update.key.to_string())).collect()
}

#[tokio::test]
async fn the_rows_of_a_feed_are_as_they_are_documented() {
    let (tables, store) = Tables::with_node();
    for name in ["a", "b"] {
        write(&store, name).await;
    }
    publish(&store).await;
    write(&store, "b").await;
    store.delete_key(feed(), key("a")).await.unwrap();
    assert_eq!(store.publish(feed(), None, 1).await.unwrap().unwrap().head, FeedSyncId(3));
    let sequence =
        [("name", s("f")), ("value", n(3)), ("version", n(2)), ("keys", n(2)), ("settled", n(3))];
    assert_eq!(tables.rows("sequences").await, [item(&sequence)]);
    let number = format!("n:{:020}", 3);
    let of = |sort_key: &str, more: &[(&str, AttributeValue)]| {
        item([("feed", s("f")), ("item", s(sort_key))].iter().chain(more))
    };
    let expected = [
        of("k:a", &[("version", n(4)), ("number", n(3))]),
        of("k:b", &[("version", n(3))]),
        of(&number, &[("key", s("a")), ("version", n(4))]),
        of("p:b", &[("version", n(3)), ("value", s("b"))]),
    ];
    assert_eq!(tables.rows("feeds").await, expected);
}

#[tokio::test]
async fn updates_that_make_no_sense_are_passed_over_and_counted() {
    let (tables, store) = Tables::with_node();
    for name in ["a", "b", "c", "d"] {
        write(&store, name).await;
    }
    publish(&store).await;
    let number = |number: u64| format!("n:{number:020}");
    tables.put_feed_row(&number(1), &[("key", s("")), ("version", n(2))]).await;
    tables.put_feed_row(&number(2), &[("key", s("b"))]).await;
    tables.put_feed_row(&format!("{}x", number(2)), &[("key", s("b")), ("version", n(2))]).await;
    let expected = vec![(3, "c".to_owned()), (4, "d".to_owned())];
    assert_eq!(published(&store).await, expected);
    assert_eq!(store.engine().unreadable(), 3);
    // A page of one is not kept up by them either.
    let one = PageLimit { rows: 1, ..ALL };
    let page = store.fetch_feed(feed(), FeedSyncId::NONE, one).await.unwrap().unwrap();
    assert_eq!((page.updates.len(), page.cursor), (1, FeedSyncId(3)));
}

#[tokio::test]
async fn unreadable_waiting_rows_block_no_other_key() {
    let (tables, store) = Tables::with_node();
    write(&store, "m").await;
    tables.put_feed_row("p:", &[("version", n(1))]).await;
    tables.put_feed_row("p:a", &[]).await;
    tables.put_feed_row("p:b", &[("version", n(1)), ("value", n(1))]).await;
    // One of a key that was never written.
    tables.put_feed_row("p:c", &[("version", n(1)), ("value", s("c"))]).await;
    let first = store.publish(feed(), None, 1).await.unwrap().unwrap();
    assert_eq!((first.count, first.head), (1, FeedSyncId(1)));
    assert_eq!(published(&store).await, [(1, "m".to_owned())]);
    assert!(store.engine().unreadable() >= 4);
    write(&store, "m").await;
    assert_eq!(publish(&store).await.count, 1);
}

#[tokio::test]
async fn feeds_that_make_no_sense_hide_no_other() {
    let (tables, store) = Tables::with_node();
    write(&store, "a").await;
    tables.put("sequences", &[("name", s("A name that is none"))]).await;
    tables.put("sequences", &[("name", s("a-feed"))]).await;
    let feeds = store.feeds(None, 10).await.unwrap();
    assert_eq!(feeds.iter().map(|state| state.name.as_str()).collect::<Vec<_>>(), ["f"]);
    assert_eq!(store.engine().unreadable(), 2);
    let broken = FeedName::parse("a-feed").unwrap();
    let read = store.fetch_feed(broken.clone(), FeedSyncId::NONE, ALL).await;
    assert!(matches!(read, Err(StoreError::Failed(_))), "{read:?}");
    let written = store.write_key(broken, key("k"), value("v"), KEYS_MAX).await;
    assert!(matches!(written, Err(StoreError::Failed(_))), "its numbers would begin anew");
}

/// `settled` never passes the unfinished publication of a dead publisher.
#[tokio::test]
async fn what_a_publisher_left_that_died_is_seen_after_the_next_publication() {
    let (tables, store) = Tables::with_node();
    for name in ["a", "b"] {
        write(&store, name).await;
    }
    publish(&store).await;
    let died =
        [("name", s("f")), ("value", n(2)), ("version", n(1)), ("keys", n(2)), ("settled", n(0))];
    tables.put("sequences", &died).await;
    assert_eq!(published(&store).await, []);
    let nothing_waits = PublishResult { count: 0, head: FeedSyncId(2), next: None };
    assert_eq!(publish(&store).await, nothing_waits);
    assert_eq!(published(&store).await, [(1, "a".to_owned()), (2, "b".to_owned())]);
}

#[tokio::test]
async fn values_of_more_bytes_than_a_transaction_has_are_published_in_several() {
    let (_tables, store) = Tables::with_node();
    let large = FeedValue::parse(&"x".repeat(FeedValue::BYTES_MAX)).unwrap();
    for number in 0..6 {
        let written = store.write_key(feed(), key(&number.to_string()), large.clone(), KEYS_MAX);
        assert_eq!(written.await, Ok(WriteResult::Done(Version(1))));
    }
    let first = store.publish(feed(), None, 6).await.unwrap().unwrap();
    assert!((1..6).contains(&first.count), "{first:?}");
    let second = store.publish(feed(), first.next, 6).await.unwrap().unwrap();
    assert_eq!((first.count + second.count, second.head), (6, FeedSyncId(6)));
    assert_eq!(second.next, None);
}

/// Two engines share nothing but the tables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_that_write_and_publish_at_once_give_each_number_once_and_lose_nothing() {
    let tables = Tables::new();
    let nodes = [tables.open(), tables.open()];
    nodes[0].ensure_feeds().await.unwrap();
    let work = nodes.iter().enumerate().map(async |(node, store)| {
        for round in 0..15 {
            let text = value(&format!("{node} {round}"));
            let at = key(&format!("{}", round % 3));
            insist(|| store.write_key(feed(), at.clone(), text.clone(), KEYS_MAX)).await;
            insist(|| store.publish(feed(), None, 2)).await;
        }
    });
    join_all(work).await;
    until_done(async || publish(&nodes[0]).await.count > 0).await;
    let [last, same] = [published(&nodes[0]).await, published(&nodes[1]).await];
    assert_eq!(last, same);
    let keys: BTreeMap<_, _> = last.iter().map(|(number, key)| (key, number)).collect();
    assert_eq!((last.len(), keys.len()), (3, 3), "each key has one number: {last:?}");
    let rows = tables.rows("feeds").await;
    assert_eq!(rows.len(), 6, "a row with the place of a key, and one with its number: {rows:?}");
    let versions: u64 = (rows.iter())
        .filter(|row| row["item"].as_s().unwrap().starts_with("k:"))
        .map(|row| row["version"].as_n().unwrap().parse::<u64>().unwrap())
        .sum();
    let sequence = nodes[0].feeds(None, 1).await.unwrap()[0].sequence;
    assert_eq!(versions, 30 + sequence.value.0, "each write and each number is one version");
}

/// `Busy` means that nothing was done.
async fn insist<T>(call: impl AsyncFn() -> Result<T, StoreError>) -> T {
    for _try in 0..1000 {
        match call().await {
            Err(StoreError::Busy) => {}
            done => return done.unwrap(),
        }
    }
    panic!("the store is always busy");
}
