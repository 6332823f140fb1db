//! Tables in DynamoDB that are missing, wrong, or made by several at once; and their throughput.

use std::fmt::Debug;

use aws_sdk_dynamodb::operation::create_table::builders::CreateTableFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection,
    ProjectionType, ScalarAttributeType, TimeToLiveSpecification,
};
use futures_util::future::join_all;
use storage::maintenance::{Capacity, Table, Throughput};
use storage::{Notification, NotificationTable, Store, StoreAdmin, StoreError};
use storage_dynamodb::{Billing, Dynamo, DynamoOptions};

use crate::maintenance::engines::{client, open, open_at_once, options};
use crate::maintenance::world::{agent, chid, month};
use crate::wire_engine::wire_server::WireServer;

/// The one thing that a preflight reports.
async fn reported(store: &Dynamo) -> String {
    let checks = store.preflight([month("2026_12")].into()).await.unwrap();
    let failed =
        checks.iter().filter_map(|check| Some((&check.what, check.outcome.as_ref().err()?)));
    let failures: Vec<_> = failed.map(|(what, why)| format!("{what}: {why}")).collect();
    let [failure] = &failures[..] else { panic!("{failures:?}") };
    failure.clone()
}

fn attribute(name: &str, kind: ScalarAttributeType) -> AttributeDefinition {
    AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build().unwrap()
}

fn key(name: &str, kind: KeyType) -> KeySchemaElement {
    KeySchemaElement::builder().attribute_name(name).key_type(kind).build().unwrap()
}

/// A table that an operator created by hand.
fn by_hand(name: &str) -> CreateTableFluentBuilder {
    client()
        .create_table()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(attribute("uaid", ScalarAttributeType::S))
        .key_schema(key("uaid", KeyType::Hash))
}

/// A router table whose index has this key and projection, if it has one.
async fn make_router(
    options: &DynamoOptions,
    index: Option<(AttributeDefinition, ProjectionType)>,
) {
    let mut table = by_hand(&format!("{}router", options.table_prefix));
    if let Some((index_key, projection)) = index {
        let index = GlobalSecondaryIndex::builder()
            .index_name("AccessIndex")
            .key_schema(key(index_key.attribute_name(), KeyType::Hash))
            .projection(Projection::builder().projection_type(projection).build());
        table =
            table.attribute_definitions(index_key).global_secondary_indexes(index.build().unwrap());
    }
    table.send().await.unwrap();
}

#[tokio::test]
async fn a_router_table_made_by_hand_is_taken_only_with_its_index() {
    use ProjectionType::{All, KeysOnly};
    use ScalarAttributeType::{N, S};
    for (index, refused) in [
        (Some(("last_connect", N, KeysOnly)), None),
        (None, Some("has no index AccessIndex: add it")),
        (Some(("connected_at", N, KeysOnly)), Some("its index AccessIndex is another one")),
        (Some(("last_connect", S, KeysOnly)), Some("its key last_connect must be a number")),
        (Some(("last_connect", N, All)), Some("projection KEYS_ONLY")),
    ] {
        let (what, options) = (format!("{index:?}"), options());
        let index = index.map(|(name, kind, projection)| (attribute(name, kind), projection));
        make_router(&options, index).await;
        match (open(&options), refused) {
            (Ok(_), None) => {}
            (Err(error), Some(reason)) => {
                let text = error.to_string();
                let table = format!("{}router", options.table_prefix);
                assert!(text.contains(&table) && text.contains(reason), "{what}: {text}");
            }
            (opened, _) => panic!("{what}: {:?}", opened.err()),
        }
    }
}

