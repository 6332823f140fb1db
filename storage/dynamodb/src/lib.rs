//! The DynamoDB engine: tables shared by many nodes, at AWS or any server that speaks its API.
//!
//! - Tables and attributes are those of autopush (docs/sources.md#dynamodb-schema) with the
//!   additions of `message_items` and `router`. Unknown attributes are preserved.
//! - **Feeds** have two tables of their own and use transactions (`feeds`); nothing else does.
//! - **Calls** run on the engine's threads ([`storage::queue`]), and each request is retried within a budget
//!   (`client`).
//! - **Writes** of one user agent take effect in the order of their calls. Stores of messages,
//!   which commute, run concurrently, and every other write alone.
//! - **A flood or a hanging table** affects only its agent or its table: slots of the queue and
//!   connections are reserved for others, above all for the router table.
//! - **Reads** are consistent: they see every write that was answered before.
//! - **Throttling** beyond the budget is [`StoreError::Busy`] if nothing was done, and
//!   [`StoreError::Failed`] if a part may have been done.
//!
//! Architecture Invariant: only `client` sends requests, so that every error names its operation
//! and table, and none has a key or a payload.

#[cfg(test)]
extern crate self as storage_dynamodb;

/// Implements methods of a contract: each runs one function of this engine, in no order.
macro_rules! calls {
    ($($name:ident($($arg:ident: $type:ty),*) -> $answer:ty = |$client:ident| $call:expr;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> StoreFuture<$answer> {
            self.call(async move |client| {
                let $client = &*client;
                $call.await
            })
        })*
    };
}

mod acked_rows;
mod attributes;
mod batch;
mod channels;
mod client;
mod copied_rows;
mod copy_table;
mod dropped_users;
mod error;
mod feeds;
mod fetch;
mod id_floor;
mod inactive_users;
mod key_fingerprints;
mod last_connect_index;
mod maintenance;
mod message_items;
mod messages;
mod month_rows;
mod month_table;
mod move_messages;
mod names;
mod notifications;
mod open;
mod options;
mod preflight;
mod receipts;
mod record_update;
mod registration;
mod retries;
mod router;
mod store;
mod table_schema;
mod tables;
#[cfg(test)]
#[path = "../../tests/wire_server/options.rs"]
mod test_options;
mod ttl;
mod wait;
mod waiting_counts;
mod waiting_rows;

use std::sync::Arc;

use state_machine::Uaid;
use storage::queue::{Priority, Queue, QueueLimits};
use storage::store::{StoreError, StoreFuture};

use self::client::DynamoClient;
pub use self::open::{DynamoOpenError, TestOverrides};
pub use self::options::{Billing, DynamoOptions};

/// A store in DynamoDB.
///
/// Dropping it without [`Store::close`](storage::Store::close) loses no write: the queued calls are
/// finished in the background.
pub struct Dynamo {
    client: Arc<DynamoClient>,
    queue: Queue,
}

impl Dynamo {
    /// Finds credentials, region and server, and creates the router table if it is missing and
    /// tables may be created.
    ///
    /// Blocks until the server has replied.
    pub fn open(options: &DynamoOptions) -> Result<Self, DynamoOpenError> {
        Self::open_with(options, TestOverrides::default())
    }

    /// As [`Dynamo::open`], with parts of the environment replaced.
    pub fn open_with(
        options: &DynamoOptions,
        overrides: TestOverrides,
    ) -> Result<Self, DynamoOpenError> {
        let queue = Queue::start("dynamodb", options.threads, queue_limits(options));
        let queue = queue.map_err(DynamoOpenError::Thread)?;
        let client = queue.block_on(open::client(options, overrides))?;
        Ok(Self { client, queue })
    }

    /// How often a row of a message table was skipped since the engine was opened because it could
    /// not be decoded. Such rows are deleted with their month.
    pub fn rows_unreadable(&self) -> u64 {
        self.client.unreadable()
    }

    /// Runs a call that is not ordered.
    fn call<T, E, F>(&self, call: impl FnOnce(Arc<DynamoClient>) -> F) -> StoreFuture<T>
    where
        T: Send + 'static,
        E: Into<StoreError>,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        self.run(Priority::Messages, None, call)
    }

    /// Runs a write of message rows, in order with the other writes of the user agent.
    fn write<T, E, F>(
        &self,
        uaid: Uaid,
        write: impl FnOnce(Arc<DynamoClient>) -> F,
    ) -> StoreFuture<T>
    where
        T: Send + 'static,
        E: Into<StoreError>,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        self.run(Priority::Messages, Some(uaid), write)
    }

    /// Runs a call, in order with the other writes of the user agent if one is named.
    fn run<T, E, F>(
        &self,
        priority: Priority,
        agent: Option<Uaid>,
        call: impl FnOnce(Arc<DynamoClient>) -> F,
    ) -> StoreFuture<T>
    where
        T: Send + 'static,
        E: Into<StoreError>,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let call = call(self.client.clone());
        self.queue.run(priority, agent, async { call.await.map_err(Into::into) })
    }
}

fn queue_limits(options: &DynamoOptions) -> QueueLimits {
    QueueLimits {
        calls_max: options.requests_max.max(1),
        agent_calls_max: options.agent_writes_max.max(1),
        agent_wait_max: options.operation_timeout,
    }
}
