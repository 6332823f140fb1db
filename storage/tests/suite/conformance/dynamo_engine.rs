//! The DynamoDB engine on a wire server that all cases share, each with tables of its own.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use storage::{DynamoOptions, StoreAdmin, WaitingLimits};

use crate::conformance::world::Engine;
use crate::wire_engine;

pub(crate) struct OnWireServer(DynamoOptions);

impl OnWireServer {
    /// The cases make more concurrent calls than one agent may.
    pub(crate) fn new() -> Self {
        Self::bounded(WaitingLimits::NONE)
    }

    pub(crate) fn bounded(waiting: WaitingLimits) -> Self {
        let options = wire_engine::fresh_tables();
        Self(DynamoOptions { agent_writes_max: options.requests_max, waiting, ..options })
    }
}

impl Engine for OnWireServer {
    fn open(&self) -> BoxFuture<'_, Arc<dyn StoreAdmin>> {
        let opened: Arc<dyn StoreAdmin> = wire_engine::open(&self.0);
        Box::pin(async { opened })
    }
}
