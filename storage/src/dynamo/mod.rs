//! The DynamoDB engine: tables shared by many nodes, at AWS or any server that speaks its API.
//!
//! - Tables and attributes are those of the original (seed 001 and 002); what is ours besides is in `rows` and
//!   `router`. Attributes that we do not know stay as they are.
//! - **Feeds** have two tables of ours and transactions (`feeds`); nothing else here needs either.
//! - **Calls** run on threads of the engine's own (`queue`), each request tried again within a budget (`client`).
//! - **Writes** of one user agent are in order as they were called, as far as that can be seen: stores of messages,
//!   which end alike in any order, run side by side, and every other write alone.
//! - **A flood or a hanging table** is the matter of its agent or its table: both places in the queue and connections
//!   are kept for others, for the router table above all.
//! - **Reads** are consistent: they see every write that was answered before.
//! - **Throttling** that outlasts the budget is [`StoreError::Busy`] where nothing was done,
//!   and an error that says so where something may have been.
//!
//! Architecture Invariant: only `client` makes requests, so that no error leaves without its operation and table, and
//! none with a key or a payload.

mod attributes;
mod capacity;
mod channels;
mod client;
mod copy_table;
mod empty_response_retry;
mod error;
mod feeds;
mod fetch;
mod inactive_users;
mod key_fingerprints;
mod last_connect_index;
mod maintenance;
mod messages;
mod month_counts;
mod month_table;
mod move_messages;
mod names;
mod notifications;
mod open;
mod options;
mod preflight;
mod query;
mod queue;
mod registration;
mod retries;
mod router;
mod rows;
mod store;
mod table_schema;
mod tables;
mod ttl;

use std::sync::Arc;

use state_machine::Uaid;

use self::client::DynamoClient;
pub use self::open::{DynamoOpenError, TestOverrides};
pub use self::options::{Billing, DynamoOptions};
use self::queue::{Priority, Queue, QueueLimits};
use crate::store::{StoreError, StoreFuture};

/// A store in DynamoDB.
///
/// Dropping it without [`Store::close`](crate::Store::close) loses nothing: what is queued is finished without anybody
/// waiting for it.
pub struct Dynamo {
    client: Arc<DynamoClient>,
    queue: Queue,
}

impl Dynamo {
    /// Looks for credentials, region and server, and makes the router table if there is none and
    /// tables may be made.
    ///
    /// Blocks until the server has answered.
    pub fn open(options: &DynamoOptions) -> Result<Self, DynamoOpenError> {
        Self::open_with(options, TestOverrides::default())
    }

    /// Opens with something in place of what the environment has.
    pub fn open_with(
        options: &DynamoOptions,
        overrides: TestOverrides,
    ) -> Result<Self, DynamoOpenError> {
        let queue = Queue::start(options.threads, queue_limits(options));
        let queue = queue.map_err(DynamoOpenError::Thread)?;
        let client = queue.block_on(open::client(options, overrides))?;
        Ok(Self { client, queue })
    }

    /// Rows of message tables that were passed over since the engine was opened because they made no
    /// sense: counted each time they were come across. They go with their month.
    pub fn rows_unreadable(&self) -> u64 {
        self.client.unreadable()
    }

    /// Does something that is in no order with anything else.
    fn call<T, E, F>(&self, call: impl FnOnce(Arc<DynamoClient>) -> F) -> StoreFuture<T>
    where
        T: Send + 'static,
        E: Into<StoreError>,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        self.call_with(Priority::Messages, call)
    }

    /// Does something in order with the other writes of a user agent.
    fn write<T, E, F>(
        &self,
        uaid: Uaid,
        call: impl FnOnce(Arc<DynamoClient>) -> F,
    ) -> StoreFuture<T>
    where
        T: Send + 'static,
        E: Into<StoreError>,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        self.write_with(Priority::Messages, uaid, call)
    }

    fn call_with<T, E, F>(
        &self,
        priority: Priority,
        call: impl FnOnce(Arc<DynamoClient>) -> F,
    ) -> StoreFuture<T>
    where
        T: Send + 'static,
        E: Into<StoreError>,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let call = call(self.client.clone());
        self.queue.run(priority, async { call.await.map_err(Into::into) })
    }

    fn write_with<T, E, F>(
        &self,
        priority: Priority,
        uaid: Uaid,
        call: impl FnOnce(Arc<DynamoClient>) -> F,
    ) -> StoreFuture<T>
    where
        T: Send + 'static,
        E: Into<StoreError>,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let call = call(self.client.clone());
        self.queue.run_in_agent_queue(priority, uaid, async { call.await.map_err(Into::into) })
    }
}

fn queue_limits(options: &DynamoOptions) -> QueueLimits {
    QueueLimits {
        calls_max: options.requests_max.max(1),
        agent_calls_max: options.agent_writes_max.max(1),
        agent_wait_max: options.operation_timeout,
    }
}
