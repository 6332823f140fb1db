//! The PostgreSQL engine: tables in a database that many nodes share.
//!
//! - **Tables** (`schema`): the router, feeds, receipts and SimplePush's versions, and three for each month, which are
//!   dropped whole.
//! - **Writes** of one user agent take effect in the order of their calls ([`storage::queue`]). Most are one statement, and
//!   those of many agents share a transaction and a round trip, and the messages of many agents one statement (`lanes`).
//!   What a rule decides in several steps is a transaction of its own (`client`).
//! - **Reads** have connections of their own, to the server that is written to. Records that are read at once are read by
//!   one statement.
//! - **A connection that ends** is opened again, also to another host of the URL, and what may have been executed is
//!   repeated, as all writes may be.
//! - **Another program's database** is read through a `Snapshot`, which has no part in the above.
//!
//! Architecture Invariant: whatever writes an agent's rows of a month locks its row of `agents` first, and whatever writes
//! the rows of a feed holds the feed's lock (`feed_rows`).

mod channels;
mod client;
mod connection;
mod copied_rows;
mod engine;
mod error;
mod feed_rows;
mod inactive_users;
mod lanes;
mod maintenance;
mod messages;
mod migrations;
mod notifications;
mod open;
mod preflight;
mod router;
mod schema;
mod snapshot;
mod sql;
mod waiting_counts;

use std::time::Duration;

use postgresql_address::Address;
use storage::networked::Networked;
use storage::queue::{Queue, QueueLimits};
use storage::waiting_limits::WaitingLimits;

pub use self::client::PostgresClient;
pub use self::error::{ErrorKind, PostgresOpenError, SqlError};
pub use self::migrations::{MIGRATIONS, Migration};
pub use self::schema::statements;
pub use self::snapshot::Snapshot;
pub use postgresql_address::{AddressError, check_url};
/// What a [`Snapshot`] prepares and returns.
pub use tokio_postgres::{Row, Statement};

/// The options of the PostgreSQL engine. Their defaults are in the settings.
#[derive(Clone)]
pub struct PostgresOptions {
    /// A URL as libpq's. What it leaves out, also all of it, is that of the `PG*` variables.
    pub url: String,
    /// The password, if the URL has none.
    pub password: Option<String>,
    /// The schema of the tables.
    pub schema: String,
    /// Whether missing tables are created. Otherwise they are an error.
    pub create_tables: bool,
    /// Whether connections lead to a pooler that gives each transaction to any session.
    pub is_pooled: bool,
    /// Limit of opening a connection.
    pub connect_timeout: Duration,
    /// Limit of a statement, and of waiting for a connection.
    pub operation_timeout: Duration,
    /// Calls of the store that wait or run; a further one is [`StoreError::Busy`](storage::StoreError::Busy).
    pub requests_max: usize,
    /// Writes of one user agent that wait or run; a further one is [`StoreError::Busy`](storage::StoreError::Busy).
    pub agent_writes_max: usize,
    /// Connections for writes, as many for records, for other reads, and for transactions of several steps.
    pub connections: usize,
    /// Threads that call PostgreSQL.
    pub threads: usize,
    /// Bounds of the messages that wait.
    pub waiting: WaitingLimits,
}

/// A store in PostgreSQL.
pub type Postgres = Networked<PostgresClient>;

/// Connects, and makes or changes the tables if they are missing or old and may be created.
///
/// Blocks until the server has replied.
pub fn open(options: &PostgresOptions) -> Result<Postgres, PostgresOpenError> {
    open_with(options, MIGRATIONS)
}

/// The server and the database that a URL and the variables of libpq name, for people.
pub fn place(url: &str) -> Option<String> {
    Address::parse(url, None).ok().map(|address| address.place())
}

/// As [`open`], with other versions of the tables.
pub fn open_with(
    options: &PostgresOptions,
    migrations: &'static [Migration],
) -> Result<Postgres, PostgresOpenError> {
    let limits = QueueLimits {
        calls_max: options.requests_max.max(1),
        agent_calls_max: options.agent_writes_max.max(1),
        agent_wait_max: options.operation_timeout,
    };
    let queue = Queue::start("postgresql", options.threads, limits);
    let queue = queue.map_err(PostgresOpenError::Thread)?;
    let client = queue.block_on(open::client(options, migrations))?;
    Ok(Networked::new(client, queue))
}
