//! Sizes of the tables, and what the nodes share beside them: fingerprints of keys, and the floor of message ids.

use std::collections::BTreeSet;

use state_machine::Time;
use storage::engine_calls;
use storage::maintenance::{Capacity, ID_FLOOR_AHEAD_MAX, Table, TableStatus};
use storage::networked::{MonthCalls, NodeCalls};
use storage::sql::rows::SqlRow;

use crate::client::{NO_AGENT, PostgresClient};
use crate::error::Result;
use crate::sql::{NONE, count, params};

/// Of feeds only where there are some: they are as old as the router table.
pub(crate) async fn statuses(client: &PostgresClient) -> Result<Vec<TableStatus>> {
    let months = client.months().await?.into_iter().map(Table::Messages);
    let mut statuses = Vec::new();
    for table in Table::OF_NO_MONTH.into_iter().chain(months) {
        let name = match table {
            Table::Router => "router".to_owned(),
            Table::Notifications => "notifications".to_owned(),
            Table::Sequences => "sequences".to_owned(),
            Table::Feeds => "feed_keys".to_owned(),
            Table::Messages(month) => format!("messages_{month}"),
        };
        let params = params![client.names.schema.as_str(), name.as_str()];
        if let Some(row) = client.read(None, SIZE, params).await?.first() {
            let (estimated, bytes) = (row.number(0)?, row.number(1)?);
            let counted = COUNT.replace("{name}", &name);
            let items = count(&client.read(None, &counted, params![COUNTED_MAX]).await?)?;
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

impl NodeCalls for PostgresClient {
    async fn key_fingerprints(&self) -> Result<BTreeSet<String>> {
        let rows = self.read(None, "SELECT marks FROM {s}.state WHERE name = 'keys'", NONE).await?;
        let marks = rows.first().map(|row| row.column::<Vec<String>>(0)).transpose()?;
        Ok(marks.into_iter().flatten().collect())
    }

    engine_calls! {
        put_key_fingerprints(before: BTreeSet<String>, after: BTreeSet<String>) -> bool =
            |client| async {
                let [before, after] = [before, after].map(Vec::from_iter);
                let swapped = client.write(NO_AGENT, None, SWAP, params![before, after]).await;
                swapped.map(|swapped| swapped.is_some())
            };

        id_floor() -> Time = |client| async { count(&client.read(None, FLOOR, NONE).await?).map(Time) };

        raise_id_floor(floor: Time) -> () = |client| async {
            let raised = client.write(NO_AGENT, None, RAISE, params![floor, floor + ID_FLOOR_AHEAD_MAX]);
            raised.await.map(drop)
        };
    }
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

const FLOOR: &str = "SELECT number FROM {s}.state WHERE name = 'id_floor'";

const RAISE: &str = "
    UPDATE {s}.state SET number = $1 WHERE name = 'id_floor' AND (number < $1 OR number > $2)";
