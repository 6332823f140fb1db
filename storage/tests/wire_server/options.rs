//! Options of the DynamoDB engine for tests, which change what they are about. Include this file
//! with `#[path]`.

use std::time::Duration;

use state_machine::LastConnect;
use storage::WaitingLimits;
use storage_dynamodb::Billing;
use storage_dynamodb::DynamoOptions;

pub(crate) fn options() -> DynamoOptions {
    DynamoOptions {
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
        waiting: WaitingLimits::NONE,
    }
}
