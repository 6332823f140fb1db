//! The cost of feeds, as the wire server counts it by DynamoDB's rules. `docs/storage.md` says the
//! same.

use std::collections::BTreeMap;
use std::fs;
use std::mem::take;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::config::http::{HttpRequest, HttpResponse};
use aws_sdk_dynamodb::config::{HttpClient, RuntimeComponents, SharedHttpClient};
use aws_sdk_dynamodb::error::ConnectorError;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use serde_json::{Value, json};
use state_machine::feed::{FeedKey, FeedName, FeedSyncId, FeedValue, Version};
use storage::{Dynamo, DynamoOptions, FeedTables, PageLimit, StoreFuture, TestOverrides};

use crate::dynamo::feed_replies::{feed, key};
use crate::dynamo::things::*;
use crate::wire_engine::wire_server;

const KEYS_MAX: u64 = 1000;

/// What was asked for, and what it cost.
#[derive(Debug, Clone, Default, PartialEq)]
struct Bill {
    requests: BTreeMap<String, usize>,
    read: f64,
    write: f64,
}

impl Bill {
    /// As the documentation has it.
    fn row(&self, what: &str) -> String {
        let Self { requests, read, write } = self;
        let requests: Vec<_> =
            requests.iter().map(|(operation, count)| format!("{count} {operation}")).collect();
        format!("| {what} | {} | {read} | {write} |\n", requests.join(", "))
    }
}

/// Counts the capacity of the requests to the server.
#[derive(Debug, Clone)]
struct Till<Server> {
    server: Server,
    bill: Arc<Mutex<Bill>>,
}

impl HttpConnector for Till<SharedHttpConnector> {
    fn call(&self, mut request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap();
        let operation = target.rsplit_once('.').unwrap().1.to_owned();
        let mut body: Value = serde_json::from_slice(request.body().bytes().unwrap()).unwrap();
        if !operation.ends_with("Table") {
            body["ReturnConsumedCapacity"] = json!("TOTAL");
        }
        let body = body.to_string();
        request.headers_mut().insert("content-length", body.len().to_string());
        *request.body_mut() = SdkBody::from(body);
        let (reply, bill) = (self.server.call(request), self.bill.clone());
        HttpConnectorFuture::new(async move {
            let mut reply = reply.await?;
            let body = collect(&mut reply).await?;
            count(&mut bill.lock().unwrap(), operation, &serde_json::from_slice(&body).unwrap());
            *reply.body_mut() = SdkBody::from(body);
            Ok(reply)
        })
    }
}

async fn collect(reply: &mut HttpResponse) -> Result<Vec<u8>, ConnectorError> {
    let body = ByteStream::new(reply.take_body()).collect().await;
    body.map(|body| body.to_vec()).map_err(|error| ConnectorError::io(error.into()))
}

fn count(bill: &mut Bill, operation: String, reply: &Value) {
    let consumed = match &reply["ConsumedCapacity"] {
        Value::Array(tables) => tables.clone(),
        one => vec![one.clone()],
    };
    let units: f64 = consumed.iter().filter_map(|table| table["CapacityUnits"].as_f64()).sum();
    let is_read = ["GetItem", "Query", "Scan", "TransactGetItems"].contains(&&*operation);
    *(if is_read { &mut bill.read } else { &mut bill.write }) += units;
    *bill.requests.entry(operation).or_default() += 1;
}

impl HttpClient for Till<SharedHttpClient> {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let server = self.server.http_connector(settings, components);
        SharedHttpConnector::new(Till { server, bill: self.bill.clone() })
    }
}

/// A store whose tables are there and empty, and its till.
struct Shop {
    store: Dynamo,
    bill: Arc<Mutex<Bill>>,
}

impl Shop {
    async fn open() -> Self {
        static SHOPS: AtomicU32 = AtomicU32::new(0);
        let shop = SHOPS.fetch_add(1, Ordering::Relaxed);
        let options = DynamoOptions {
            endpoint_url: Some(wire_server::shared().url.clone()),
            table_prefix: format!("shop{shop}-"),
            ..options()
        };
        let bill = Arc::new(Mutex::new(Bill::default()));
        let server = aws_smithy_http_client::Builder::new().build_http();
        let till = Till { server, bill: bill.clone() };
        let overrides = TestOverrides {
            credentials: Some(credentials()),
            http_client: Some(SharedHttpClient::new(till)),
        };
        let store = tokio::task::spawn_blocking(move || Dynamo::open_with(&options, overrides));
        let store = store.await.unwrap().unwrap();
        store.ensure_feeds().await.unwrap();
        let shop = Self { store, bill };
        shop.bill();
        shop
    }

    /// What was asked for since the last time.
    fn bill(&self) -> Bill {
        take(&mut self.bill.lock().unwrap())
    }

    async fn write(&self, name: &str, bytes: usize) -> Bill {
        let value = FeedValue::parse(&"x".repeat(bytes)).unwrap();
        self.store.write_key(feed(), key(name), value, KEYS_MAX).await.unwrap();
        self.bill()
    }

    async fn publish(&self) -> Bill {
        self.store.publish(feed(), None, 100).await.unwrap().unwrap();
        self.bill()
    }

    /// Does something to the key that is there.
    async fn change(
        &self,
        change: impl Fn(&Dynamo, FeedName, FeedKey) -> StoreFuture<Option<Version>>,
    ) -> Bill {
        change(&self.store, feed(), key("key")).await.unwrap().unwrap();
        self.bill()
    }

    async fn list(&self) -> Bill {
        assert_eq!(self.store.feeds(None, 10).await.unwrap().len(), 1);
        self.bill()
    }

    async fn fetch(&self, after: u64) -> Bill {
        let limit = PageLimit { rows: 1000, bytes: 1_000_000 };
        self.store.fetch_feed(feed(), FeedSyncId(after), limit).await.unwrap().unwrap();
        self.bill()
    }
}

/// Each step in the documentation, measured where the steps before it have led.
async fn measured(shop: &Shop) -> Vec<(&'static str, Bill)> {
    let mut rows = vec![
        ("write a new key, 100 bytes", shop.write("key", 100).await),
        ("write a key that waits, 100 bytes", shop.write("key", 100).await),
        ("publish one key, 100 bytes", shop.publish().await),
        ("publish, nothing waits", shop.publish().await),
        ("write a key that was published, 100 bytes", shop.write("key", 100).await),
    ];
    shop.publish().await;
    shop.write("key", 1024).await;
    rows.push(("publish one key, 1 KB", shop.publish().await));
    rows.push(("write a key that was published, 1 KB", shop.write("key", 1024).await));
    shop.publish().await;
    rows.push(("republish a key, 1 KB", shop.change(FeedTables::republish_key).await));
    shop.publish().await;
    rows.push(("delete a key, 1 KB", shop.change(FeedTables::delete_key).await));
    shop.publish().await;
    for number in 0..33 {
        shop.write(&format!("key{number}"), 100).await;
    }
    rows.push(("publish 33 keys, 100 bytes each", shop.publish().await));
    rows.push(("fetch those 33", shop.fetch(0).await));
    rows.push(("fetch, nothing new", shop.fetch(1000).await));
    rows.push(("list the feeds, one", shop.list().await));
    rows
}

#[tokio::test]
async fn the_documentation_has_the_measured_costs_of_feeds() {
    let rows = measured(&Shop::open().await).await;
    let header = "| operation | requests | read | write |\n|---|---|---|---|\n".to_owned();
    let table = rows.iter().fold(header, |table, (what, bill)| table + &bill.row(what));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/storage.md");
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains(&table), "docs/storage.md must contain:\n{table}");
}
