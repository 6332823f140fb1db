//! Replies that the wire server of the tests never sends: throttled batches, tables and indexes
//! that are not ready, missing permissions, lists in pages.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_dynamodb::config::SharedHttpClient;
use aws_smithy_http_client::test_util::infallible_client_fn;
use serde_json::{Value, json};
use storage::copied_rows::CopiedRow;
use storage::maintenance::{PreflightCheck, Table};
use storage::{Notification, Store, StoreAdmin, StoreError};
use storage_dynamodb::{Dynamo, DynamoOpenError, DynamoOptions};

use crate::maintenance::world::{agent, chid, month};
use crate::wire_engine;

/// A server that is a function of the operation and its request.
fn server(
    answer: impl Fn(&str, &Value) -> Result<Value, &'static str> + Send + Sync + 'static,
) -> SharedHttpClient {
    infallible_client_fn(move |request| {
        let operation = request.headers()["x-amz-target"].to_str().unwrap();
        let operation = operation.rsplit_once('.').unwrap().1;
        let body = serde_json::from_slice(request.body().bytes().unwrap()).unwrap();
        match answer(operation, &body) {
            Ok(answer) => reply(200, &answer),
            Err(code) => reply(400, &json!({ "__type": code, "message": "so it is" })),
        }
    })
}

fn reply(status: u16, body: &Value) -> http::Response<String> {
    http::Response::builder().status(status).body(body.to_string()).unwrap()
}

fn options() -> DynamoOptions {
    DynamoOptions {
        region: Some("eu-central-1".to_owned()),
        attempts_max: 4,
        backoff_initial: Duration::from_millis(1),
        backoff_max: Duration::from_millis(2),
        ..wire_engine::options::options()
    }
}

fn open_on(server: SharedHttpClient) -> Result<Dynamo, DynamoOpenError> {
    storage_dynamodb::open_with(&options(), wire_engine::overrides(Some(server)))
}

fn open(
    answer: impl Fn(&str, &Value) -> Result<Value, &'static str> + Send + Sync + 'static,
) -> Dynamo {
    open_on(server(answer)).unwrap()
}

/// The router table as it should be.
fn router(state: &str, index_state: &str) -> Value {
    json!({ "Table": {
        "TableName": "router",
        "TableStatus": state,
        "KeySchema": [{ "AttributeName": "uaid", "KeyType": "HASH" }],
        "AttributeDefinitions": [
            { "AttributeName": "uaid", "AttributeType": "S" },
            { "AttributeName": "last_connect", "AttributeType": "N" },
        ],
        "GlobalSecondaryIndexes": [{
            "IndexName": "AccessIndex",
            "IndexStatus": index_state,
            "KeySchema": [{ "AttributeName": "last_connect", "KeyType": "HASH" }],
            "Projection": { "ProjectionType": "KEYS_ONLY" },
        }],
    }})
}

fn message_table() -> Value {
    json!({ "Table": {
        "TableName": "message_2026_12",
        "TableStatus": "ACTIVE",
        "KeySchema": [
            { "AttributeName": "uaid", "KeyType": "HASH" },
            { "AttributeName": "chidmessageid", "KeyType": "RANGE" },
        ],
        "AttributeDefinitions": [
            { "AttributeName": "uaid", "AttributeType": "S" },
            { "AttributeName": "chidmessageid", "AttributeType": "S" },
        ],
    }})
}

fn describe(body: &Value) -> Result<Value, &'static str> {
    match body["TableName"].as_str().unwrap() {
        "router" => Ok(router("ACTIVE", "ACTIVE")),
        "message_2026_12" => Ok(message_table()),
        _ => Err("ResourceNotFoundException"),
    }
}

/// A good store, for what a test does not ask about.
fn good(operation: &str, body: &Value) -> Result<Value, &'static str> {
    match operation {
        "DescribeTable" => describe(body),
        "DescribeTimeToLive" => Ok(json!({ "TimeToLiveDescription": {
            "TimeToLiveStatus": "ENABLED", "AttributeName": "expiry",
        }})),
        "ListTables" => Ok(json!({ "TableNames": ["message_2026_12", "router"] })),
        _ => Ok(json!({})),
    }
}

/// The versions that a batch is to write.
fn batch(body: &Value) -> Vec<Value> {
    body["RequestItems"]["storage"].as_array().unwrap().clone()
}

/// Writes a version for each of so many agents.
async fn write_versions(store: &Dynamo, agents: u16) -> Result<(), StoreError> {
    let version = |number| {
        CopiedRow::Version(agent(number), Notification { chid: chid(1), version: 1, data: None })
    };
    store.write_rows(Table::Notifications, Arc::new((0..agents).map(version).collect())).await
}

