//! The contract of maintenance: the operation of each method.

use std::collections::BTreeSet;
use std::sync::Arc;

use aws_sdk_dynamodb::types::TableDescription;
use state_machine::{LastConnect, Month, RouterRecord, Time, Uaid};
use storage::copied_rows::{CopiedPage, CopiedRow};
use storage::maintenance::{
    CopyProgress, InactiveUsers, MarkedUser, MonthRange, PreflightCheck, RecordsByMonth,
    RepairClock, SnapshotStep, StoreAdmin, Table, TableStatus, Throughput, WaitingPage,
};
use storage::rules::records;
use storage::store::{Cursor, StoreError, StoreFuture, answered};

use crate::client::DynamoClient;
use crate::error::CallError;
use crate::{
    Dynamo, copied_rows, copy_table, dropped_users, id_floor, inactive_users, key_fingerprints,
    preflight, registration, tables,
};

impl StoreAdmin for Dynamo {
    calls! {
        preflight(months: BTreeSet<Month>) -> Vec<PreflightCheck> =
            |client| preflight::run(client, months);

        tables() -> Vec<TableStatus> = |client| statuses(client);

        records_by_month(after: Option<Cursor>) -> RecordsByMonth =
            |client| records::count(client, after.as_ref());

        create_record(record: RouterRecord) -> bool = |client| registration::create(client, record);

        inactive_users(seen: MonthRange, after: Option<Cursor>) -> InactiveUsers =
            |client| inactive_users::find(client, seen, after);

        mark_dropped(uaid: Uaid, seen: Option<LastConnect>) -> Option<MarkedUser> =
            |client| records::mark_dropped(client, uaid, seen);

        delete_rows(uaids: Vec<Uaid>, month: Month) -> bool =
            |client| dropped_users::delete_rows(client, uaids, month);

        delete_uaids(uaids: Vec<Uaid>) -> () = |client| dropped_users::delete_records(client, uaids);

        has_rows(month: Month) -> bool = |client| dropped_users::has_rows(client, month);

        copy_rows(from: Month, to: Month, after: Option<Cursor>) -> CopyProgress =
            |client| copy_table::copy(client, from, to, after);

        move_records(from: Month, to: Month, after: Option<Cursor>) -> CopyProgress =
            |client| records::rename_month(client, from, to, after.as_ref());

        repair_records(clock: RepairClock, after: Option<Cursor>) -> CopyProgress =
            |client| records::repair(client, clock, after.as_ref());

        read_rows(table: Table, after: Option<Cursor>) -> CopiedPage =
            |client| copied_rows::read(client, table, after);

        count_rows(table: Table) -> u64 = |client| copied_rows::count(client, table);

        write_rows(table: Table, rows: Arc<Vec<CopiedRow>>) -> () =
            |client| copied_rows::write(client, table, &rows);

        set_throughput(month: Month, throughput: Throughput) -> () =
            |client| tables::set_throughput(client, month, throughput);

        key_fingerprints() -> BTreeSet<String> = |client| key_fingerprints::read(client);

        put_key_fingerprints(before: BTreeSet<String>, after: BTreeSet<String>) -> bool =
            |client| key_fingerprints::swap(client, before, after);

        id_floor() -> Time = |client| id_floor::read(client);

        raise_id_floor(floor: Time) -> () = |client| id_floor::raise(client, floor);
    }

    /// The TTL of the tables deletes them.
    fn delete_expired(&self, _now: Time) -> StoreFuture<u64> {
        answered(Ok(0))
    }

    fn waiting_page(&self, _month: Month, _after: Option<Cursor>) -> StoreFuture<WaitingPage> {
        answered(Err(StoreError::Unsupported(
            "counting the messages of all user agents would read the whole table",
        )))
    }

    fn snapshot(&self, _on_step: SnapshotStep) -> StoreFuture<()> {
        answered(Err(StoreError::Unsupported(
            "the tables are in DynamoDB: use its point-in-time recovery, and copy keys.toml (docs/operations.md)",
        )))
    }
}

async fn statuses(client: &DynamoClient) -> Result<Vec<TableStatus>, CallError> {
    let months = tables::months(client).await?.into_iter().map(Table::Messages);
    let mut statuses = Vec::new();
    for table in Table::OF_NO_MONTH.into_iter().chain(months) {
        let name = client.names.table(table);
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
