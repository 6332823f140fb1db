//! All rows of a store, read without its engine.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use aws_sdk_dynamodb::types::AttributeValue;
use postgres_server::PostgresServer;
use rusqlite::Connection;
use rusqlite::types::Value;
use storage::copied_rows::CopiedRow;
use storage::maintenance::Table;

use super::samples;
use crate::harness::dynamo;

type Item = HashMap<String, AttributeValue>;

/// The rows of each table, as texts in order. The tables of months are one.
pub(super) type Dump = BTreeMap<String, Vec<String>>;

/// The first difference, if any, of two dumps that have the same tables.
pub(super) fn assert_same(found: &Dump, expected: &Dump) {
    let names = |dump: &Dump| dump.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected));
    for (table, rows) in expected {
        let wrong = found[table].iter().zip(rows).find(|(found, row)| found != row);
        assert_eq!(wrong, None, "{table}");
        assert_eq!(found[table].len(), rows.len(), "{table}");
    }
}

/// All rows of all tables in all files.
pub(super) fn files(dir: &Path) -> Dump {
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

/// All rows of all tables in a file.
pub(super) fn file(path: &Path) -> Dump {
    let mut dump = Dump::new();
    read_file(path, &mut dump).expect("it is a database");
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

/// Whether a row of a dump of files is a message of [`samples::EXPIRED`].
pub(super) fn is_expired(row: &str) -> bool {
    row.contains(&format!("{:?}", Value::Blob(samples::EXPIRED.0.into())))
}

/// All items of all tables but those that belong to a server.
pub(super) async fn tables(url: &str) -> Dump {
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

/// All rows of all tables of a schema.
pub(super) fn schema(database: &PostgresServer, schema: &str) -> Dump {
    let mut dump = Dump::new();
    let tables = format!("SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'");
    for table in database.rows(&tables).concat() {
        let of_month =
            ["agents", "channels", "messages"].into_iter().find(|it| table.starts_with(it));
        let rows = database.rows(&format!("SELECT it::text FROM {schema}.{table} it"));
        let of_all = dump.entry(of_month.unwrap_or(&table).to_owned()).or_default();
        of_all.extend(rows.concat());
    }
    dump.values_mut().for_each(|rows| rows.sort());
    dump
}

/// Compares counts with those of the samples. A table without a rule fails.
pub(super) fn assert_counts(dump: &Dump, rows: &[(Table, CopiedRow)]) {
    let count = |is_it: fn(&CopiedRow) -> bool| rows.iter().filter(|(_, row)| is_it(row)).count();
    for (table, found) in dump {
        let expected = match table.as_str() {
            "router" => count(|row| matches!(row, CopiedRow::Record(_))),
            "notifications" => count(|row| matches!(row, CopiedRow::Version(..))),
            "sequences" => count(|row| matches!(row, CopiedRow::Sequence(_))),
            "feed_keys" => count(|row| matches!(row, CopiedRow::Value { .. })),
            "receipts_expected" => count(|row| matches!(row, CopiedRow::ExpectedReceipt { .. })),
            "messages" => count(|row| matches!(row, CopiedRow::Message(..))),
            // The embedded engine marks with a row of channels that an agent is known, PostgreSQL with one of agents.
            "agents" => count(|row| matches!(row, CopiedRow::Channels(..))),
            "channels" => {
                let marks = if dump.contains_key("agents") { 0 } else { 1 };
                rows.iter().map(|(_, row)| channels(row, marks)).sum()
            }
            "id_floor" => 1,
            // Of the server itself, and derived from messages.
            "months" | "health" | "waiting" | "state" => continue,
            other => panic!("there is no sample of the table {other}"),
        };
        assert_eq!(found.len(), expected, "{table}");
    }
}

fn channels(row: &CopiedRow, marks: usize) -> usize {
    match row {
        CopiedRow::Channels(_, chids) => marks + chids.len(),
        _ => 0,
    }
}

/// Compares the counts of DynamoDB's tables, which have rows of several kinds.
pub(super) fn assert_items(dump: &Dump, rows: &[(Table, CopiedRow)]) {
    let count = |is_it: fn(Table) -> bool| rows.iter().filter(|(table, _)| is_it(*table)).count();
    for (table, found) in dump {
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
