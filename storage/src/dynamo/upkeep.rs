//! The upkeep of the DynamoDB engine, method by method.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::TableDescription;
use state_machine::{Month, Uaid};

use super::error::CallError;
use super::link::Link;
use super::{Dynamo, capacity, census, copying, key_marks, preflight, stale, tables};
use crate::contract::{Answer, Cursor};
use crate::upkeep::{
    Census, Check, Copied, Months, StaleUser, StaleUsers, Table, TableStatus, Throughput, Upkeep,
};

impl Upkeep for Dynamo {
    fn preflight(&self, months: BTreeSet<Month>) -> Answer<Vec<Check>> {
        self.ask(async move |link| preflight::run(&link, months).await)
    }

    fn tables(&self) -> Answer<Vec<TableStatus>> {
        self.ask(async move |link| statuses(&link).await)
    }

    fn census(&self, after: Option<Cursor>) -> Answer<Census> {
        self.ask(async move |link| census::count(&link, after).await)
    }

    fn stale_users(&self, seen: Months, after: Option<Cursor>) -> Answer<StaleUsers> {
        self.ask(async move |link| stale::find(&link, seen, after).await)
    }

    fn drop_stale(&self, users: Vec<StaleUser>) -> Answer<usize> {
        self.ask(async move |link| stale::drop_unchanged(&link, users).await)
    }

    fn delete_uaids(&self, uaids: Vec<Uaid>) -> Answer<()> {
        self.ask(async move |link| stale::drop_all(&link, uaids).await)
    }

    fn copy_rows(&self, from: Month, to: Month, after: Option<Cursor>) -> Answer<Copied> {
        self.ask(async move |link| copying::copy(&link, from, to, after).await)
    }

    fn move_records(&self, from: Month, to: Month, after: Option<Cursor>) -> Answer<Copied> {
        self.ask(async move |link| census::rename(&link, from, to, after).await)
    }

    fn set_throughput(&self, month: Month, throughput: Throughput) -> Answer<()> {
        self.ask(async move |link| capacity::set(&link, month, throughput).await)
    }

    fn key_marks(&self) -> Answer<BTreeSet<String>> {
        self.ask(async move |link| key_marks::read(&link).await)
    }

    fn put_key_marks(&self, before: BTreeSet<String>, after: BTreeSet<String>) -> Answer<bool> {
        self.ask(async move |link| key_marks::swap(&link, before, after).await)
    }
}

async fn statuses(link: &Link) -> Result<Vec<TableStatus>, CallError> {
    let months = tables::months(link).await?.into_iter().map(Table::Messages);
    let mut statuses = Vec::new();
    let others = [Table::Router, Table::Notifications, Table::Sequences, Table::Feeds];
    for table in others.into_iter().chain(months) {
        let name = match table {
            Table::Router => link.names.router().to_owned(),
            Table::Notifications => link.names.legacy().to_owned(),
            Table::Sequences => link.names.sequences().to_owned(),
            Table::Feeds => link.names.feeds().to_owned(),
            Table::Messages(month) => link.names.messages(month),
        };
        let there = tables::describe(link, &name).await?;
        statuses.extend(there.map(|description| status(table, name, &description)));
    }
    Ok(statuses)
}

fn status(table: Table, name: String, description: &TableDescription) -> TableStatus {
    let state = description.table_status().map_or("unknown", |status| status.as_str());
    let count = |count: Option<i64>| count.and_then(|count| count.try_into().ok()).unwrap_or(0);
    TableStatus {
        table,
        name,
        state: state.to_lowercase(),
        items: count(description.item_count()),
        bytes: count(description.table_size_bytes()),
        capacity: capacity::of(description),
    }
}
