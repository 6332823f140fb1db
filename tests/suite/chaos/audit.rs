//! Reads the message tables directly, without the faults of the proxy.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;

use crate::harness::{dynamo, unix_now_s};

/// A DynamoDB client that reads whole tables.
pub(super) struct Auditor {
    client: Client,
    /// Seconds by which the connection node whose clock is the latest is ahead.
    ahead_s: i64,
}

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
    /// Connects to the DynamoDB server at this URL.
    pub(super) fn of(url: &str, ahead_s: i64) -> Self {
        Self { client: dynamo::client(url), ahead_s }
    }

    /// Reads all message rows. A version that is missing was absent at some moment after
    /// `begun_at`.
    pub(super) async fn audit(&self) -> Audit {
        let (begun_at, now_s) = (Instant::now(), unix_now_s().saturating_add_signed(self.ahead_s));
        let mut audit = Audit { begun_at, rows: BTreeSet::new(), alive: BTreeSet::new() };
        for table in self.tables("message_").await {
            for item in self.scan(&table, "updateid, expiry").await {
                // A row that lists channels has no version.
                let Some(version) = text(&item, "updateid") else { continue };
                let expiry = item.get("expiry").and_then(|expiry| expiry.as_n().ok()?.parse().ok());
                if expiry.is_none_or(|expiry: u64| expiry > now_s) {
                    audit.alive.insert(version.clone());
                }
                audit.rows.insert(version);
            }
        }
        audit
    }

    /// The uaids of all router records.
    pub(super) async fn records(&self) -> BTreeSet<String> {
        let items = self.scan("router", "uaid").await;
        items.iter().filter_map(|item| text(item, "uaid")).collect()
    }

    async fn tables(&self, prefix: &str) -> Vec<String> {
        let tables = self.client.list_tables().send().await.expect("the store answers");
        tables.table_names().iter().filter(|name| name.starts_with(prefix)).cloned().collect()
    }

    async fn scan(&self, table: &str, attributes: &str) -> Vec<Item> {
        let scan = self.client.scan().table_name(table).consistent_read(true);
        let mut pages = scan.projection_expression(attributes).into_paginator().items().send();
        let mut items = Vec::new();
        while let Some(item) = pages.next().await {
            items.push(item.expect("the store answers"));
        }
        items
    }
}

fn text(item: &Item, name: &str) -> Option<String> {
    item.get(name)?.as_s().ok().cloned()
}
