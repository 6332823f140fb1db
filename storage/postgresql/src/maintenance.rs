//! The contract of maintenance: the operation of each method.

use std::collections::BTreeSet;
use std::sync::Arc;

use state_machine::{LastConnect, Month, RouterRecord, Time, Uaid};
use storage::copied_rows::{CopiedPage, CopiedRow};
use storage::maintenance::{
    Capacity, CopyProgress, ID_FLOOR_AHEAD_MAX, InactiveUsers, MarkedUser, MonthRange,
    PreflightCheck, RecordsByMonth, RepairClock, SnapshotStep, StoreAdmin, Table, TableStatus,
    Throughput, WaitingPage,
};
use storage::rules::records;
use storage::store::{Cursor, StoreError, StoreFuture, answered};

use crate::client::PostgresClient;
use crate::error::SqlError;
use crate::sql::{Columns, count, params};
use crate::{
    Postgres, copied_rows, inactive_users, messages, preflight, router, schema, waiting_counts,
};

/// Writes that are no agent's are in the order of this one.
const NO_AGENT: Uaid = Uaid([0; 16]);

impl StoreAdmin for Postgres {
    calls! {
        preflight(months: BTreeSet<Month>) -> Vec<PreflightCheck> =
            |client| preflight::run(client, months);

        risks() -> Vec<String> = |client| preflight::risks(client);

        tables() -> Vec<TableStatus> = |client| statuses(client);

        records_by_month(after: Option<Cursor>) -> RecordsByMonth =
            |client| records::count(client, after.as_ref());

        waiting_page(month: Month, after: Option<Cursor>) -> WaitingPage =
            |client| waiting_counts::page(client, month, after);

        delete_expired(now: Time) -> u64 = |client| messages::delete_expired(client, now);

        create_record(record: RouterRecord) -> bool = |client| router::create(client, record.into());

        inactive_users(seen: MonthRange, after: Option<Cursor>) -> InactiveUsers =
            |client| inactive_users::find(client, seen, after);

        mark_dropped(uaid: Uaid, seen: Option<LastConnect>) -> Option<MarkedUser> =
            |client| records::mark_dropped(client, uaid, seen);

        delete_rows(uaids: Vec<Uaid>, month: Month) -> bool =
            |client| inactive_users::delete_rows(client, uaids, month);

        delete_uaids(uaids: Vec<Uaid>) -> () = |client| router::drop_all(client, uaids);

        has_rows(month: Month) -> bool = |client| inactive_users::has_rows(client, month);

        copy_rows(from: Month, to: Month, after: Option<Cursor>) -> CopyProgress =
            |client| copied_rows::copy_month(client, from, to, after);

        move_records(from: Month, to: Month, after: Option<Cursor>) -> CopyProgress =
            |client| records::rename_month(client, from, to, after.as_ref());

        repair_records(clock: RepairClock, after: Option<Cursor>) -> CopyProgress =
            |client| records::repair(client, clock, after.as_ref());

        read_rows(table: Table, after: Option<Cursor>) -> CopiedPage =
            |client| copied_rows::read(client, table, after);

        count_rows(table: Table) -> u64 = |client| copied_rows::count(client, table);

        write_rows(table: Table, rows: Arc<Vec<CopiedRow>>) -> () =
            |client| copied_rows::write(client, table, rows);

        key_fingerprints() -> BTreeSet<String> = |client| fingerprints(client);

        put_key_fingerprints(before: BTreeSet<String>, after: BTreeSet<String>) -> bool =
            |client| swap_fingerprints(client, before, after);

        id_floor() -> Time = |client| id_floor(client);

        raise_id_floor(floor: Time) -> () = |client| raise_id_floor(client, floor);
    }

    fn set_throughput(&self, _month: Month, _throughput: Throughput) -> StoreFuture<()> {
        answered(Err(StoreError::Unsupported(
            "tables in PostgreSQL have no throughput: they give what the server can do",
        )))
    }

