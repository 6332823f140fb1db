//! Opens DynamoDB with the settings.

use std::sync::Arc;
use std::time::Duration;

use storage::StoreAdmin;
use storage::maintenance::Throughput;
use storage_dynamodb::{Billing, DynamoOpenError, DynamoOptions};

use super::open_error::{OpenStoreError, maker_of_tables};
use crate::settings::{BillingMode, PublicUrl, Settings};

pub(super) fn open(
    settings: &Settings,
    creates: bool,
) -> Result<Arc<dyn StoreAdmin>, OpenStoreError> {
    let options = DynamoOptions { create_tables: creates, ..options(settings) };
    let opened = storage_dynamodb::open(&options).map_err(|error| {
        let remedy = match error {
            DynamoOpenError::RouterMissing { .. } => {
                format!(" ({})", maker_of_tables(settings.create_tables))
            }
            DynamoOpenError::NoRegion => " (dynamodb_region is the setting)".to_owned(),
            _ => String::new(),
        };
        OpenStoreError::DynamoDb(format!("{error}{remedy}"))
    })?;
    Ok(Arc::new(opened))
}

fn options(settings: &Settings) -> DynamoOptions {
    let billing = match settings.dynamodb_billing {
        BillingMode::OnDemand => Billing::OnDemand,
        BillingMode::Provisioned => Billing::Provisioned(Throughput {
            read: settings.dynamodb_read_units,
            write: settings.dynamodb_write_units,
        }),
    };
    let endpoint_url = settings.dynamodb_endpoint_url.as_ref().map(PublicUrl::as_str);
    let region = settings.dynamodb_region.as_ref().map(|region| region.as_str().to_owned());
    DynamoOptions {
        endpoint_url: endpoint_url.map(str::to_owned),
        region,
        table_prefix: settings.dynamodb_table_prefix.as_str().to_owned(),
        message_prefix: settings.dynamodb_message_prefix.as_str().to_owned(),
        billing,
        create_tables: settings.create_tables,
        last_connect_shards: settings.last_connect_shards,
        connect_timeout: Duration::from_millis(settings.dynamodb_connect_timeout_ms),
        attempt_timeout: Duration::from_millis(settings.dynamodb_attempt_timeout_ms),
        operation_timeout: Duration::from_millis(settings.dynamodb_operation_timeout_ms),
        attempts_max: settings.dynamodb_attempts_max,
        backoff_initial: Duration::from_millis(settings.dynamodb_backoff_ms),
        backoff_max: Duration::from_millis(settings.dynamodb_backoff_max_ms),
        requests_max: settings.dynamodb_requests_max,
        agent_writes_max: settings.dynamodb_agent_writes_max,
        connections_max: settings.dynamodb_connections_max,
        rows_in_flight_max: settings.dynamodb_rows_in_flight_max,
        threads: settings.dynamodb_threads,
        waiting: settings.waiting_limits(),
    }
}
