//! The engines, each with a store of its own. Include this file with `#[path]`, beside `engine.rs` as `wire_engine`.

use std::sync::Arc;

use storage::{StoreAdmin, WaitingLimits};
use storage_dynamodb::DynamoOptions;
use storage_sqlite::{Embedded, EmbeddedOptions};
use tempfile::TempDir;

use crate::wire_engine;

/// How to get at an engine.
pub(crate) trait Engine: Send + Sync + 'static {
    /// Opens the store: empty the first time, and then with what was left there.
    fn open(&self) -> Arc<dyn StoreAdmin>;
}

/// The embedded engine in a directory.
pub(crate) struct InDirectory(pub(crate) TempDir, WaitingLimits);

impl InDirectory {
    pub(crate) fn new(limits: WaitingLimits) -> Self {
        Self(tempfile::tempdir().unwrap(), limits)
    }
}

impl Engine for InDirectory {
    fn open(&self) -> Arc<dyn StoreAdmin> {
        let options = EmbeddedOptions { waiting: self.1, ..EmbeddedOptions::new(4096) };
        Arc::new(Embedded::open(self.0.path(), &options).unwrap())
    }
}

/// The DynamoDB engine on the wire server that all tests share.
pub(crate) struct OnWireServer(pub(crate) DynamoOptions);

impl OnWireServer {
    /// The cases make more concurrent calls than one agent may.
    pub(crate) fn new(waiting: WaitingLimits) -> Self {
        let options = wire_engine::fresh_tables();
        Self(DynamoOptions { agent_writes_max: options.requests_max, waiting, ..options })
    }
}

impl Engine for OnWireServer {
    fn open(&self) -> Arc<dyn StoreAdmin> {
        wire_engine::open(&self.0)
    }
}
