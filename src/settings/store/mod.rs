//! Opens the store that the settings name, and prepares it for a server. Settings and keys enter; an open store leaves,
//! or why a server may not start on it. What is shared by all servers on a store is written here.
//!
//! - [`announcements`]: what servers tell those that start later.
//! - [`copy_marker`]: the mark of an unfinished copy.
//! - [`message_tables`]: creates the tables of the months.
//! - [`key_fingerprints`]: checks that all nodes on a store have the same keys.

pub(crate) mod announcements;
pub(crate) mod copy_marker;
pub mod key_fingerprints;
pub mod message_tables;

use std::sync::Arc;
use std::time::Duration;

use storage::StoreError;
use storage::dynamo::{Billing, Dynamo, DynamoOpenError, DynamoOptions};
use storage::embedded::{Embedded, EmbeddedOptions, OpenError};
use storage::maintenance::{RecordsByMonth, StoreAdmin, Throughput};

use super::{BillingMode, PublicUrl, Settings, StoreKind};

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenStoreError {
    #[error(transparent)]
    Embedded(#[from] OpenError),
    #[error("{0}")]
    Dynamo(#[from] DynamoOpenError),
    #[error("{0} (`kalends tables create` makes it, or create_tables = true)")]
    NoRouter(DynamoOpenError),
    #[error("{0} (dynamodb_region is the setting)")]
    NoRegion(DynamoOpenError),
}

/// Opens the store and blocks until it is usable.
pub fn open(settings: &Settings) -> Result<Arc<dyn StoreAdmin>, OpenStoreError> {
    Ok(match settings.store {
        StoreKind::Embedded => {
            let options = EmbeddedOptions {
                waiting: settings.waiting_limits(),
                free_bytes_min: settings.disk_free_min,
                ..EmbeddedOptions::new(settings.write_queue_max)
            };
            Arc::new(Embedded::open(&settings.data_dir, &options)?)
        }
        StoreKind::DynamoDb => {
            Arc::new(Dynamo::open(&dynamo_options(settings)).map_err(|error| match error {
                DynamoOpenError::RouterMissing { .. } => OpenStoreError::NoRouter(error),
                DynamoOpenError::NoRegion => OpenStoreError::NoRegion(error),
                error => OpenStoreError::Dynamo(error),
            })?)
        }
    })
}

/// Whether no user agent is registered.
pub async fn is_empty_store(store: &dyn StoreAdmin) -> Result<bool, StoreError> {
    let has_agents = |page: &RecordsByMonth| !page.curmonth.is_empty() || page.unreadable > 0;
    Ok(!any_page(store, has_agents).await?)
}

/// Whether a user agent behind a bridge is registered.
pub async fn has_bridged_agents(store: &dyn StoreAdmin) -> Result<bool, StoreError> {
    any_page(store, |page| page.bridged > 0).await
}

async fn any_page(
    store: &dyn StoreAdmin,
    is_found: impl Fn(&RecordsByMonth) -> bool,
) -> Result<bool, StoreError> {
    let mut after = None;
    loop {
        let page = store.records_by_month(after).await?;
        if is_found(&page) {
            return Ok(true);
        }
        after = page.next;
        if after.is_none() {
            return Ok(false);
        }
    }
}

fn dynamo_options(settings: &Settings) -> DynamoOptions {
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
