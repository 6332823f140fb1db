//! Samples of each kind of rows, copied whole both ways, and counted by SQLite and DynamoDB themselves: a row that the
//! copy's own queries pass over is found.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_sdk_dynamodb::types::AttributeValue;
use rusqlite::Connection;
use rusqlite::types::Value;
use state_machine::Time;
use storage::copied_rows::CopiedRow;
use storage::maintenance::Table;
use storage::{Store, StoreAdmin};
use storage_sqlite::{Embedded, EmbeddedOptions};

use super::{copied, id_floor, remove_store, samples};
use crate::harness::{Launch, Server, WireServer, dynamo, shared_keys};

type Item = HashMap<String, AttributeValue>;

/// The rows of each table, as texts in order.
type Dump = BTreeMap<String, Vec<String>>;

#[actix_web::test]
async fn rows_of_each_kind_are_copied_both_ways() {
    let (one, other) = (WireServer::start(), WireServer::start());
    let launch = Launch { keys: Some(shared_keys()), ..Launch::default() };
    let mut server = Server::launch(launch);
    assert!(server.terminate().success());
    let dir = server.data_dir();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is after 1970");
    let mut rows = samples::all(Time(now.as_millis() as u64));
    write(&dir, &rows).await;
    let written = files(&dir);
    assert_files(&written, &rows);
    let floor = id_floor(&dir).await;
    rows.retain(|(_, row)| !matches!(row, CopiedRow::Message(samples::EXPIRED, _)));

    copied("dynamodb", &dir, &one.url).await;
    let there = tables(&one.url).await;
    assert_tables(&there, &rows);
    remove_store(&dir);
    copied("embedded", &dir, &one.url).await;
    let back = files(&dir);
    assert_files(&back, &rows);
    assert!(id_floor(&dir).await >= floor, "no id is below a copied one");
    for (table, rows) in written.iter().filter(|(table, _)| *table != "id_floor") {
        let expired = format!("{:?}", Value::Blob(samples::EXPIRED.0.into()));
        let rows: Vec<_> = rows.iter().filter(|row| !row.contains(&expired)).collect();
        let wrong = back[table].iter().zip(rows).find(|(copied, row)| copied != row);
        assert_eq!(wrong, None, "{table}");
    }
    copied("dynamodb", &dir, &other.url).await;
    let again = tables(&other.url).await;
    for (table, rows) in &there {
        let wrong = again[table].iter().zip(rows).find(|(copied, row)| copied != row);
        assert_eq!(wrong, None, "{table}");
    }
}

async fn write(dir: &Path, rows: &[(Table, CopiedRow)]) {
    let store = Embedded::open(dir, &EmbeddedOptions::new(4096)).expect("the server has closed it");
    for table in rows.iter().map(|(table, _)| *table).collect::<BTreeSet<_>>() {
        if let Table::Messages(month) = table {
            store.ensure_month(month).await.expect("the store works");
        }
        let rows = rows.iter().filter(|(of, _)| *of == table).map(|(_, row)| row.clone());
        store.write_rows(table, Arc::new(rows.collect())).await.expect("the store works");
    }
    store.close().await.expect("the store closes");
}

/// Compares counts with those of the samples. A table without a rule fails.
fn assert_files(files: &Dump, rows: &[(Table, CopiedRow)]) {
    let count = |is_it: fn(&CopiedRow) -> bool| rows.iter().filter(|(_, row)| is_it(row)).count();
    for (table, found) in files {
        let expected = match table.as_str() {
            "router" => count(|row| matches!(row, CopiedRow::Record(_))),
            "notifications" => count(|row| matches!(row, CopiedRow::Version(..))),
            "sequences" => count(|row| matches!(row, CopiedRow::Sequence(_))),
            "feed_keys" => count(|row| matches!(row, CopiedRow::Value { .. })),
            "receipts_expected" => count(|row| matches!(row, CopiedRow::ExpectedReceipt { .. })),
            "messages" => count(|row| matches!(row, CopiedRow::Message(..))),
            "channels" => rows.iter().map(|(_, row)| channel_rows(row)).sum(),
            "id_floor" => 1,
            // Of the server itself, and derived from messages.
            "months" | "health" | "waiting" => continue,
            other => panic!("there is no sample of the table {other}"),
        };
        assert_eq!(found.len(), expected, "{table}");
    }
}

/// One marks the agent as known.
fn channel_rows(row: &CopiedRow) -> usize {
    match row {
        CopiedRow::Channels(_, chids) => 1 + chids.len(),
        _ => 0,
    }
}

/// Compares counts as [`assert_files`] does.
fn assert_tables(tables: &Dump, rows: &[(Table, CopiedRow)]) {
    let count = |is_it: fn(Table) -> bool| rows.iter().filter(|(table, _)| is_it(*table)).count();
    for (table, found) in tables {
        let expected = match table.as_str() {
            "router" => count(|table| table == Table::Router),
            "storage" => count(|table| table == Table::Notifications),
            "sequences" => count(|table| table == Table::Sequences),
            "feeds" => count(|table| table == Table::Feeds),
            "messages" => count(|table| matches!(table, Table::Messages(_))),
            other => panic!("there is no sample of the table {other}"),
        };
        assert_eq!(found.len(), expected, "{table}");
    }
}

/// All rows of all tables in all files, by the name of the table.
fn files(dir: &Path) -> Dump {
    let mut dump = Dump::new();
    for entry in fs::read_dir(dir).expect("it exists") {
        let path = entry.expect("it can be listed").path();
        if path.extension().is_some_and(|extension| extension == "db") {
            read_file(&path, &mut dump).expect("it is a database");
        }
    }
    dump.values_mut().for_each(|rows| rows.sort());
    dump
}

fn read_file(path: &Path, dump: &mut Dump) -> rusqlite::Result<()> {
    let conn = Connection::open(path)?;
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
    let tables = conn
        .prepare(tables)?
        .query_map([], |row| row.get::<_, String>(0))?
        .collect::<Result<Vec<_>, _>>()?;
    for table in tables {
        let mut all = conn.prepare(&format!("SELECT * FROM {table}"))?;
        let columns = all.column_count();
        let rows = all.query_map([], |row| {
            let values = (0..columns).map(|column| row.get::<_, Value>(column));
            Ok(format!("{:?}", values.collect::<Result<Vec<_>, _>>()?))
        })?;
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        dump.entry(table).or_default().extend(rows);
    }
    Ok(())
}

/// All items of all tables but those that belong to a server, by the name of the table without its month.
async fn tables(url: &str) -> Dump {
    let (client, mut dump) = (dynamo::client(url), Dump::new());
    let listed = client.list_tables().send().await.expect("the server answers");
    for table in listed.table_names() {
        let items = client.scan().table_name(table).into_paginator().items().send();
        let items = items.collect::<Result<Vec<_>, _>>().await.expect("the server answers");
        let is_data =
            |item: &&Item| item.get("uaid") != Some(&AttributeValue::S("keys".to_owned()));
        let items = items.iter().filter(is_data).map(item_text);
        let name = if table.starts_with("message_") { "messages" } else { table };
        dump.entry(name.to_owned()).or_default().extend(items);
    }
    dump.values_mut().for_each(|items| items.sort());
    dump
}

/// The attributes in the order of their names.
fn item_text(item: &Item) -> String {
    let attributes = item.iter().map(|(name, value)| match value {
        AttributeValue::M(inner) => format!("{name}: {{{}}}", item_text(inner)),
        value => format!("{name}: {value:?}"),
    });
    let attributes: BTreeSet<_> = attributes.collect();
    attributes.into_iter().collect::<Vec<_>>().join(", ")
}
