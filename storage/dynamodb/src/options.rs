//! The options of the DynamoDB engine. Their defaults are in the settings.

use std::time::Duration;

use storage::maintenance::Throughput;
use storage::waiting_limits::WaitingLimits;

/// One request to DynamoDB has [`attempts_max`](Self::attempts_max) attempts within
/// [`operation_timeout`](Self::operation_timeout). That, with `requests_max`, is the whole retry
/// budget: the SDK's token bucket, which stops retrying after a hundred failures in a row, is not
/// used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DynamoOptions {
    /// The URL of a server with DynamoDB's API; none is AWS itself.
    pub endpoint_url: Option<String>,
    /// The AWS region; none takes it from the environment, the profile or the machine's metadata.
    pub region: Option<String>,
    /// The prefix of every table's name.
    pub table_prefix: String,
    /// The part before the month in the name of a message table: `message` in `message_2026_11`.
    pub message_prefix: String,
    /// The billing of created tables.
    pub billing: Billing,
    /// Whether missing tables are created. Otherwise a missing table is an error.
    pub create_tables: bool,
    /// Keys of the `last_connect` index per hour.
    pub last_connect_shards: usize,
    /// Limit of TCP and TLS handshakes together.
    pub connect_timeout: Duration,
    /// Limit of one attempt of a request.
    pub attempt_timeout: Duration,
    /// Limit of a request with all attempts and the pauses between them. A call of the store is one
    /// request, or a few in sequence.
    pub operation_timeout: Duration,
    /// Attempts of one request; at least 1.
    pub attempts_max: u32,
    /// The pause before the second attempt, on average half of it; doubled before each further one.
    pub backoff_initial: Duration,
    pub backoff_max: Duration,
    /// Calls of the store that wait or run; a further one is
    /// [`StoreError::Busy`](storage::StoreError::Busy). Stores of messages may use three quarters,
    /// and only the router table and health checks the last eighth.
    pub requests_max: usize,
    /// Writes of one user agent that wait or run, shared as `requests_max`; a further one is
    /// [`StoreError::Busy`](storage::StoreError::Busy), as is one that waits longer than
    /// [`operation_timeout`](Self::operation_timeout).
    pub agent_writes_max: usize,
    /// Concurrent requests, and so connections. A quarter is for the router table and the rest for
    /// all others, at least one each. A request that waits longer than
    /// [`operation_timeout`](Self::operation_timeout) for one is rejected as if its table were
    /// throttled.
    pub connections_max: usize,
    /// Concurrent requests of one call that writes several rows.
    pub rows_in_flight_max: usize,
    /// Threads that call DynamoDB.
    pub threads: usize,
    /// Bounds of the messages that wait.
    pub waiting: WaitingLimits,
}

/// The billing of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Billing {
    /// Billed by each request.
    OnDemand,
    /// Billed by reserved capacity, used or not.
    Provisioned(Throughput),
}
