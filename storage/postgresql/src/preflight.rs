//! Tries the operations of a node on each table, in transactions that are rolled back.

use std::collections::BTreeSet;

use state_machine::Month;
use storage::maintenance::{PREFLIGHT_UAID, PreflightCheck};
use storage::networked::MonthCalls;

use crate::client::PostgresClient;
use crate::error::{Result, SqlError};
use crate::sql::{NONE, holds};

/// A row of each table that a node adds rows to, and what finds it. No feed has an empty name.
const ROWS: [(&str, &str, &str); 6] = [
    ("router", "{uaid}, 'preflight', NULL, 1, 0, '1970_01', NULL, NULL", "uaid = {uaid}"),
    ("notifications", "{uaid}, {uaid}, '\\x00'", "uaid = {uaid}"),
    ("sequences", "'', 0, 0, 0", "name = ''"),
    ("feed_keys", "'', '', 1, NULL, NULL", "feed = ''"),
    ("receipts_expected", "'', '', 0", "feed = ''"),
    ("health", "-1, 1", "session = -1"),
];

const WRITE: &str = "
    INSERT INTO {s}.{table} VALUES ({row});
    UPDATE {s}.{table} SET {key} WHERE {key};
    DELETE FROM {s}.{table} WHERE {key}";

const STATE: &str = "UPDATE {s}.state SET number = number WHERE name = 'id_floor'";

const MONTH: &str = "
    SELECT {s}.add_channels_{m}({uaid}, ARRAY[{uaid}], false);
    SELECT {s}.add_messages_{m}(
        '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', 0, 0, 0, 0);
    INSERT INTO {s}.messages_{m} VALUES (
        {uaid}, {uaid}, 0, {uaid}, NULL, 0, 0, 0, NULL, NULL, NULL, NULL, 0, NULL, 0);
    SELECT 1 FROM {s}.messages_{m} WHERE uaid = {uaid};
    UPDATE {s}.messages_{m} SET offers = 1 WHERE uaid = {uaid};
    DELETE FROM {s}.messages_{m} WHERE uaid = {uaid};
    DELETE FROM {s}.channels_{m} WHERE uaid = {uaid};
    DELETE FROM {s}.agents_{m} WHERE uaid = {uaid}";

pub(crate) async fn run(
    client: &PostgresClient,
    months: BTreeSet<Month>,
) -> Result<Vec<PreflightCheck>> {
    let mut checks = Vec::new();
    let of_rows = ROWS.iter().map(|(table, row, key)| {
        let statements = WRITE.replace("{table}", table).replace("{row}", row);
        (*table, statements.replace("{key}", key))
    });
    for (table, statements) in of_rows.chain([("state", STATE.to_owned())]) {
        let tried = try_all(client, client.names.text(None, &statements)).await;
        checks.push(check(format!("read and write {table}"), tried)?);
    }
    let listed = client.months().await?;
    for month in months {
        let outcome = match listed.contains(&month) {
            true => try_all(client, client.names.text(Some(month), MONTH)).await,
            false => Err(SqlError::corrupt(
                "there is no such table: create it with `kalends tables create`",
            )),
        };
        checks.push(check(format!("read and write the tables of {month}"), outcome)?);
    }
    Ok(checks)
}

/// Runs statements, and takes them back.
async fn try_all(client: &PostgresClient, statements: String) -> Result<()> {
    let statements = statements.replace("{uaid}", &format!("'{PREFLIGHT_UAID}'::uuid"));
    let transaction = client.begin().await?;
    let tried = transaction.connection.execute(&statements).await;
    let _taken_back = transaction.end::<()>(Err(SqlError::conflict())).await;
    tried
}

/// An error of the server is the result of a check; one of the connection is an error of the call.
fn check(what: String, tried: Result<()>) -> Result<PreflightCheck> {
    match tried {
        Err(error) if error.ends_connection() => Err(error),
        tried => Ok(PreflightCheck { what, outcome: tried.map_err(|error| error.to_string()) }),
    }
}

/// Settings of the server with which an answered write can be lost, each with what can be lost.
pub(crate) async fn risks(client: &PostgresClient) -> Result<Vec<String>> {
    let commit = "SELECT current_setting('synchronous_commit') = 'off'";
    let mut risks = Vec::new();
    for (statement, risk) in [(commit, OF_COMMIT), (ASYNCHRONOUS, OF_STANDBYS)] {
        let rows = client.read(None, statement, NONE).await?;
        if holds(&rows)? {
            risks.push(risk.to_owned());
        }
    }
    Ok(risks)
}

const OF_COMMIT: &str = "synchronous_commit is off: what was answered in the last second before a crash of PostgreSQL is lost";

const OF_STANDBYS: &str =
    "the standbys are asynchronous: what they have not received is lost if one of them takes over";

/// Whether there are standbys, and no commit waits for one of them.
const ASYNCHRONOUS: &str = "
    SELECT EXISTS (SELECT 1 FROM pg_stat_replication WHERE sync_state = 'async')
        AND NOT EXISTS (SELECT 1 FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))";
