//! The tables themselves: made, looked at, listed, dropped.
//!
//! Two nodes may make or drop a table at the same time: both succeed. What takes the server a while is waited for, up
//! to [`TABLE_WAIT_MAX`].

use std::time::Duration;

use aws_sdk_dynamodb::types::{TableDescription, TableStatus};
use state_machine::Month;
use tokio::time::sleep;

use super::error::CallError;
use super::link::Link;
use super::options::Billing;
use super::shapes::{FEEDS, LEGACY, MESSAGES, ROUTER, SEQUENCES, Shape};
use super::{capacity, ttl};
use crate::upkeep::Capacity;

/// How long a table may take to be made or dropped. AWS needs some ten seconds.
pub(super) const TABLE_WAIT_MAX: Duration = Duration::from_secs(120);

/// Makes the router table if it is not there and tables may be made.
pub(super) async fn ensure_router(link: &Link) -> Result<(), CallError> {
    ensure(link, link.names.router(), &ROUTER, link.options.billing).await
}

/// Makes the table of SimplePush notifications if it is not there and tables may be made.
pub(super) async fn ensure_legacy(link: &Link) -> Result<(), CallError> {
    ensure(link, link.names.legacy(), &LEGACY, link.options.billing).await
}

/// Makes the tables of the feeds if they are not there and tables may be made.
pub(super) async fn ensure_feeds(link: &Link) -> Result<(), CallError> {
    ensure(link, link.names.sequences(), &SEQUENCES, link.options.billing).await?;
    ensure(link, link.names.feeds(), &FEEDS, link.options.billing).await
}

/// Makes a month's table if it is not there and tables may be made. Its throughput is that of the
/// month before, where that has one.
pub(super) async fn ensure_month(link: &Link, month: Month) -> Result<(), CallError> {
    let name = link.names.messages(month);
    if describe(link, &name).await?.is_some() {
        return ensure(link, &name, &MESSAGES, link.options.billing).await;
    }
    let billing = billing_after(link, month.previous()).await?;
    ensure(link, &name, &MESSAGES, billing).await
}

/// The months that have a table, oldest first.
pub(super) async fn months(link: &Link) -> Result<Vec<Month>, CallError> {
    let mut months = Vec::new();
    let mut after = None;
    loop {
        let request = link.client.list_tables().set_exclusive_start_table_name(after.clone());
        let page = link.call("ListTables", ALL_TABLES, request.send()).await?;
        months.extend(page.table_names().iter().filter_map(|name| link.names.month_of_table(name)));
        match page.last_evaluated_table_name {
            Some(last) => after = Some(last),
            None => break,
        }
    }
    months.sort_unstable();
    Ok(months)
}

/// Drops a month's table and waits until it is gone. Answers whether there was one.
pub(super) async fn drop_month(link: &Link, month: Month) -> Result<bool, CallError> {
    let name = link.names.messages(month);
    let mut wait = Wait::new(link, "DeleteTable", &name);
    loop {
        let request = link.client.delete_table().table_name(&name);
        match link.call("DeleteTable", &name, request.send()).await {
            Ok(_going) => break,
            Err(error) if error.is_table_missing() => return Ok(false),
            Err(error) if error.is_table_in_use() => wait.a_while("it is being changed").await?,
            Err(error) => return Err(error),
        }
    }
    while describe(link, &name).await?.is_some() {
        wait.a_while("it is being deleted").await?;
    }
    Ok(true)
}

