//! Reads the message tables directly, without the faults of the proxy.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;

use super::store::{Database, Store};
use crate::harness::{dynamo, unix_now_s};

/// A client of the store that reads whole tables.
pub(super) struct Auditor {
    tables: Tables,
    /// Seconds by which the connection node whose clock is the latest is ahead.
    ahead_s: i64,
}

enum Tables {
    DynamoDb(Client),
    PostgreSql(Arc<Database>),
}

/// A message row: its version, and when it expires, if it does.
type MessageRow = (String, Option<u64>);

/// The contents of the message tables.
pub(super) struct Audit {
    /// The time before the first read.
    pub(super) begun_at: Instant,
    /// The versions of all message rows.
    pub(super) rows: BTreeSet<String>,
    /// The versions of rows that have not expired, by the clock of any connection node.
    pub(super) alive: BTreeSet<String>,
}

type Item = HashMap<String, AttributeValue>;

impl Auditor {
    /// Reads the store, or the DynamoDB server at this URL.
    pub(super) fn of(store: &Store, url: &str, ahead_s: i64) -> Self {
        let tables = match store {
            Store::DynamoDb => Tables::DynamoDb(dynamo::client(url)),
            Store::PostgreSql(database) => Tables::PostgreSql(database.clone()),
        };
        Self { tables, ahead_s }
    }

    /// Reads all message rows. A version that is missing was absent at some moment after
    /// `begun_at`.
    pub(super) async fn audit(&self) -> Audit {
        let _turn = match &self.tables {
            Tables::DynamoDb(_) => None,
            Tables::PostgreSql(database) => Some(database.turn.lock().await),
        };
        let (begun_at, now_s) = (Instant::now(), unix_now_s().saturating_add_signed(self.ahead_s));
        let mut audit = Audit { begun_at, rows: BTreeSet::new(), alive: BTreeSet::new() };
        for (version, expiry_s) in self.tables.messages().await {
            if expiry_s.is_none_or(|expiry_s| expiry_s > now_s) {
                audit.alive.insert(version.clone());
            }
            audit.rows.insert(version);
        }
        audit
    }

    /// The uaids of all router records.
    pub(super) async fn records(&self) -> BTreeSet<String> {
        match &self.tables {
            Tables::DynamoDb(client) => {
                let items = scan(client, "router", "uaid").await;
                items.iter().filter_map(|item| text(item, "uaid")).collect()
            }
            Tables::PostgreSql(database) => {
                let uaids =
                    format!("SELECT replace(uaid::text, '-', '') FROM {}.router", database.schema);
                database.rows(uaids).await.into_iter().flatten().collect()
            }
        }
    }
}

impl Tables {
    async fn messages(&self) -> Vec<MessageRow> {
        match self {
            Self::DynamoDb(client) => messages_in_dynamodb(client).await,
            Self::PostgreSql(database) => messages_in_postgresql(database).await,
        }
    }
}

async fn messages_in_dynamodb(client: &Client) -> Vec<MessageRow> {
    let tables = client.list_tables().send().await.expect("the store answers");
    let mut messages = Vec::new();
    for table in tables.table_names().iter().filter(|name| name.starts_with("message_")) {
        // A row that lists channels has no version.
        messages.extend(scan(client, table, "updateid, expiry").await.iter().filter_map(|item| {
            let expiry = item.get("expiry").and_then(|expiry| expiry.as_n().ok()?.parse().ok());
            Some((text(item, "updateid")?, expiry))
        }));
    }
    messages
}

async fn scan(client: &Client, table: &str, attributes: &str) -> Vec<Item> {
    let scan = client.scan().table_name(table).consistent_read(true);
    let mut pages = scan.projection_expression(attributes).into_paginator().items().send();
    let mut items = Vec::new();
    while let Some(item) = pages.next().await {
        items.push(item.expect("the store answers"));
    }
    items
}

async fn messages_in_postgresql(database: &Arc<Database>) -> Vec<MessageRow> {
    let schema = &database.schema;
    let tables = format!(
        "SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' AND tablename LIKE 'messages\\_%'"
    );
    let selects = database.rows(tables).await.into_iter().flatten().map(|table| {
        format!("SELECT replace(id::text, '-', ''), expires_at / 1000 FROM {schema}.{table}")
    });
    let messages = selects.collect::<Vec<_>>().join(" UNION ALL ");
    let messages = database.rows(messages).await;
    messages.into_iter().map(|row| (row[0].clone(), row[1].parse().ok())).collect()
}

fn text(item: &Item, name: &str) -> Option<String> {
    item.get(name)?.as_s().ok().cloned()
}