#[tokio::test]
async fn unprocessed_items_of_a_batch_are_sent_again() {
    let taken = Arc::new(Mutex::new(Vec::new()));
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let store = open({
        let (taken, sizes) = (taken.clone(), sizes.clone());
        move |operation, body| {
            if operation != "BatchWriteItem" {
                return good(operation, body);
            }
            let mut asked = batch(body);
            sizes.lock().unwrap().push(asked.len());
            let left = asked.split_off(asked.len().min(10));
            taken.lock().unwrap().extend(asked);
            let left = if left.is_empty() { json!({}) } else { json!({ "storage": left }) };
            Ok(json!({ "UnprocessedItems": left }))
        }
    });
    assert_eq!(write_versions(&store, 30).await, Ok(()));
    let mut sizes = sizes.lock().unwrap().clone();
    sizes.sort_unstable();
    assert_eq!(sizes, [5, 5, 15, 25], "25 at a time, and each rest again");
    let taken = taken.lock().unwrap();
    assert_eq!(taken.len(), 30);
    for number in 0..30 {
        let uaid = agent(number).to_string();
        let written = |put: &&Value| put["PutRequest"]["Item"]["uaid"]["S"] == uaid;
        assert_eq!(taken.iter().filter(written).count(), 1, "{number}");
    }
}

#[tokio::test]
async fn a_batch_of_which_nothing_is_ever_taken_is_busy_after_the_attempts_that_are_set() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let store = open({
        let attempts = attempts.clone();
        move |operation, body| match operation {
            "BatchWriteItem" => {
                attempts.fetch_add(1, Relaxed);
                Ok(json!({ "UnprocessedItems": body["RequestItems"] }))
            }
            _ => good(operation, body),
        }
    });
    assert_eq!(write_versions(&store, 1).await, Err(StoreError::Busy));
    assert_eq!(attempts.load(Relaxed), 4);
}

#[tokio::test]
async fn a_batch_that_was_taken_in_part_is_no_busy_store() {
    let first = AtomicUsize::new(0);
    let store = open(move |operation, body| match operation {
        "BatchWriteItem" if first.fetch_add(1, Relaxed) == 0 => {
            Ok(json!({ "UnprocessedItems": { "storage": [batch(body)[0]] } }))
        }
        "BatchWriteItem" => Ok(json!({ "UnprocessedItems": body["RequestItems"] })),
        _ => good(operation, body),
    });
    let written = write_versions(&store, 2).await;
    assert!(matches!(written, Err(StoreError::Failed(_))), "busy means that nothing was done");
}

#[tokio::test]
async fn a_start_waits_for_a_table_that_is_being_created() {
    let looks = Arc::new(AtomicUsize::new(0));
    let _store = open({
        let looks = looks.clone();
        move |operation, body| match operation {
            "DescribeTable" if looks.fetch_add(1, Relaxed) < 5 => {
                Ok(router("CREATING", "CREATING"))
            }
            "CreateTable" => panic!("it is there"),
            _ => good(operation, body),
        }
    });
    assert_eq!(looks.load(Relaxed), 6);
}

#[tokio::test]
async fn a_table_that_is_not_seen_right_after_it_was_made_is_waited_for() {
    let (looks, made) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let _store = open(move |operation, body| match operation {
        "DescribeTable" if looks.fetch_add(1, Relaxed) < 3 => Err("ResourceNotFoundException"),
        "CreateTable" if made.fetch_add(1, Relaxed) > 0 => Err("ResourceInUseException"),
        _ => good(operation, body),
    });
}

#[tokio::test]
async fn a_start_without_a_table_and_an_index_that_are_ready_says_what_they_are() {
    for (table, index, expected) in [
        ("ACTIVE", "CREATING", "its index AccessIndex is still being built"),
        (
            "INACCESSIBLE_ENCRYPTION_CREDENTIALS",
            "ACTIVE",
            "its state is INACCESSIBLE_ENCRYPTION_CREDENTIALS",
        ),
    ] {
        let unready = server(move |operation, body| match operation {
            "DescribeTable" => Ok(router(table, index)),
            _ => good(operation, body),
        });
        let Err(error) = open_on(unready) else { panic!("opened with {table}, {index}") };
        let text = error.to_string();
        assert!(text.contains(expected), "{text}");
    }
}

#[tokio::test]
async fn a_ttl_that_another_node_has_just_switched_on_is_on() {
    let looks = AtomicUsize::new(0);
    let store = open(move |operation, body| match operation {
        "DescribeTimeToLive" if looks.fetch_add(1, Relaxed) == 0 => {
            Ok(json!({ "TimeToLiveDescription": { "TimeToLiveStatus": "DISABLED" } }))
        }
        "UpdateTimeToLive" => Err("ValidationException"),
        _ => good(operation, body),
    });
    assert_eq!(store.ensure_month(month("2026_12")).await, Ok(()));
}

