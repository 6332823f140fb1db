//! The cost of feeds and receipts, as the wire server counts it by DynamoDB's rules. The documentation says the same.

mod feeds;
mod receipts;

use std::collections::BTreeMap;
use std::fs;
use std::mem::take;
use std::path::Path;
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
use storage::FeedTables;
use storage_dynamodb::Dynamo;

use crate::dynamo::things::*;
use crate::wire_engine::overrides;

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
        let Tables { options, .. } = Tables::new();
        let bill = Arc::new(Mutex::new(Bill::default()));
        let server = aws_smithy_http_client::Builder::new().build_http();
        let till = Till { server, bill: bill.clone() };
        let overrides = overrides(Some(SharedHttpClient::new(till)));
        let store =
            tokio::task::spawn_blocking(move || storage_dynamodb::open_with(&options, overrides));
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
}

/// Compares the table in a page of `docs` with what was measured.
fn assert_documented(page: &str, rows: &[(&'static str, Bill)]) {
    let header = "| operation | requests | read | write |\n|---|---|---|---|\n".to_owned();
    let table = rows.iter().fold(header, |table, (what, bill)| table + &bill.row(what));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains(&table), "docs/{page} must contain:\n{table}");
}
