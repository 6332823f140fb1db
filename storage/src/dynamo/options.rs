//! What an operator can set of the DynamoDB engine.

use std::time::Duration;

use state_machine::LastConnect;

use crate::maintenance::Throughput;

/// How to reach the tables, what they are called, and the bounds of an engine.
///
/// One request to DynamoDB is tried [`attempts_max`](Self::attempts_max) times within
/// [`operation_timeout`](Self::operation_timeout). That, with `requests_max`, is the whole retry budget: the SDK's token
/// bucket, which stops retrying altogether after a hundred failures in a row, is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DynamoOptions {
    /// The URL of a server that speaks DynamoDB's API; none is AWS itself.
    pub endpoint_url: Option<String>,
    /// The AWS region; none takes it from the environment, the profile or the machine's metadata.
    pub region: Option<String>,
    /// What every table's name begins with.
    pub table_prefix: String,
    /// What stands before the month in the name of a message table: `message` in `message_2026_11`.
    pub message_prefix: String,
    /// How tables that are made here are billed.
    pub billing: Billing,
    /// Whether tables that are missing are made. Otherwise a missing one is an error.
    pub create_tables: bool,
    /// Over how many keys of the `last_connect` index one hour is spread.
    pub last_connect_shards: usize,
    /// How long a TCP and TLS connection may take to be made.
    pub connect_timeout: Duration,
    /// How long one attempt of a request may take.
    pub attempt_timeout: Duration,
    /// How long a request may take with all its attempts and the pauses between them. One call of the store is one
    /// request, or a few one after the other.
    pub operation_timeout: Duration,
    /// Attempts of one request; at least 1.
    pub attempts_max: u32,
    /// The pause before the second attempt, on average half of it; doubled before each further one.
    pub backoff_initial: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
    /// Calls of the store that are queued or under way; more are answered [`StoreError::Busy`](crate::StoreError::Busy).
    /// The last quarter of them is not for storing messages, the last eighth only for the router table and health.
    pub requests_max: usize,
    /// Writes of one user agent that may wait or be under way; more are answered
    /// [`StoreError::Busy`](crate::StoreError::Busy), for that agent only. Kept in the same way as `requests_max`. One
    /// that waited for [`operation_timeout`](Self::operation_timeout) behind others, and has not begun, is Busy too.
    pub agent_writes_max: usize,
    /// Requests that are under way at the same time: as many connections are made at most. A quarter is for the router
    /// table and the rest for all others, at least one each; a request that has none after
    /// [`operation_timeout`](Self::operation_timeout) is refused, as if its table were throttled.
    pub connections_max: usize,
    /// Rows that one call writes at the same time, where each row is a request of its own.
    pub rows_in_flight_max: usize,
    /// Threads that talk to DynamoDB.
    pub threads: usize,
}

/// How a table is paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Billing {
    /// By request.
    OnDemand,
    /// By capacity that is set aside, used or not.
    Provisioned(Throughput),
}

impl Default for DynamoOptions {
    fn default() -> Self {
        Self {
            endpoint_url: None,
            region: None,
            table_prefix: String::new(),
            message_prefix: "message".to_owned(),
            billing: Billing::OnDemand,
            create_tables: true,
            last_connect_shards: LastConnect::SHARDS,
            connect_timeout: Duration::from_secs(2),
            attempt_timeout: Duration::from_secs(3),
            operation_timeout: Duration::from_secs(10),
            attempts_max: 6,
            backoff_initial: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
            requests_max: 4096,
            agent_writes_max: 192,
            connections_max: 256,
            rows_in_flight_max: 16,
            threads: 2,
        }
    }
}
