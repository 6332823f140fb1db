//! Tries the operations of a node on each table, in transactions that are rolled back.

use std::collections::BTreeSet;

use state_machine::{Chid, Month};
use storage::maintenance::{PREFLIGHT_UAID, PreflightCheck};
use storage::networked::MonthCalls;

use crate::channels;
use crate::client::PostgresClient;
use crate::error::SqlError;
use crate::sql::{Param, holds, params};

const CHID: Chid = Chid([0xde; 16]);

/// The statements of each table that is no month's, none of which needs a parameter. No feed has an empty name.
const TABLES: [(&str, &[&str]); 5] = [
    (
        "router",
        &[
            "INSERT INTO {s}.router VALUES (gen_uuid, 'preflight', NULL, 1, 0, '1970_01', NULL, NULL)",
            "UPDATE {s}.router SET connected_at = 2 WHERE uaid = gen_uuid",
            "SELECT 1 FROM {s}.router WHERE uaid = gen_uuid",
            "DELETE FROM {s}.router WHERE uaid = gen_uuid",
        ],
    ),
    (
        "notifications",
        &[
            "INSERT INTO {s}.notifications VALUES (gen_uuid, gen_uuid, '\\x00')",
            "SELECT 1 FROM {s}.notifications WHERE uaid = gen_uuid",
            "DELETE FROM {s}.notifications WHERE uaid = gen_uuid",
        ],
    ),
    (
        "sequences",
        &[
            "INSERT INTO {s}.sequences VALUES ('', 0, 0, 0)",
            "UPDATE {s}.sequences SET keys = 1 WHERE name = ''",
            "DELETE FROM {s}.sequences WHERE name = ''",
        ],
    ),
    (
        "feed_keys and receipts_expected",
        &[
            "INSERT INTO {s}.feed_keys VALUES ('', '', 1, NULL, NULL)",
            "DELETE FROM {s}.feed_keys WHERE feed = ''",
            "INSERT INTO {s}.receipts_expected VALUES ('', '', 0)",
            "DELETE FROM {s}.receipts_expected WHERE feed = ''",
        ],
    ),
    (
        "state and health",
        &[
            "UPDATE {s}.state SET number = number WHERE name = 'id_floor'",
            "INSERT INTO {s}.health VALUES (-1, 1)",
            "DELETE FROM {s}.health WHERE session = -1",
        ],
    ),
];

pub(crate) async fn run(
    client: &PostgresClient,
    months: BTreeSet<Month>,
) -> Result<Vec<PreflightCheck>, SqlError> {
    let uaid = format!("'{PREFLIGHT_UAID}'::uuid");
    let mut checks = Vec::new();
    for (what, statements) in TABLES {
        let statements: Vec<_> = statements
            .iter()
            .map(|statement| (statement.replace("gen_uuid", &uaid), Vec::new()))
            .collect();
        let tried = try_all(client, None, statements).await;
        checks.push(check(format!("read and write {what}"), tried)?);
    }
    let listed = client.months().await?;
    for month in months {
        let outcome = match listed.contains(&month) {
            true => try_all(client, Some(month), month_statements()).await,
            false => Err(SqlError::corrupt(
                "there is no such table: create it with `kalends tables create`",
            )),
        };
        checks.push(check(format!("read and write the tables of {month}"), outcome)?);
    }
    Ok(checks)
}

fn month_statements() -> Vec<(String, Vec<Param>)> {
    let owner = || params![PREFLIGHT_UAID];
    vec![
        (channels::ADD.to_owned(), params![PREFLIGHT_UAID, vec![CHID], false]),
        (
            "INSERT INTO {s}.messages_{m} VALUES ($1, $1, 0, $1, NULL, 0, 0, 0, NULL, NULL, NULL, NULL, 0, NULL, 0)"
                .to_owned(),
            owner(),
        ),
        ("SELECT 1 FROM {s}.messages_{m} WHERE uaid = $1".to_owned(), owner()),
        ("UPDATE {s}.messages_{m} SET offers = 1 WHERE uaid = $1".to_owned(), owner()),
        ("DELETE FROM {s}.messages_{m} WHERE uaid = $1".to_owned(), owner()),
        ("DELETE FROM {s}.channels_{m} WHERE uaid = $1".to_owned(), owner()),
        ("DELETE FROM {s}.agents_{m} WHERE uaid = $1".to_owned(), owner()),
    ]
}

/// Runs statements, and takes them back.
async fn try_all(
    client: &PostgresClient,
    month: Option<Month>,
    statements: Vec<(String, Vec<Param>)>,
) -> Result<(), SqlError> {
    let transaction = client.begin().await?;
    let mut tried = Ok(());
    for (statement, params) in statements {
        let done = match month {
            Some(month) => transaction.run_month(month, &statement, params).await,
            None => transaction.run(&statement, params).await,
        };
        if let Err(error) = done {
            tried = Err(error);
            break;
        }
    }
    transaction.roll_back().await;
    tried
}

/// An error of the server is the result of a check; one of the connection is an error of the call.
fn check(what: String, tried: Result<(), SqlError>) -> Result<PreflightCheck, SqlError> {
    match tried {
        Err(error) if error.ends_connection() => Err(error),
        tried => Ok(PreflightCheck { what, outcome: tried.map_err(|error| error.to_string()) }),
    }
}

/// Settings of the server with which an answered write can be lost, each with what can be lost.
pub(crate) async fn risks(client: &PostgresClient) -> Result<Vec<String>, SqlError> {
    let commit = "SELECT current_setting('synchronous_commit') = 'off'";
    let mut risks = Vec::new();
    for (statement, risk) in [(commit, OF_COMMIT), (ASYNCHRONOUS, OF_STANDBYS)] {
        let rows = client.read(statement, params![]).await?;
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