    fn snapshot(&self, _on_step: SnapshotStep) -> StoreFuture<()> {
        answered(Err(StoreError::Unsupported(
            "the tables are in PostgreSQL: use pg_dump or its continuous archiving, and copy keys.toml (docs/operations.md)",
        )))
    }
}

/// Of feeds only where there are some: they are as old as the router table.
async fn statuses(client: &PostgresClient) -> Result<Vec<TableStatus>, SqlError> {
    let months = schema::months(client).await?.into_iter().map(Table::Messages);
    let mut statuses = Vec::new();
    for table in Table::OF_NO_MONTH.into_iter().chain(months) {
        let name = match table {
            Table::Router => "router".to_owned(),
            Table::Notifications => "notifications".to_owned(),
            Table::Sequences => "sequences".to_owned(),
            Table::Feeds => "feed_keys".to_owned(),
            Table::Messages(month) => format!("messages_{month}"),
        };
        let query = client.names.query(SIZE, params![client.names.schema.as_str(), name.as_str()]);
        if let Some(row) = client.read(&query).await?.first() {
            let (estimated, bytes) = (row.number(0)?, row.number(1)?);
            let counted = client.names.query(&COUNT.replace("{name}", &name), params![COUNTED_MAX]);
            let items = count(&client.read(&counted).await?)?;
            let items = if items < COUNTED_MAX { items } else { items.max(estimated) };
            let is_of_feeds = matches!(table, Table::Sequences | Table::Feeds);
            if is_of_feeds && items == 0 {
                continue;
            }
            let (state, capacity) = ("active".to_owned(), Capacity::Unmetered);
            statuses.push(TableStatus { table, name, state, items, bytes, capacity });
        }
    }
    Ok(statuses)
}

async fn fingerprints(client: &PostgresClient) -> Result<BTreeSet<String>, SqlError> {
    let query = client.names.query("SELECT marks FROM {s}.state WHERE name = 'keys'", params![]);
    let rows = client.read(&query).await?;
    let marks = rows.first().map(|row| row.column::<Vec<String>>(0)).transpose()?;
    Ok(marks.into_iter().flatten().collect())
}

/// Replaces `before` by `after`. Returns whether they are `after` now.
async fn swap_fingerprints(
    client: &PostgresClient,
    before: BTreeSet<String>,
    after: BTreeSet<String>,
) -> Result<bool, SqlError> {
    let [before, after] = [before, after].map(|marks| marks.into_iter().collect::<Vec<_>>());
    let query = client.names.query(SWAP, params![before, after]);
    Ok(!client.write(NO_AGENT, query).await?.rows.is_empty())
}

async fn id_floor(client: &PostgresClient) -> Result<Time, SqlError> {
    let query =
        client.names.query("SELECT number FROM {s}.state WHERE name = 'id_floor'", params![]);
    client.read(&query).await.and_then(|rows| count(&rows)).map(Time)
}

async fn raise_id_floor(client: &PostgresClient, floor: Time) -> Result<(), SqlError> {
    let query = client.names.query(RAISE, params![floor, floor + ID_FLOOR_AHEAD_MAX]);
    client.write(NO_AGENT, query).await.map(drop)
}

/// Rows that are counted; more are estimated.
const COUNTED_MAX: u64 = 100_000;

const COUNT: &str = "SELECT count(*) FROM (SELECT 1 FROM {s}.{name} LIMIT $1) there";

/// Rows as they were estimated last, and all that the table occupies.
const SIZE: &str = "
    SELECT greatest(c.reltuples, 0)::bigint, pg_total_relation_size(c.oid)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2";

/// Sets are kept sorted.
const SWAP: &str = "
    UPDATE {s}.state SET marks = $2 WHERE name = 'keys' AND marks IN ($1, $2) RETURNING 1";

const RAISE: &str = "
    UPDATE {s}.state SET number = $1 WHERE name = 'id_floor' AND (number < $1 OR number > $2)";
