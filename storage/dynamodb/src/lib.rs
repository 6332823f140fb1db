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
//! - **Throttling** beyond the budget is [`StoreError::Busy`](storage::StoreError::Busy) if nothing was done, and
//!   [`StoreError::Failed`](storage::StoreError::Failed) if a part may have been done.
//!
//! Architecture Invariant: only `client` sends requests, so that every error names its operation
//! and table, and none has a key or a payload.

#[cfg(test)]
extern crate self as storage_dynamodb;

mod acked_rows;
mod attributes;
mod batch;
mod channels;
mod client;
mod copied_rows;
mod copy_table;
mod dropped_users;
mod engine;
mod error;
mod feeds;
mod fetch;
mod id_floor;
mod inactive_users;
mod key_fingerprints;
mod last_connect_index;
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
mod table_schema;
mod tables;
#[cfg(test)]
#[path = "../../tests/wire_server/options.rs"]
mod test_options;
mod ttl;
mod wait;
mod waiting_counts;
mod waiting_rows;

use storage::networked::Networked;
use storage::queue::{Queue, QueueLimits};

pub use self::client::DynamoClient;
pub use self::open::{DynamoOpenError, TestOverrides};
pub use self::options::{Billing, DynamoOptions};

/// A store in DynamoDB.
pub type Dynamo = Networked<DynamoClient>;

/// Finds credentials, region and server, and creates the router table if it is missing and tables may be created.
///
/// Blocks until the server has replied.
pub fn open(options: &DynamoOptions) -> Result<Dynamo, DynamoOpenError> {
    open_with(options, TestOverrides::default())
}

/// As [`open`], with parts of the environment replaced.
pub fn open_with(
    options: &DynamoOptions,
    overrides: TestOverrides,
) -> Result<Dynamo, DynamoOpenError> {
    let limits = QueueLimits {
        calls_max: options.requests_max.max(1),
        agent_calls_max: options.agent_writes_max.max(1),
        agent_wait_max: options.operation_timeout,
    };
    let queue = Queue::start("dynamodb", options.threads, limits);
    let queue = queue.map_err(DynamoOpenError::Thread)?;
    let client = queue.block_on(open::client(options, overrides))?;
    Ok(Networked::new(client, queue))
}
