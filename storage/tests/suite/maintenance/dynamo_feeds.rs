//! The tables of feeds: made by who needs them first, listed, tried out where they are.

use futures_util::future::join_all;
use state_machine::feed::{FeedKey, FeedName, FeedSyncId, FeedValue, Version, WriteResult};
use storage::maintenance::{PreflightCheck, Table};
use storage::{FeedTables, PageLimit, Store, StoreAdmin, StoreError};
use storage_dynamodb::{Dynamo, DynamoOptions};

use crate::maintenance::engines::{client, open, open_at_once, options};
use crate::maintenance::world::month;

fn feed() -> FeedName {
    FeedName::broadcasts()
}

async fn write(store: &Dynamo, key: &str) -> Result<WriteResult, StoreError> {
    let (key, value) = (FeedKey::parse(key).unwrap(), FeedValue::parse("v").unwrap());
    store.write_key(feed(), key, value, 100).await
}

async fn which(store: &Dynamo) -> Vec<Table> {
    store.tables().await.unwrap().iter().map(|status| status.table).collect()
}

async fn checks(store: &Dynamo) -> Vec<PreflightCheck> {
    store.preflight([month("2026_12")].into()).await.unwrap()
}

async fn rows(table: &str) -> usize {
    client().scan().table_name(table).send().await.unwrap().items.unwrap().len()
}

#[tokio::test]
async fn the_first_write_makes_the_tables_and_they_are_listed_before_the_months() {
    let store = open(&options()).unwrap();
    store.ensure_month(month("2026_12")).await.unwrap();
    let messages = Table::Messages(month("2026_12"));
    assert_eq!(which(&store).await, [Table::Router, messages]);
    assert_eq!(write(&store, "a").await, Ok(WriteResult::Done(Version(1))));
    assert_eq!(which(&store).await, [Table::Router, Table::Sequences, Table::Feeds, messages]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nodes_that_write_the_first_keys_at_the_same_time_make_the_tables_together() {
    let options = options();
    let stores = open_at_once(&options, 4).await;
    let keys = ["a", "b", "c", "d"];
    let written = join_all(stores.iter().zip(keys).map(|(store, key)| write(store, key))).await;
    assert_eq!(written, vec![Ok(WriteResult::Done(Version(1))); 4]);
    let feeds = stores[0].feeds(None, 10).await.unwrap();
    assert_eq!((feeds.len(), feeds[0].sequence.keys), (1, 4));
}

/// Most servers have no feeds.
#[tokio::test]
async fn a_server_that_makes_no_tables_needs_none_of_feeds() {
    let options = options();
    open(&options).unwrap().ensure_month(month("2026_12")).await.unwrap();
    let store = open(&DynamoOptions { create_tables: false, ..options }).unwrap();
    assert_eq!(store.check().await, Ok(()));
    let checks = checks(&store).await;
    assert!(checks.iter().all(|check| check.outcome.is_ok()), "{checks:?}");
    assert!(!checks.iter().any(|check| check.what.contains("feeds")), "{checks:?}");
    let limit = PageLimit { rows: 1, bytes: 1 };
    assert_eq!(store.fetch_feed(feed(), FeedSyncId::NONE, limit).await, Ok(None));
    assert_eq!(store.feeds(None, 1).await, Ok(vec![]));
    let refused = write(&store, "a").await;
    assert!(
        matches!(refused, Err(StoreError::Failed(text)) if text.contains("kalends tables create"))
    );
}

#[tokio::test]
async fn both_tables_are_tried_out_and_left_as_they_were() {
    let options = options();
    let store = open(&options).unwrap();
    store.ensure_month(month("2026_12")).await.unwrap();
    store.ensure_feeds().await.unwrap();
    let checks = checks(&store).await;
    assert!(checks.iter().all(|check| check.outcome.is_ok()), "{checks:?}");
    for table in ["sequences", "feeds"].map(|name| format!("{}{name}", options.table_prefix)) {
        for operation in ["DescribeTable", "TransactWriteItems", "GetItem"] {
            let what = format!("{operation} on {table}");
            assert!(checks.iter().any(|check| check.what == what), "{what}: {checks:?}");
        }
        assert_eq!(rows(&table).await, 0, "{table}");
    }
}

#[tokio::test]
async fn a_missing_feed_table_is_reported() {
    let options = options();
    let store = open(&options).unwrap();
    store.ensure_month(month("2026_12")).await.unwrap();
    for gone in ["sequences", "feeds"].map(|name| format!("{}{name}", options.table_prefix)) {
        store.ensure_feeds().await.unwrap();
        client().delete_table().table_name(&gone).send().await.unwrap();
        let failed: Vec<PreflightCheck> =
            checks(&store).await.into_iter().filter(|check| check.outcome.is_err()).collect();
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert_eq!(failed[0].what, format!("DescribeTable on {gone}"));
        assert!(failed[0].outcome.clone().unwrap_err().contains("kalends tables create"));
    }
}
