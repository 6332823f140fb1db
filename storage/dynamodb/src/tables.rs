//! Creates, describes, lists and drops tables.
//!
//! Two nodes may create or drop a table at the same time: both succeed. Each operation waits for
//! the server, up to [`TABLE_WAIT_MAX`]. The SDK's waiters are not used: they poll every 20 s at
//! best.

use std::collections::BTreeSet;
use std::time::Duration;

use aws_sdk_dynamodb::types::{BillingMode, TableDescription, TableStatus};
use state_machine::Month;
use storage::maintenance::{self, Capacity, Table, Throughput};

use crate::client::DynamoClient;
use crate::error::{CallError, if_table};
use crate::names::ALL_TABLES;
use crate::options::Billing;
use crate::table_schema::{FEEDS, LEGACY, MESSAGES, ROUTER, SEQUENCES, TableSchema, provisioned};
use crate::ttl;
use crate::wait::{TABLE_WAIT_MAX, Wait};

pub(crate) async fn ensure_router(client: &DynamoClient) -> Result<(), CallError> {
    ensure(client, &client.names.router, &ROUTER, Some(client.options.billing)).await
}

pub(crate) async fn ensure_legacy(client: &DynamoClient) -> Result<(), CallError> {
    ensure(client, &client.names.legacy, &LEGACY, Some(client.options.billing)).await
}

pub(crate) async fn ensure_feeds(client: &DynamoClient) -> Result<(), CallError> {
    let billing = Some(client.options.billing);
    ensure(client, &client.names.sequences, &SEQUENCES, billing).await?;
    ensure(client, &client.names.feeds, &FEEDS, billing).await
}

/// Runs an operation. If its table is missing, runs it again after `ensure`.
pub(crate) async fn ensure_if_missing<T, F: Future<Output = Result<T, CallError>>>(
    ensure: impl Future<Output = Result<(), CallError>>,
    mut operation: impl FnMut() -> F,
) -> Result<T, CallError> {
    match operation().await {
        Err(error) if error.is_table_missing() => {
            ensure.await?;
            operation().await
        }
        done => done,
    }
}

/// Creates a month's table if it is missing, with the throughput of the month before.
pub(crate) async fn ensure_month(client: &DynamoClient, month: Month) -> Result<(), CallError> {
    let name = client.names.messages(month);
    let billing = match describe(client, &name).await? {
        Some(_table) => client.options.billing,
        None => billing_after(client, month.previous()).await?,
    };
    ensure(client, &name, &MESSAGES, Some(billing)).await
}

/// The months that have a table, oldest first.
pub(crate) async fn months(client: &DynamoClient) -> Result<Vec<Month>, CallError> {
    let tables = client.sdk.list_tables().into_paginator().items().send();
    let names = client.call("ListTables", ALL_TABLES, tables.collect::<Result<Vec<_>, _>>());
    let names = names.await?;
    let months = names.iter().filter_map(|name| client.names.month_of_table(name));
    Ok(months.collect::<BTreeSet<_>>().into_iter().collect())
}

/// The tables that exist.
pub(crate) async fn statuses(
    client: &DynamoClient,
) -> Result<Vec<maintenance::TableStatus>, CallError> {
    let months = months(client).await?.into_iter().map(Table::Messages);
    let mut statuses = Vec::new();
    for table in Table::OF_NO_MONTH.into_iter().chain(months) {
        let name = client.names.table(table);
        let there = describe(client, &name).await?;
        statuses.extend(there.map(|description| status(table, name, &description)));
    }
    Ok(statuses)
}

fn status(table: Table, name: String, description: &TableDescription) -> maintenance::TableStatus {
    let state = description.table_status().map_or("unknown", |status| status.as_str());
    let count = |count: Option<i64>| count.and_then(|count| count.try_into().ok()).unwrap_or(0);
    maintenance::TableStatus {
        table,
        name,
        state: state.to_lowercase(),
        items: count(description.item_count()),
        bytes: count(description.table_size_bytes()),
        capacity: capacity_of(description),
    }
}

/// Drops a month's table and waits for its end. Returns whether there was one.
pub(crate) async fn drop_month(client: &DynamoClient, month: Month) -> Result<bool, CallError> {
    let name = client.names.messages(month);
    let mut wait = Wait::new(client, "DeleteTable", &name);
    loop {
        let request = client.sdk.delete_table().table_name(&name);
        match client.call("DeleteTable", &name, request.send()).await {
            Ok(_going) => break,
            Err(error) if error.is_table_missing() => return Ok(false),
            Err(error) if error.is_table_in_use() => wait.a_while("it is being changed").await?,
            Err(error) => return Err(error),
        }
    }
    while describe(client, &name).await?.is_some() {
        wait.a_while("it is being deleted").await?;
    }
    Ok(true)
}

pub(crate) async fn describe(
    client: &DynamoClient,
    name: &str,
) -> Result<Option<TableDescription>, CallError> {
    let request = client.sdk.describe_table().table_name(name);
    let described = if_table(client.call("DescribeTable", name, request.send()).await)?;
    Ok(described.and_then(|described| described.table))
}

