//! Creates, describes, lists and drops tables.
//!
//! Two nodes may create or drop a table at the same time: both succeed. Each operation waits for
//! the server, up to [`TABLE_WAIT_MAX`]. The SDK's waiters are not used: they poll every 20 s at
//! best.

use std::collections::BTreeSet;
use std::time::Duration;

use aws_sdk_dynamodb::types::{BillingMode, TableDescription, TableStatus};
use state_machine::Month;
use tokio::time::sleep;

use super::client::DynamoClient;
use super::error::CallError;
use super::options::Billing;
use super::table_schema::{FEEDS, LEGACY, MESSAGES, ROUTER, SEQUENCES, TableSchema, provisioned};
use super::ttl;
use crate::maintenance::{Capacity, Throughput};

/// How long creating or dropping a table may take. AWS needs some ten seconds.
pub(super) const TABLE_WAIT_MAX: Duration = Duration::from_secs(120);

pub(super) async fn ensure_router(client: &DynamoClient) -> Result<(), CallError> {
    ensure(client, &client.names.router, &ROUTER, client.options.billing).await
}

pub(super) async fn ensure_legacy(client: &DynamoClient) -> Result<(), CallError> {
    ensure(client, &client.names.legacy, &LEGACY, client.options.billing).await
}

pub(super) async fn ensure_feeds(client: &DynamoClient) -> Result<(), CallError> {
    ensure(client, &client.names.sequences, &SEQUENCES, client.options.billing).await?;
    ensure(client, &client.names.feeds, &FEEDS, client.options.billing).await
}

/// Creates a month's table if it is missing, with the throughput of the month before.
pub(super) async fn ensure_month(client: &DynamoClient, month: Month) -> Result<(), CallError> {
    let name = client.names.messages(month);
    if describe(client, &name).await?.is_some() {
        return ensure(client, &name, &MESSAGES, client.options.billing).await;
    }
    let billing = billing_after(client, month.previous()).await?;
    ensure(client, &name, &MESSAGES, billing).await
}

/// The months that have a table, oldest first.
pub(super) async fn months(client: &DynamoClient) -> Result<Vec<Month>, CallError> {
    let tables = client.sdk.list_tables().into_paginator().items().send();
    let names = client.call("ListTables", ALL_TABLES, tables.collect::<Result<Vec<_>, _>>());
    let names = names.await?;
    let months = names.iter().filter_map(|name| client.names.month_of_table(name));
    Ok(months.collect::<BTreeSet<_>>().into_iter().collect())
}

