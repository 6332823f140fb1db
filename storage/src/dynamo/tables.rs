//! The tables themselves: made, looked at, listed, dropped.
//!
//! Two nodes may make or drop a table at the same time: both succeed. What takes the server a while is waited for, up
//! to [`TABLE_WAIT_MAX`].

use std::time::Duration;

use aws_sdk_dynamodb::types::{TableDescription, TableStatus};
use state_machine::Month;
use tokio::time::sleep;

use super::client::DynamoClient;
use super::error::CallError;
use super::options::Billing;
use super::table_schema::{FEEDS, LEGACY, MESSAGES, ROUTER, SEQUENCES, TableSchema};
use super::{capacity, ttl};
use crate::maintenance::Capacity;

/// How long a table may take to be made or dropped. AWS needs some ten seconds.
pub(super) const TABLE_WAIT_MAX: Duration = Duration::from_secs(120);

/// Makes the router table if it is not there and tables may be made.
pub(super) async fn ensure_router(client: &DynamoClient) -> Result<(), CallError> {
    ensure(client, client.names.router(), &ROUTER, client.options.billing).await
}

/// Makes the table of SimplePush notifications if it is not there and tables may be made.
pub(super) async fn ensure_legacy(client: &DynamoClient) -> Result<(), CallError> {
    ensure(client, client.names.legacy(), &LEGACY, client.options.billing).await
}

/// Makes the tables of the feeds if they are not there and tables may be made.
pub(super) async fn ensure_feeds(client: &DynamoClient) -> Result<(), CallError> {
    ensure(client, client.names.sequences(), &SEQUENCES, client.options.billing).await?;
    ensure(client, client.names.feeds(), &FEEDS, client.options.billing).await
}

/// Makes a month's table if it is not there and tables may be made. Its throughput is that of the
/// month before, where that has one.
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
    let mut months = Vec::new();
    let mut after = None;
    loop {
        let request = client.sdk.list_tables().set_exclusive_start_table_name(after.clone());
        let page = client.call("ListTables", ALL_TABLES, request.send()).await?;
        months
            .extend(page.table_names().iter().filter_map(|name| client.names.month_of_table(name)));
        match page.last_evaluated_table_name {
            Some(last) => after = Some(last),
            None => break,
        }
    }
    months.sort_unstable();
    Ok(months)
}

/// Drops a month's table and waits until it is gone. Answers whether there was one.
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

/// What the server says of a table; none if there is none.
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

/// Looks whether a table is as it should be, without making or mending anything.
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

/// Stands in an error where a request is about no table of its own.
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

/// Makes the table if need be, and waits until it can be used.
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

/// What is to be done about the state of a table.
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

/// Asks for a table. That somebody else has just done so is as good.
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

/// How a new table is paid for, next to the one of a month that may exist.
async fn billing_after(client: &DynamoClient, month: Month) -> Result<Billing, CallError> {
    let table = match client.options.billing {
        Billing::OnDemand => None,
        Billing::Provisioned(_) => describe(client, &client.names.messages(month)).await?,
    };
    Ok(match table.as_ref().map(capacity::of) {
        Some(Capacity::Provisioned(throughput)) => Billing::Provisioned(throughput),
        _ => client.options.billing,
    })
}

/// The error of a table that is not there and must not be made.
pub(super) fn missing(name: &str) -> CallError {
    CallError::missing_table("DescribeTable", name, MISSING)
}

const MISSING: &str = "there is no such table: make it with `kalends tables create`";

/// Looks again and again at something that the server is about to finish.
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

    /// Waits a little longer than the last time; an error once it was too long altogether.
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
