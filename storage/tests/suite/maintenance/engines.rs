//! The engines: each store is empty and of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{
    BehaviorVersion, Credentials, Region, SharedCredentialsProvider, SharedHttpClient,
};
use storage::{Dynamo, DynamoOptions, Embedded, EmbeddedOptions, TestOverrides};

use crate::maintenance::world::{SPREAD, World};
use crate::wire_engine::{self, wire_server};

pub(crate) fn embedded() -> World {
    let home = tempfile::tempdir().unwrap();
    let store = Embedded::open(home.path(), &EmbeddedOptions::new(4096)).unwrap();
    World::new(Arc::new(store), Some(home))
}

pub(crate) fn dynamodb() -> World {
    World::new(Arc::new(open(&options()).unwrap()), None)
}

/// Tables of its own on the server that all tests share.
pub(crate) fn options() -> DynamoOptions {
    static STORES: AtomicU32 = AtomicU32::new(0);
    let store = STORES.fetch_add(1, Ordering::Relaxed);
    let defaults = wire_engine::options::options();
    DynamoOptions {
        endpoint_url: Some(wire_server::shared().url.clone()),
        region: Some(REGION.to_owned()),
        table_prefix: format!("store{store}-"),
        last_connect_shards: SPREAD,
        // The cases make more concurrent calls than one agent may.
        agent_writes_max: defaults.requests_max,
        ..defaults
    }
}

pub(crate) fn open(options: &DynamoOptions) -> Result<Dynamo, storage::DynamoOpenError> {
    Dynamo::open_with(options, overrides(None))
}

/// Opens a store whose requests go to a function in place of a server.
pub(crate) fn open_on(
    options: &DynamoOptions,
    http_client: SharedHttpClient,
) -> Result<Dynamo, storage::DynamoOpenError> {
    Dynamo::open_with(options, overrides(Some(http_client)))
}

/// A client for what an operator does to the tables by hand.
pub(crate) fn client() -> Client {
    Client::from_conf(
        aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .endpoint_url(&wire_server::shared().url)
            .region(Region::new(REGION))
            .credentials_provider(credentials())
            .build(),
    )
}

fn overrides(http_client: Option<SharedHttpClient>) -> TestOverrides {
    let credentials = Some(SharedCredentialsProvider::new(credentials()));
    TestOverrides { credentials, http_client }
}

/// The server believes any.
fn credentials() -> Credentials {
    Credentials::new("key", "secret", None, None, "the test")
}

const REGION: &str = "eu-central-1";
