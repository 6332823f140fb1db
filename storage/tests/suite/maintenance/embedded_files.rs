//! What only the embedded engine can meet: files of an older version, and damaged ones.

use std::fs;
use std::sync::Arc;

use rusqlite::Connection;
use state_machine::feed::{FeedKey, FeedName, FeedSyncId, FeedValue, Version, WriteResult};
use storage::maintenance::{PreflightCheck, Throughput};
use storage::{Notification, StoreAdmin, StoreError};
use storage_sqlite::{Embedded, EmbeddedOptions};

use crate::maintenance::engines::{dynamodb, embedded};
use crate::maintenance::world::{DECEMBER, World, agent, chid, chids, message, month};
use crate::names::each_page;
use crate::store_calls::StoreCalls;

/// Opens the store again after SQL has changed its router file to one of an older version.
async fn brought_up_to_date(world: World, older: &str) -> World {
    world.close().await.unwrap();
    let home = world.home.unwrap();
    let file = Connection::open(home.path().join("router.db")).unwrap();
    file.execute_batch(older).unwrap();
    drop(file);
    let store = Embedded::open(home.path(), &EmbeddedOptions::new(4096)).unwrap();
    World::new(Arc::new(store), Some(home))
}

#[tokio::test]
async fn a_router_file_of_the_first_version_is_brought_up_to_date_with_its_users() {
    let world = embedded();
    world.connect(agent(1), DECEMBER).await;
    let older = "DROP INDEX router_by_last_connect; DROP TABLE notifications;
        DROP TABLE sequences; DROP TABLE feed_keys; ALTER TABLE router DROP COLUMN router_data;
        DROP TABLE receipts_expected; DROP TABLE id_floor;
        PRAGMA user_version = 1";
    let world = brought_up_to_date(world, older).await;
    let found = world.inactive("2026_12", "2026_12").await;
    assert_eq!(found.iter().map(|user| user.uaid).collect::<Vec<_>>(), [agent(1)]);
    let notification = Notification { chid: chid(1), version: 1, data: None };
    assert_eq!(world.save_notification(agent(1), notification).await, Ok(true));
}

#[tokio::test]
async fn a_router_file_of_the_second_version_is_given_the_feeds_and_keeps_its_rows() {
    let world = embedded();
    world.connect(agent(1), DECEMBER).await;
    let notification = Notification { chid: chid(1), version: 1, data: None };
    world.save_notification(agent(1), notification.clone()).await.unwrap();
    let older = "DROP TABLE sequences; DROP TABLE feed_keys; DROP TABLE receipts_expected;
        DROP TABLE id_floor;
        ALTER TABLE router DROP COLUMN router_data; ALTER TABLE notifications DROP COLUMN data;
        PRAGMA user_version = 2";
    let world = brought_up_to_date(world, older).await;
    assert_eq!(world.feeds(None, 10).await, Ok(Vec::new()));
    let (feed, key) = (FeedName::broadcasts(), FeedKey::parse("a").unwrap());
    let value = FeedValue::parse("1").unwrap();
    let written = world.write_key(feed.clone(), key, value, 1).await;
    assert_eq!(written, Ok(WriteResult::Done(Version(1))));
    let published = world.publish(feed, None, 1).await.unwrap().unwrap();
    assert_eq!((published.count, published.head), (1, FeedSyncId(1)));
    assert!(world.exists(agent(1)).await);
    let kept = world.fetch_notifications(agent(1), None, 10).await;
    assert_eq!(kept, Ok(vec![notification]));
}

#[tokio::test]
async fn feeds_of_a_file_without_horizons_forget_what_they_had() {
    let world = embedded();
    let (feed, key) = (FeedName::parse("prices").unwrap(), FeedKey::parse("a").unwrap());
    let value = FeedValue::parse("1").unwrap();
    world.write_key(feed.clone(), key, value, 1).await.unwrap();
    world.publish(feed.clone(), None, 1).await.unwrap();
    let older =
        "ALTER TABLE sequences DROP COLUMN horizon; ALTER TABLE sequences DROP COLUMN forgotten;
        ALTER TABLE sequences DROP COLUMN mark; ALTER TABLE sequences DROP COLUMN marked_at;
        DROP TABLE id_floor;
        PRAGMA user_version = 6";
    let world = brought_up_to_date(world, older).await;
    let sequence = world.feeds(None, 1).await.unwrap()[0].sequence;
    assert_eq!((sequence.horizon, sequence.mark, sequence.keys), (FeedSyncId(0), None, 1));
    world.forget(feed.clone(), FeedSyncId(1), 1).await.unwrap();
    let sequence = world.feeds(None, 1).await.unwrap()[0].sequence;
    assert_eq!((sequence.horizon, sequence.keys), (FeedSyncId(1), 0));
}

#[tokio::test]
async fn a_damaged_file_is_reported_by_its_name() {
    let world = embedded().with_months(&["2026_11", "2026_12"]).await;
    let file = world.home.as_ref().unwrap().path().join("messages_2026_11.db");
    world.close().await.unwrap();
    let mut bytes = fs::read(&file).unwrap();
    let store = Embedded::open(file.parent().unwrap(), &EmbeddedOptions::new(4096)).unwrap();
    bytes[4096..].fill(0xa5);
    fs::write(&file, bytes).unwrap();
    let checks = store.preflight(["2026_11", "2026_12"].map(month).into()).await.unwrap();
    let failed: Vec<&PreflightCheck> =
        checks.iter().filter(|check| check.outcome.is_err()).collect();
    let names: Vec<&str> = failed.iter().map(|check| check.what.as_str()).collect();
    assert_eq!(names, ["read messages_2026_11.db", "write each file"]);
    let told = failed[1].outcome.as_ref().unwrap_err();
    assert!(told.contains("messages_2026_11.db"), "{told}");
}

#[tokio::test]
async fn a_closed_store_cannot_be_tried_out() {
    let world = embedded();
    world.close().await.unwrap();
    assert_eq!(world.preflight([month("2026_12")].into()).await, Err(StoreError::Closed));
}

#[tokio::test]
async fn there_is_no_throughput_to_set() {
    let world = embedded().with_months(&["2026_12"]).await;
    let set = world.set_throughput(month("2026_12"), Throughput { read: 1, write: 1 }).await;
    assert!(matches!(set, Err(StoreError::Unsupported(_))), "{set:?}");
}

/// DynamoDB would have to read all messages, and refuses.
#[tokio::test]
async fn waiting_messages_are_counted_in_pages_and_without_those_that_are_deleted() {
    let world = embedded().with_months(&["2026_12"]).await;
    for number in 1..=2001 {
        let uaid = agent(number);
        world.add_channels(uaid, month("2026_12"), chids([1])).await.unwrap();
        world.put(uaid, "2026_12", &message(1)).await;
    }
    let first = message(1);
    world.delete_messages(agent(7), vec![month("2026_12")], vec![first.key()]).await.unwrap();
    let (mut messages, mut bytes) = (0, 0);
    let pages = each_page(async |after| {
        let page = world.waiting_page(month("2026_12"), after).await.unwrap();
        (messages, bytes) = (messages + page.messages, bytes + page.bytes);
        page.next
    });
    let pages = pages.await;
    let size = first.payload.as_ref().map_or(0, |payload| payload.data.len() as u64);
    assert_eq!((pages, messages, bytes), (3, 2000, 2000 * size));
    let refused = dynamodb().waiting_page(month("2026_12"), None).await;
    assert!(matches!(refused, Err(StoreError::Unsupported(_))), "{refused:?}");
}