/// Compares a table with its schema. With a `billing` it is created if it is missing, its TTL is
/// enabled, and both are waited for; without one nothing is changed and nothing waited for.
pub(crate) async fn ensure(
    client: &DynamoClient,
    name: &str,
    schema: &TableSchema,
    billing: Option<Billing>,
) -> Result<(), CallError> {
    let wait_max = if billing.is_some() { TABLE_WAIT_MAX } else { Duration::ZERO };
    let billing = billing.filter(|_| client.options.create_tables);
    let wait = Wait::new(client, "DescribeTable", name).at_most(wait_max);
    let table = until_active(client, name, schema, billing, wait).await?;
    let wrong = |what: String| CallError::unreadable("DescribeTable", name, &what);
    schema.compare(&table).map_err(wrong)?;
    let wait = Wait::new(client, "DescribeTimeToLive", name).at_most(wait_max);
    if schema.expires { ttl::ensure(client, name, billing.is_some(), wait).await } else { Ok(()) }
}

async fn until_active(
    client: &DynamoClient,
    name: &str,
    schema: &TableSchema,
    billing: Option<Billing>,
    mut wait: Wait<'_>,
) -> Result<TableDescription, CallError> {
    loop {
        let Some(table) = describe(client, name).await? else {
            let billing = billing.ok_or_else(|| missing(name))?;
            create(client, name, schema, billing).await?;
            wait.a_while("it is being created").await?;
            continue;
        };
        match table.table_status() {
            None | Some(TableStatus::Active | TableStatus::Updating) => return Ok(table),
            Some(TableStatus::Creating) => wait.a_while("it is being created").await?,
            Some(TableStatus::Deleting) => wait.a_while("it is being deleted").await?,
            Some(stuck) => {
                let what = format!("its state is {stuck}");
                return Err(CallError::unreadable("DescribeTable", name, &what));
            }
        }
    }
}

/// Creates a table, unless another node just did.
async fn create(
    client: &DynamoClient,
    name: &str,
    schema: &TableSchema,
    billing: Billing,
) -> Result<(), CallError> {
    let request = schema.describe_in(client.sdk.create_table().table_name(name), billing);
    match client.call("CreateTable", name, request.send()).await {
        Err(error) if !error.is_table_in_use() => Err(error),
        _ => Ok(()),
    }
}

/// The billing of a new table, by that of the month before if it exists.
async fn billing_after(client: &DynamoClient, month: Month) -> Result<Billing, CallError> {
    let table = match client.options.billing {
        Billing::OnDemand => None,
        Billing::Provisioned(_) => describe(client, &client.names.messages(month)).await?,
    };
    Ok(match table.as_ref().map(capacity_of) {
        Some(Capacity::Provisioned(throughput)) => Billing::Provisioned(throughput),
        _ => client.options.billing,
    })
}

pub(crate) fn missing(name: &str) -> CallError {
    let remedy = "there is no such table: create it with `kalends tables create`";
    CallError::missing_table("DescribeTable", name, remedy)
}

pub(crate) fn capacity_of(table: &TableDescription) -> Capacity {
    let mode = table.billing_mode_summary().and_then(|summary| summary.billing_mode());
    let throughput = table.provisioned_throughput().map(|throughput| Throughput {
        read: units(throughput.read_capacity_units()),
        write: units(throughput.write_capacity_units()),
    });
    match (mode, throughput) {
        (Some(BillingMode::PayPerRequest), _) | (_, None) => Capacity::OnDemand,
        (_, Some(throughput)) => Capacity::Provisioned(throughput),
    }
}

/// Sets the throughput of a month's table, if it differs.
pub(crate) async fn set_throughput(
    client: &DynamoClient,
    month: Month,
    throughput: Throughput,
) -> Result<(), CallError> {
    let name = client.names.messages(month);
    let mut wait = Wait::new(client, "UpdateTable", &name);
    loop {
        let table = describe(client, &name).await?.ok_or_else(|| missing(&name))?;
        match capacity_of(&table) {
            Capacity::Provisioned(there) if there == throughput => return Ok(()),
            Capacity::Provisioned(_) => {}
            Capacity::OnDemand | Capacity::Unmetered => {
                return Err(CallError::unreadable("UpdateTable", &name, ON_DEMAND));
            }
        }
        let request = client.sdk.update_table().table_name(&name);
        let request = request.provisioned_throughput(provisioned(throughput));
        match client.call("UpdateTable", &name, request.send()).await {
            Err(error) if error.is_table_in_use() => wait.a_while("it is being changed").await?,
            done => return done.map(drop),
        }
    }
}

const ON_DEMAND: &str = "it is billed on demand and has no throughput to set";

fn units(count: Option<i64>) -> u32 {
    count.and_then(|count| u32::try_from(count).ok()).unwrap_or(0)
}
