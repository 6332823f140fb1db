//! What can be asked of a table: read, and set.

use aws_sdk_dynamodb::types::{BillingMode, TableDescription};
use state_machine::Month;

use super::client::DynamoClient;
use super::error::CallError;
use super::table_schema;
use super::tables::{self, Wait};
use crate::maintenance::{Capacity, Throughput};

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
    client: &DynamoClient,
    month: Month,
    throughput: Throughput,
) -> Result<(), CallError> {
    let name = client.names.messages(month);
    let mut wait = Wait::new(client, "UpdateTable", &name);
    loop {
        let table = tables::describe(client, &name).await?.ok_or_else(|| tables::missing(&name))?;
        match of(&table) {
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
    let throughput = table_schema::provisioned(throughput).expect("both fields are set");
    let request = client.sdk.update_table().table_name(name).provisioned_throughput(throughput);
    client.call("UpdateTable", name, request.send()).await.map(drop)
}

fn units(count: Option<i64>) -> u32 {
    count.and_then(|count| u32::try_from(count).ok()).unwrap_or(0)
}