/// Drops a month's table and waits for its end. Returns whether there was one.
pub(super) async fn drop_month(client: &DynamoClient, month: Month) -> Result<bool, CallError> {
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

pub(super) async fn describe(
    client: &DynamoClient,
    name: &str,
) -> Result<Option<TableDescription>, CallError> {
    let request = client.sdk.describe_table().table_name(name);
    match client.call("DescribeTable", name, request.send()).await {
        Ok(described) => Ok(described.table),
        Err(error) if error.is_table_missing() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Compares a table with its schema, and changes nothing.
pub(super) async fn look_at(
    client: &DynamoClient,
    name: &str,
    schema: &TableSchema,
) -> Result<(), CallError> {
    let table = describe(client, name).await?.ok_or_else(|| missing(name))?;
    let wrong = |what: &str| CallError::unreadable("DescribeTable", name, what);
    match table_state(&table) {
        TableState::Ready => schema.compare(&table).map_err(|what| wrong(&what))?,
        TableState::Wait(what) => return Err(wrong(what)),
        TableState::Stuck(status) => return Err(wrong(&format!("its state is {status}"))),
    }
    if schema.expires { ttl::look_at(client, name).await } else { Ok(()) }
}

/// The table in the error of a request on no single table.
pub(super) const ALL_TABLES: &str = "*";

async fn ensure(
    client: &DynamoClient,
    name: &str,
    schema: &TableSchema,
    billing: Billing,
) -> Result<(), CallError> {
    let table = until_active(client, name, schema, billing).await?;
    let wrong = |what: String| CallError::unreadable("DescribeTable", name, &what);
    schema.compare(&table).map_err(wrong)?;
    if schema.expires { ttl::ensure(client, name).await } else { Ok(()) }
}

/// Creates the table if it is missing and may be created, and waits until it is usable.
async fn until_active(
    client: &DynamoClient,
    name: &str,
    schema: &TableSchema,
    billing: Billing,
) -> Result<TableDescription, CallError> {
    let mut wait = Wait::new(client, "DescribeTable", name);
    loop {
        let Some(table) = describe(client, name).await? else {
            create(client, name, schema, billing).await?;
            wait.a_while("it is being made").await?;
            continue;
        };
        match table_state(&table) {
            TableState::Ready => return Ok(table),
            TableState::Wait(what) => wait.a_while(what).await?,
            TableState::Stuck(status) => {
                let what = format!("its state is {status}");
                return Err(CallError::unreadable("DescribeTable", name, &what));
            }
        }
    }
}

enum TableState {
    Ready,
    Wait(&'static str),
    Stuck(String),
}

fn table_state(table: &TableDescription) -> TableState {
    match table.table_status() {
        None | Some(TableStatus::Active | TableStatus::Updating) => TableState::Ready,
        Some(TableStatus::Creating) => TableState::Wait("it is being made"),
        Some(TableStatus::Deleting) => TableState::Wait("it is being deleted"),
        Some(other) => TableState::Stuck(other.as_str().to_owned()),
    }
}

/// Creates a table, unless another node just did.
async fn create(
    client: &DynamoClient,
    name: &str,
    schema: &TableSchema,
    billing: Billing,
) -> Result<(), CallError> {
    if !client.options.create_tables {
        return Err(missing(name));
    }
    let request = schema.describe_in(client.sdk.create_table().table_name(name), billing);
    let request = request.expect("each part of it has a name and a type");
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

pub(super) fn missing(name: &str) -> CallError {
    CallError::missing_table("DescribeTable", name, MISSING)
}

const MISSING: &str = "there is no such table: make it with `kalends tables create`";

pub(super) fn capacity_of(table: &TableDescription) -> Capacity {
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
pub(super) async fn set_throughput(
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
        match update(client, &name, throughput).await {
            Err(error) if error.is_table_in_use() => wait.a_while("it is being changed").await?,
            done => return done,
        }
    }
}

const ON_DEMAND: &str = "it is paid for on demand and has no throughput that could be set";

async fn update(
    client: &DynamoClient,
    name: &str,
    throughput: Throughput,
) -> Result<(), CallError> {
    let throughput = provisioned(throughput).expect("both fields are set");
    let request = client.sdk.update_table().table_name(name).provisioned_throughput(throughput);
    client.call("UpdateTable", name, request.send()).await.map(drop)
}

fn units(count: Option<i64>) -> u32 {
    count.and_then(|count| u32::try_from(count).ok()).unwrap_or(0)
}

/// The pauses between polls of an operation that the server is about to finish.
pub(super) struct Wait<'a> {
    client: &'a DynamoClient,
    operation: &'static str,
    table: &'a str,
    attempt: u32,
    waited: Duration,
}

impl<'a> Wait<'a> {
    pub(super) fn new(client: &'a DynamoClient, operation: &'static str, table: &'a str) -> Self {
        Self { client, operation, table, attempt: 0, waited: Duration::ZERO }
    }

    /// Waits longer each time, and fails after [`TABLE_WAIT_MAX`] in total.
    pub(super) async fn a_while(&mut self, what: &str) -> Result<(), CallError> {
        self.attempt += 1;
        let pause = self.client.pause_before(self.attempt);
        self.waited += pause;
        if self.waited > TABLE_WAIT_MAX {
            let seconds = TABLE_WAIT_MAX.as_secs();
            let text = format!("{what}, and was not done after {seconds} s: try again later");
            return Err(CallError::unreadable(self.operation, self.table, &text));
        }
        sleep(pause).await;
        Ok(())
    }
}