/// Why a call failed.
fn failure<T: Debug>(refused: Result<T, StoreError>) -> String {
    match refused {
        Err(StoreError::Failed(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// An open store, and its options.
fn opened() -> (DynamoOptions, Dynamo) {
    let options = options();
    let store = open(&options).unwrap();
    (options, store)
}

/// The same, with a table for December.
async fn with_december() -> (DynamoOptions, Dynamo) {
    let (options, store) = opened();
    store.ensure_month(month("2026_12")).await.unwrap();
    (options, store)
}

#[tokio::test]
async fn a_message_table_with_other_keys_is_refused() {
    let (options, store) = opened();
    let table = format!("{}message_2026_12", options.table_prefix);
    by_hand(&table).send().await.unwrap();
    let text = failure(store.ensure_month(month("2026_12")).await);
    assert!(text.contains(&table) && text.contains("sort key chidmessageid"), "{text}");
}

/// A message table made by hand, with no TTL.
async fn make_month_by_hand(options: &DynamoOptions) -> String {
    let table = format!("{}message_2026_12", options.table_prefix);
    by_hand(&table)
        .attribute_definitions(attribute("chidmessageid", ScalarAttributeType::S))
        .key_schema(key("chidmessageid", KeyType::Range))
        .send()
        .await
        .unwrap();
    table
}

#[tokio::test]
async fn a_ttl_that_is_off_is_switched_on_where_tables_may_be_made() {
    let (options, store) = opened();
    let table = make_month_by_hand(&options).await;
    let closed = DynamoOptions { create_tables: false, ..options };
    let careful = open(&closed).unwrap();
    let text = failure(careful.ensure_month(month("2026_12")).await);
    assert!(text.contains(&table) && text.contains("its TTL is off"), "{text}");
    store.ensure_month(month("2026_12")).await.unwrap();
    careful.ensure_month(month("2026_12")).await.unwrap();
    let ttl = client().describe_time_to_live().table_name(&table).send().await.unwrap();
    let ttl = ttl.time_to_live_description.unwrap();
    assert_eq!(ttl.attribute_name(), Some("expiry"));
}

#[tokio::test]
async fn a_ttl_on_another_attribute_is_refused() {
    let (options, store) = opened();
    let table = make_month_by_hand(&options).await;
    let other = TimeToLiveSpecification::builder().enabled(true).attribute_name("ttl").build();
    let update = client().update_time_to_live().table_name(&table);
    update.time_to_live_specification(other.unwrap()).send().await.unwrap();
    let text = failure(store.ensure_month(month("2026_12")).await);
    assert!(text.contains("its TTL is on for the attribute ttl"), "{text}");
}

#[tokio::test]
async fn a_missing_table_is_named_where_none_may_be_made() {
    let options = options();
    let closed = DynamoOptions { create_tables: false, ..options.clone() };
    let refusal = open(&closed).err().expect("there is no router table").to_string();
    assert!(refusal.contains(&format!("{}router", options.table_prefix)), "{refusal}");
    open(&options).unwrap();
    let store = open(&closed).unwrap();
    let notification = Notification { chid: chid(1), version: 1, data: None };
    for (table, text) in [
        ("message_2026_12", failure(store.ensure_month(month("2026_12")).await)),
        ("storage", failure(store.save_notification(agent(1), notification).await)),
    ] {
        let table = format!("{}{table}", options.table_prefix);
        assert!(text.contains(&table) && text.contains("kalends tables create"), "{text}");
    }
}

#[tokio::test]
async fn preflight_reports_a_deleted_table_and_nothing_else() {
    let (options, store) = with_december().await;
    let table = format!("{}router", options.table_prefix);
    client().delete_table().table_name(&table).send().await.unwrap();
    let failure = reported(&store).await;
    assert!(failure.starts_with(&format!("DescribeTable on {table}")), "{failure}");
    assert!(failure.contains("kalends tables create"), "{failure}");
}

#[tokio::test]
async fn preflight_reports_a_changed_table() {
    let (options, store) = with_december().await;
    let table = format!("{}message_2026_12", options.table_prefix);
    let off = TimeToLiveSpecification::builder().enabled(false).attribute_name("expiry").build();
    let update = client().update_time_to_live().table_name(&table);
    update.time_to_live_specification(off.unwrap()).send().await.unwrap();
    let failure = reported(&store).await;
    assert!(failure.contains(&table) && failure.contains("its TTL is off"), "{failure}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nodes_that_start_at_the_same_time_make_the_tables_together() {
    let options = options();
    let stores = open_at_once(&options, 8).await;
    let made = join_all(stores.iter().map(|store| store.ensure_month(month("2026_12")))).await;
    assert_eq!(made, vec![Ok(()); 8]);
    let legacy = stores.iter().map(|store| {
        let notification = Notification { chid: chid(1), version: 1, data: None };
        store.save_notification(agent(1), notification)
    });
    let kept = join_all(legacy).await;
    assert_eq!(kept.iter().filter(|kept| **kept == Ok(true)).count(), 1, "{kept:?}");
    let tables = stores[0].tables().await.unwrap();
    assert_eq!(tables.len(), 3, "{tables:?}");
    let dropped = join_all(stores.iter().map(|store| store.drop_month(month("2026_12")))).await;
    assert!(dropped.iter().all(Result::is_ok), "{dropped:?}");
    assert_eq!(stores[0].months().await, Ok(vec![]));
}

#[tokio::test]
async fn tables_of_others_are_no_months() {
    let (options, store) = with_december().await;
    for other in ["message_2026_12-copy", "message_2026_13", "messages_2026_11", "storage2"] {
        by_hand(&format!("{}{other}", options.table_prefix)).send().await.unwrap();
    }
    by_hand(&format!("{}message_2026_11x", options.table_prefix)).send().await.unwrap();
    assert_eq!(store.months().await, Ok(vec![month("2026_12")]));
}

const FIVE: Throughput = Throughput { read: 5, write: 7 };
const LESS: Throughput = Throughput { read: 2, write: 1 };

async fn capacity(store: &Dynamo, name: &str) -> Capacity {
    let tables = store.tables().await.unwrap();
    let table = tables.iter().find(|status| status.table == Table::Messages(month(name)));
    table.unwrap().capacity
}

#[tokio::test]
async fn a_new_months_throughput_is_that_of_the_month_before() {
    let options = DynamoOptions { billing: Billing::Provisioned(FIVE), ..options() };
    let store = open(&options).unwrap();
    store.ensure_month(month("2026_11")).await.unwrap();
    assert_eq!(capacity(&store, "2026_11").await, Capacity::Provisioned(FIVE));
    store.set_throughput(month("2026_11"), LESS).await.unwrap();
    assert_eq!(capacity(&store, "2026_11").await, Capacity::Provisioned(LESS));
    store.ensure_month(month("2026_12")).await.unwrap();
    assert_eq!(capacity(&store, "2026_12").await, Capacity::Provisioned(LESS));
    store.ensure_month(month("2027_02")).await.unwrap();
    assert_eq!(capacity(&store, "2027_02").await, Capacity::Provisioned(FIVE));
}

#[tokio::test]
async fn setting_the_throughput_that_is_there_is_a_success() {
    let options = DynamoOptions { billing: Billing::Provisioned(FIVE), ..options() };
    let store = open(&options).unwrap();
    store.ensure_month(month("2026_12")).await.unwrap();
    assert_eq!(store.set_throughput(month("2026_12"), FIVE).await, Ok(()));
    assert_eq!(capacity(&store, "2026_12").await, Capacity::Provisioned(FIVE));
}

#[tokio::test]
async fn a_table_that_is_paid_for_on_demand_has_no_throughput_to_set() {
    let (_, store) = with_december().await;
    assert_eq!(capacity(&store, "2026_12").await, Capacity::OnDemand);
    let text = failure(store.set_throughput(month("2026_12"), FIVE).await);
    assert!(text.contains("on demand"), "{text}");
    assert!(store.set_throughput(month("2026_11"), FIVE).await.is_err(), "there is no such table");
}

#[tokio::test]
async fn a_closed_store_rejects_maintenance() {
    let store = open(&options()).unwrap();
    store.close().await.unwrap();
    assert_eq!(store.tables().await, Err(StoreError::Closed));
}

/// Every further step would wait as long.
#[tokio::test]
async fn an_unreachable_server_is_reported_once_and_ends_the_preflight() {
    let server = WireServer::start();
    let endpoint_url = Some(server.url.clone());
    let store = open(&DynamoOptions { endpoint_url, attempts_max: 2, ..options() }).unwrap();
    drop(server);
    let checks = store.preflight([month("2026_12")].into()).await.unwrap();
    assert_eq!(checks.len(), 1, "{checks:?}");
    assert!(checks[0].outcome.as_ref().unwrap_err().contains("cannot be reached"), "{checks:?}");
}