/// What the server says of a table; none if there is none.
pub(super) async fn describe(
    link: &Link,
    name: &str,
) -> Result<Option<TableDescription>, CallError> {
    let request = link.client.describe_table().table_name(name);
    match link.call("DescribeTable", name, request.send()).await {
        Ok(described) => Ok(described.table),
        Err(error) if error.is_table_missing() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Looks whether a table is as it should be, without making or mending anything.
pub(super) async fn look_at(link: &Link, name: &str, shape: &Shape) -> Result<(), CallError> {
    let table = describe(link, name).await?.ok_or_else(|| missing(name))?;
    let wrong = |what: &str| CallError::unreadable("DescribeTable", name, what);
    match step(&table) {
        Step::Ready => shape.compare(&table).map_err(|what| wrong(&what))?,
        Step::Wait(what) => return Err(wrong(what)),
        Step::Stuck(status) => return Err(wrong(&format!("its state is {status}"))),
    }
    if shape.expires { ttl::look_at(link, name).await } else { Ok(()) }
}

/// Stands in an error where a request is about no table of its own.
pub(super) const ALL_TABLES: &str = "*";

async fn ensure(link: &Link, name: &str, shape: &Shape, billing: Billing) -> Result<(), CallError> {
    let table = until_active(link, name, shape, billing).await?;
    let wrong = |what: String| CallError::unreadable("DescribeTable", name, &what);
    shape.compare(&table).map_err(wrong)?;
    if shape.expires { ttl::ensure(link, name).await } else { Ok(()) }
}

/// Makes the table if need be, and waits until it can be used.
async fn until_active(
    link: &Link,
    name: &str,
    shape: &Shape,
    billing: Billing,
) -> Result<TableDescription, CallError> {
    let mut wait = Wait::new(link, "DescribeTable", name);
    loop {
        let Some(table) = describe(link, name).await? else {
            create(link, name, shape, billing).await?;
            wait.a_while("it is being made").await?;
            continue;
        };
        match step(&table) {
            Step::Ready => return Ok(table),
            Step::Wait(what) => wait.a_while(what).await?,
            Step::Stuck(status) => {
                let what = format!("its state is {status}");
                return Err(CallError::unreadable("DescribeTable", name, &what));
            }
        }
    }
}

/// What is to be done about the state of a table.
enum Step {
    Ready,
    Wait(&'static str),
    Stuck(String),
}

fn step(table: &TableDescription) -> Step {
    match table.table_status() {
        None | Some(TableStatus::Active | TableStatus::Updating) => Step::Ready,
        Some(TableStatus::Creating) => Step::Wait("it is being made"),
        Some(TableStatus::Deleting) => Step::Wait("it is being deleted"),
        Some(other) => Step::Stuck(other.as_str().to_owned()),
    }
}

/// Asks for a table. That somebody else has just done so is as good.
async fn create(link: &Link, name: &str, shape: &Shape, billing: Billing) -> Result<(), CallError> {
    if !link.options.create_tables {
        return Err(missing(name));
    }
    let request = shape.describe_in(link.client.create_table().table_name(name), billing);
    let request = request.expect("each part of it has a name and a type");
    match link.call("CreateTable", name, request.send()).await {
        Err(error) if !error.is_table_in_use() => Err(error),
        _ => Ok(()),
    }
}

/// How a new table is paid for, next to the one of a month that may exist.
async fn billing_after(link: &Link, month: Month) -> Result<Billing, CallError> {
    let table = match link.options.billing {
        Billing::OnDemand => None,
        Billing::Provisioned(_) => describe(link, &link.names.messages(month)).await?,
    };
    Ok(match table.as_ref().map(capacity::of) {
        Some(Capacity::Provisioned(throughput)) => Billing::Provisioned(throughput),
        _ => link.options.billing,
    })
}

/// The error of a table that is not there and must not be made.
pub(super) fn missing(name: &str) -> CallError {
    CallError::missing_table("DescribeTable", name, MISSING)
}

const MISSING: &str = "there is no such table: make it with `kalends tables ensure`";

/// Looks again and again at something that the server is about to finish.
pub(super) struct Wait<'a> {
    link: &'a Link,
    operation: &'static str,
    table: &'a str,
    attempt: u32,
    waited: Duration,
}

impl<'a> Wait<'a> {
    pub(super) fn new(link: &'a Link, operation: &'static str, table: &'a str) -> Self {
        Self { link, operation, table, attempt: 0, waited: Duration::ZERO }
    }

    /// Waits a little longer than the last time; an error once it was too long altogether.
    pub(super) async fn a_while(&mut self, what: &str) -> Result<(), CallError> {
        self.attempt += 1;
        let pause = self.link.pause_before(self.attempt);
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