#[tokio::test]
async fn months_on_every_page_of_the_list_are_found() {
    let store = open(|operation, body| match operation {
        "ListTables" if body["ExclusiveStartTableName"].is_null() => Ok(json!({
            "TableNames": ["message_2026_12", "other"], "LastEvaluatedTableName": "other",
        })),
        "ListTables" => Ok(json!({ "TableNames": ["message_2026_11", "router"] })),
        _ => good(operation, body),
    });
    let months = ["2026_11", "2026_12"].map(month);
    assert_eq!(store.months().await, Ok(months.to_vec()));
}

async fn failed_checks(store: &Dynamo) -> Vec<PreflightCheck> {
    let checks = store.preflight([month("2026_12")].into()).await.unwrap();
    checks.into_iter().filter(|check| check.outcome.is_err()).collect()
}

#[tokio::test]
async fn a_denied_action_is_reported_with_the_needed_permission_and_the_other_steps_are_tried() {
    let operations = [
        ("UpdateItem", "router"),
        ("DeleteItem", "router"),
        ("Query", "router"),
        ("PutItem", "message_2026_12"),
        ("GetItem", "message_2026_12"),
        ("Query", "message_2026_12"),
        ("DescribeTimeToLive", "message_2026_12"),
    ];
    for (denied, table) in operations {
        let deleted = Arc::new(AtomicUsize::new(0));
        let store = open({
            let deleted = deleted.clone();
            move |operation, body| {
                let is_it = operation == denied && body["TableName"] == table;
                deleted.fetch_add(usize::from(operation == "DeleteItem" && !is_it), Relaxed);
                if is_it { Err("AccessDeniedException") } else { good(operation, body) }
            }
        });
        let failed = failed_checks(&store).await;
        assert_eq!(failed.len(), 1, "{denied} on {table}: {failed:?}");
        let advice = failed[0].outcome.clone().unwrap_err();
        assert!(failed[0].what.starts_with(&format!("{denied} on {table}")), "{failed:?}");
        assert!(advice.contains(&format!("dynamodb:{denied} on {table}")), "{advice}");
        let expected = match denied {
            "DeleteItem" => 2,
            // What cannot be looked at is not written to.
            "DescribeTimeToLive" => 1,
            _ => 3,
        };
        assert_eq!(deleted.load(Relaxed), expected, "what was written is removed all the same");
    }
}

#[tokio::test]
async fn an_index_that_may_not_be_asked_is_named() {
    let store = open(|operation, body| match (operation, body["IndexName"].as_str()) {
        ("Query", Some(_)) => Err("AccessDeniedException"),
        _ => good(operation, body),
    });
    let failed = failed_checks(&store).await;
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0].what, "Query on router/index/AccessIndex");
}

/// A table of feeds as it should be.
fn feed_table(name: &str, keys: &[&str]) -> Value {
    let kinds = ["HASH", "RANGE"];
    let schema = keys.iter().zip(kinds);
    let schema = schema.map(|(key, kind)| json!({ "AttributeName": key, "KeyType": kind }));
    let defined = keys.iter().map(|key| json!({ "AttributeName": key, "AttributeType": "S" }));
    json!({ "Table": {
        "TableName": name,
        "TableStatus": "ACTIVE",
        "KeySchema": schema.collect::<Vec<_>>(),
        "AttributeDefinitions": defined.collect::<Vec<_>>(),
    }})
}

/// A policy does not know transactions, only what they are made of.
#[tokio::test]
async fn a_denied_transaction_is_reported_with_the_needed_permissions() {
    let operations = [
        (
            "TransactWriteItems",
            "feeds",
            "dynamodb:PutItem, dynamodb:UpdateItem and dynamodb:DeleteItem",
        ),
        (
            "TransactWriteItems",
            "sequences",
            "dynamodb:PutItem, dynamodb:UpdateItem and dynamodb:DeleteItem",
        ),
        ("TransactGetItems", "feeds", "dynamodb:GetItem"),
        ("Scan", "sequences", "dynamodb:Scan"),
        ("UpdateItem", "sequences", "dynamodb:UpdateItem"),
        ("Query", "feeds", "dynamodb:Query"),
    ];
    for (denied, table, actions) in operations {
        let store = open(move |operation, body| {
            let quoted = format!("\"{table}\"");
            if operation == denied && body.to_string().contains(&quoted) {
                return Err("AccessDeniedException");
            }
            match (operation, body["TableName"].as_str()) {
                ("DescribeTable", Some("sequences")) => Ok(feed_table("sequences", &["name"])),
                ("DescribeTable", Some("feeds")) => Ok(feed_table("feeds", &["feed", "item"])),
                _ => good(operation, body),
            }
        });
        let failed = failed_checks(&store).await;
        assert!(!failed.is_empty(), "{denied} on {table}");
        for check in failed {
            assert_eq!(check.what, format!("{denied} on {table}"));
            let advice = check.outcome.clone().unwrap_err();
            assert!(
                advice.ends_with(&format!("allow this server's role {actions} on {table}")),
                "{advice}"
            );
        }
    }
}
