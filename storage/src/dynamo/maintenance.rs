//! The contract of maintenance: the operation of each method.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::TableDescription;
use state_machine::{Month, Uaid};

use super::client::DynamoClient;
use super::error::CallError;
use super::{
    Dynamo, copy_table, inactive_users, key_fingerprints, month_counts, preflight, tables,
};
use crate::maintenance::{
    CopyProgress, InactiveUser, InactiveUsers, MonthRange, PreflightCheck, RecordsByMonth,
    StoreAdmin, Table, TableStatus, Throughput,
};
use crate::store::{Cursor, StoreFuture};

impl StoreAdmin for Dynamo {
    fn preflight(&self, months: BTreeSet<Month>) -> StoreFuture<Vec<PreflightCheck>> {
        self.call(async move |client| preflight::run(&client, months).await)
    }

    fn tables(&self) -> StoreFuture<Vec<TableStatus>> {
        self.call(async move |client| statuses(&client).await)
    }

    fn records_by_month(&self, after: Option<Cursor>) -> StoreFuture<RecordsByMonth> {
        self.call(async move |client| month_counts::count(&client, after).await)
    }

    fn inactive_users(
        &self,
        seen: MonthRange,
        after: Option<Cursor>,
    ) -> StoreFuture<InactiveUsers> {
        self.call(async move |client| inactive_users::find(&client, seen, after).await)
    }

    fn drop_inactive(&self, users: Vec<InactiveUser>) -> StoreFuture<usize> {
        self.call(async move |client| inactive_users::drop_unchanged(&client, users).await)
    }

    fn delete_uaids(&self, uaids: Vec<Uaid>) -> StoreFuture<()> {
        self.call(async move |client| inactive_users::drop_all(&client, uaids).await)
    }

    fn copy_rows(
        &self,
        from: Month,
        to: Month,
        after: Option<Cursor>,
    ) -> StoreFuture<CopyProgress> {
        self.call(async move |client| copy_table::copy(&client, from, to, after).await)
    }

    fn move_records(
        &self,
        from: Month,
        to: Month,
        after: Option<Cursor>,
    ) -> StoreFuture<CopyProgress> {
        self.call(async move |client| month_counts::rename(&client, from, to, after).await)
    }

    fn set_throughput(&self, month: Month, throughput: Throughput) -> StoreFuture<()> {
        self.call(async move |client| tables::set_throughput(&client, month, throughput).await)
    }

    fn key_fingerprints(&self) -> StoreFuture<BTreeSet<String>> {
        self.call(async move |client| key_fingerprints::read(&client).await)
    }

    fn put_key_fingerprints(
        &self,
        before: BTreeSet<String>,
        after: BTreeSet<String>,
    ) -> StoreFuture<bool> {
        self.call(async move |client| key_fingerprints::swap(&client, before, after).await)
    }
}

async fn statuses(client: &DynamoClient) -> Result<Vec<TableStatus>, CallError> {
    let months = tables::months(client).await?.into_iter().map(Table::Messages);
    let mut statuses = Vec::new();
    let others = [Table::Router, Table::Notifications, Table::Sequences, Table::Feeds];
    for table in others.into_iter().chain(months) {
        let name = match table {
            Table::Router => client.names.router.clone(),
            Table::Notifications => client.names.legacy.clone(),
            Table::Sequences => client.names.sequences.clone(),
            Table::Feeds => client.names.feeds.clone(),
            Table::Messages(month) => client.names.messages(month),
        };
        let there = tables::describe(client, &name).await?;
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
        capacity: tables::capacity_of(description),
    }
}
