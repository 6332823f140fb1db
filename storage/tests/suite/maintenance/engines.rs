//! The engines: each store is empty and of its own.

use std::sync::Arc;

use futures_util::future::join_all;
use storage_dynamodb::{Dynamo, DynamoOpenError, DynamoOptions};
use storage_sqlite::{Embedded, EmbeddedOptions};
use tokio::task::spawn_blocking;

pub(crate) use crate::dynamo::things::raw_client as client;
use crate::engines::fresh_schema;
use crate::maintenance::world::{SPREAD, World};
use crate::wire_engine;

pub(crate) fn embedded() -> World {
    let home = tempfile::tempdir().unwrap();
    let store = Embedded::open(home.path(), &EmbeddedOptions::new(4096)).unwrap();
    World::new(Arc::new(store), Some(home))
}

pub(crate) fn dynamodb() -> World {
    World::new(Arc::new(open(&options()).unwrap()), None)
}

pub(crate) fn postgresql() -> World {
    World::new(Arc::new(storage_postgresql::open(&fresh_schema()).unwrap()), None)
}

/// Tables of its own on the server that all tests share. The cases make more concurrent calls than one agent may.
pub(crate) fn options() -> DynamoOptions {
    let fresh = wire_engine::fresh_tables();
    let agent_writes_max = fresh.requests_max;
    DynamoOptions { last_connect_shards: SPREAD, agent_writes_max, ..fresh }
}

pub(crate) fn open(options: &DynamoOptions) -> Result<Dynamo, DynamoOpenError> {
    storage_dynamodb::open_with(options, wire_engine::overrides(None))
}

/// Nodes that start at the same time.
pub(crate) async fn open_at_once(options: &DynamoOptions, count: usize) -> Vec<Dynamo> {
    let opening = (0..count).map(|_| {
        let options = options.clone();
        spawn_blocking(move || open(&options).unwrap())
    });
    join_all(opening).await.into_iter().map(Result::unwrap).collect()
}
