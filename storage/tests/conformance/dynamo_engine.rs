//! The DynamoDB engine on a wire server that all cases share, each with tables of its own.

#[path = "../wire_server/mod.rs"]
mod wire_server;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use aws_sdk_dynamodb::config::{Credentials, SharedCredentialsProvider};
use futures_util::future::BoxFuture;
use storage::{Dynamo, DynamoDoubles, DynamoOptions, Store};

use crate::world::Engine;

pub(crate) struct OnWireServer(DynamoOptions);

impl OnWireServer {
    pub(crate) fn new() -> Self {
        static CASES: AtomicU32 = AtomicU32::new(0);
        let case = CASES.fetch_add(1, Ordering::Relaxed);
        Self(DynamoOptions {
            endpoint_url: Some(wire_server::shared().url.clone()),
            region: Some("eu-central-1".to_owned()),
            table_prefix: format!("case{case}-"),
            // The cases call more at once than one agent may.
            agent_writes_max: DynamoOptions::default().requests_max,
            ..DynamoOptions::default()
        })
    }
}

impl Engine for OnWireServer {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        let credentials = Credentials::new("key", "secret", None, None, "the test");
        let doubles = DynamoDoubles {
            credentials: Some(SharedCredentialsProvider::new(credentials)),
            http_client: None,
        };
        let opened = Dynamo::open_with(&self.0, doubles);
        Box::pin(async { Arc::new(opened.unwrap()) as Arc<dyn Store> })
    }
}
