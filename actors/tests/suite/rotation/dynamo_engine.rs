//! The DynamoDB engine on a wire server that all cases share, each with tables of its own.

#[path = "../../../../storage/tests/wire_server/engine.rs"]
pub(crate) mod engine;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use storage::{DynamoOptions, Store};

use super::world::Engine;

pub(crate) struct OnWireServer(DynamoOptions);

impl OnWireServer {
    pub(crate) fn new() -> Self {
        Self(engine::fresh_tables())
    }
}

impl Engine for OnWireServer {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        let opened: Arc<dyn Store> = engine::open(&self.0);
        Box::pin(async { opened })
    }
}
