//! The DynamoDB engine on a wire server that all cases share, each with tables of its own.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use storage::{DynamoOptions, StoreAdmin};

use crate::conformance::world::Engine;
use crate::wire_engine;

pub(crate) struct OnWireServer(DynamoOptions);

impl OnWireServer {
    /// The cases make more concurrent calls than one agent may, and a busy machine may need minutes
    /// for them.
    pub(crate) fn new() -> Self {
        let options = wire_engine::fresh_tables();
        let operation_timeout = Duration::from_secs(120);
        Self(DynamoOptions { agent_writes_max: options.requests_max, operation_timeout, ..options })
    }
}

impl Engine for OnWireServer {
    fn open(&self) -> BoxFuture<'_, Arc<dyn StoreAdmin>> {
        let opened: Arc<dyn StoreAdmin> = wire_engine::open(&self.0);
        Box::pin(async { opened })
    }
}
