//! What can be asked of a table: read, and set.

use aws_sdk_dynamodb::types::{BillingMode, TableDescription};
use state_machine::Month;

use super::error::CallError;
use super::link::Link;
use super::shapes;
use super::tables::{self, Wait};
use crate::upkeep::{Capacity, Throughput};

/// How a table is paid for.
pub(super) fn of(table: &TableDescription) -> Capacity {
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

/// Sets the throughput of a month's table; that it is so already is as good.
pub(super) async fn set(
    link: &Link,
    month: Month,
    throughput: Throughput,
) -> Result<(), CallError> {
    let name = link.names.messages(month);
    let mut wait = Wait::new(link, "UpdateTable", &name);
    loop {
        let table = tables::describe(link, &name).await?.ok_or_else(|| tables::missing(&name))?;
        match of(&table) {
            Capacity::Provisioned(there) if there == throughput => return Ok(()),
            Capacity::Provisioned(_) => {}
            Capacity::OnDemand | Capacity::Unmetered => {
                return Err(CallError::unreadable("UpdateTable", &name, ON_DEMAND));
            }
        }
        match update(link, &name, throughput).await {
            Err(error) if error.is_table_in_use() => wait.a_while("it is being changed").await?,
            done => return done,
        }
    }
}

const ON_DEMAND: &str = "it is paid for on demand and has no throughput that could be set";

async fn update(link: &Link, name: &str, throughput: Throughput) -> Result<(), CallError> {
    let throughput = shapes::provisioned(throughput).expect("both fields are set");
    let request = link.client.update_table().table_name(name).provisioned_throughput(throughput);
    link.call("UpdateTable", name, request.send()).await.map(drop)
}

fn units(count: Option<i64>) -> u32 {
    count.and_then(|count| u32::try_from(count).ok()).unwrap_or(0)
}
