//! The engines, each with a store of its own. Include this file with `#[path]`, beside `engine.rs` as `wire_engine`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use storage::{StoreAdmin, WaitingLimits};
use storage_dynamodb::DynamoOptions;
use storage_postgresql::PostgresOptions;
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

/// Thousands of stores at once wait for each other on a busy machine, and no case is about that.
const PATIENCE: Duration = Duration::from_secs(120);

/// The DynamoDB engine on the wire server that all tests share.
pub(crate) struct OnWireServer(pub(crate) DynamoOptions);

impl OnWireServer {
    /// The cases make more concurrent calls than one agent may.
    pub(crate) fn new(waiting: WaitingLimits) -> Self {
        let options = wire_engine::fresh_tables();
        let agent_writes_max = options.requests_max;
        Self(DynamoOptions { operation_timeout: PATIENCE, agent_writes_max, waiting, ..options })
    }
}

impl Engine for OnWireServer {
    fn open(&self) -> Arc<dyn StoreAdmin> {
        wire_engine::open(&self.0)
    }
}

/// The PostgreSQL engine on the server that all tests of a process share.
pub(crate) struct OnPostgres(pub(crate) PostgresOptions);

impl OnPostgres {
    pub(crate) fn new(waiting: WaitingLimits) -> Self {
        Self(PostgresOptions { waiting, ..fresh_schema() })
    }
}

impl Engine for OnPostgres {
    fn open(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(storage_postgresql::open(&self.0).unwrap())
    }
}

/// Options for a schema that no other case has.
pub(crate) fn fresh_schema() -> PostgresOptions {
    static CASES: AtomicU32 = AtomicU32::new(0);
    PostgresOptions {
        url: postgres_server::shared().url.clone(),
        password: None,
        schema: format!("case{}", CASES.fetch_add(1, Ordering::Relaxed)),
        create_tables: true,
        is_pooled: false,
        connect_timeout: Duration::from_secs(10),
        operation_timeout: Duration::from_secs(30),
        requests_max: 4096,
        agent_writes_max: 4096,
        connections: 2,
        threads: 2,
        waiting: WaitingLimits::NONE,
    }
}
