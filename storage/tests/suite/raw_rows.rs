//! The rows of a store as its files or tables have them, read without its engine, and what holds of them together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use rusqlite::types::FromSql;
use rusqlite::{Connection, Row};
use state_machine::{Chid, Uaid};

use crate::dynamo::things::Item;

/// A month, and the agent.
type OfAgent = (String, String);

/// Messages and bytes by channel; those of the agent have an empty name.
type Sizes = BTreeMap<String, (i64, i64)>;

/// The key, its version and its number.
type KeyState = (String, String, Option<i64>);

#[derive(Debug, Default)]
pub(crate) struct RawRows {
    /// The agents with a row of channels.
    known: BTreeSet<OfAgent>,
    messages: BTreeMap<OfAgent, Sizes>,
    /// Those that have not expired, which DynamoDB counts alone when it counts the rows.
    living: BTreeMap<OfAgent, Sizes>,
    counts: BTreeMap<OfAgent, Sizes>,
    /// The keys that each sequence counts.
    sequences: BTreeMap<String, i64>,
    keys: BTreeMap<String, BTreeSet<KeyState>>,
    values: BTreeMap<String, BTreeSet<KeyState>>,
    /// How many receipts each subscription expects.
    expected: BTreeMap<String, i64>,
}

/// What counts of waiting messages may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counts {
    Exact,
    /// They are too high after a request of DynamoDB failed, until the rows are counted again.
    AtLeast,
}

impl RawRows {
    /// All that does not hold.
    pub(crate) fn wrong(&self, counts: Counts) -> Vec<String> {
        let mut wrong = Vec::new();
        for (agent, sizes) in &self.messages {
            if !self.known.contains(agent) {
                wrong.push(format!("messages without an owner: {agent:?} {sizes:?}"));
            }
        }
        for (agent, counted) in &self.counts {
            let size = |sizes: &BTreeMap<OfAgent, Sizes>, channel: &String| {
                sizes.get(agent).and_then(|sizes| sizes.get(channel)).copied().unwrap_or_default()
            };
            let there = self.messages.get(agent).into_iter().flat_map(|sizes| sizes.keys());
            for channel in counted.keys().chain(there).collect::<BTreeSet<_>>() {
                let [most, least] =
                    [&self.messages, &self.living].map(|sizes| size(sizes, channel));
                let counted = counted.get(channel).copied().unwrap_or_default();
                let is_enough = counted.0 >= least.0 && counted.1 >= least.1;
                let is_too_much = counted.0 > most.0 || counted.1 > most.1;
                if !is_enough || is_too_much && counts == Counts::Exact {
                    wrong.push(format!(
                        "{counted:?} are counted of {most:?}, {least:?} live: {agent:?} {channel:?}"
                    ));
                }
            }
        }
        if self.keys != self.values {
            wrong.push(format!("keys {:?} and values {:?}", self.keys, self.values));
        }
        let feeds: BTreeSet<_> =
            self.sequences.keys().chain(self.keys.keys()).chain(self.expected.keys()).collect();
        for feed in feeds {
            let keys = self.keys.get(feed).map_or(0, |keys| keys.len() as i64);
            let expected = self.expected.get(feed).copied().unwrap_or(0);
            let counted = self.sequences.get(feed);
            if counted != Some(&(keys + expected)) {
                wrong.push(format!("{feed} counts {counted:?} of {keys} keys and {expected}"));
            }
        }
        wrong
    }

    fn add_message(&mut self, agent: &OfAgent, channel: &str, bytes: i64, lives: bool) {
        for all in [Some(&mut self.messages), Some(&mut self.living).filter(|_| lives)] {
            let Some(all) = all else { continue };
            let sizes = all.entry(agent.clone()).or_default();
            for channel in ["", channel] {
                let size = sizes.entry(channel.to_owned()).or_default();
                *size = (size.0 + 1, size.1 + bytes);
            }
        }
    }
}

/// The rows of the files in a data directory.
pub(crate) fn of_files(dir: &Path) -> RawRows {
    let mut rows = RawRows::default();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some(name) = name.strip_suffix(".db") else { continue };
        let mut conn = Connection::open(&path).unwrap();
        // At one moment: the engine may still delete what has expired.
        let conn = conn.transaction().unwrap();
        match name.strip_prefix("messages_") {
            Some(month) => read_month(&conn, month, &mut rows),
            None => read_router(&conn, &mut rows),
        }
    }
    rows
}

fn each(conn: &Connection, query: &str, mut take: impl FnMut(&Row<'_>)) {
    let mut statement = conn.prepare(query).unwrap();
    let mut found = statement.query([]).unwrap();
    while let Some(row) = found.next().unwrap() {
        take(row);
    }
}

fn column<T: FromSql>(row: &Row<'_>, at: usize) -> T {
    row.get(at).unwrap()
}

fn agent_at(row: &Row<'_>, month: &str) -> OfAgent {
    (month.to_owned(), Uaid(column(row, 0)).to_string())
}

/// Empty of an empty one.
fn channel_at(row: &Row<'_>) -> String {
    <[u8; 16]>::try_from(column::<Vec<u8>>(row, 1))
        .map_or_else(|_| String::new(), |chid| Chid(chid).to_string())
}

fn read_month(conn: &Connection, month: &str, rows: &mut RawRows) {
    each(conn, "SELECT DISTINCT uaid FROM channels", |row| {
        rows.known.insert(agent_at(row, month));
    });
    let size = "ifnull(octet_length(data), 0) + ifnull(octet_length(encryption), 0) \
                + ifnull(octet_length(crypto_key), 0)";
    each(conn, &format!("SELECT uaid, chid, {size} FROM messages"), |row| {
        let agent = agent_at(row, month);
        // A file that counts none has none.
        rows.counts.entry(agent.clone()).or_default();
        rows.add_message(&agent, &channel_at(row), column(row, 2), true);
    });
    each(conn, "SELECT uaid, chid, messages, bytes FROM waiting", |row| {
        let counts = rows.counts.entry(agent_at(row, month)).or_default();
        counts.insert(channel_at(row), (column(row, 2), column(row, 3)));
    });
}

fn read_router(conn: &Connection, rows: &mut RawRows) {
    each(conn, "SELECT name, keys FROM sequences", |row| {
        rows.sequences.insert(column(row, 0), column(row, 1));
    });
    each(conn, "SELECT feed, key, version, feed_sync_id FROM feed_keys", |row| {
        let (feed, version): (String, i64) = (column(row, 0), column(row, 2));
        let state = (column(row, 1), version.to_string(), column(row, 3));
        // One row is both.
        rows.keys.entry(feed.clone()).or_default().insert(state.clone());
        rows.values.entry(feed).or_default().insert(state);
    });
    each(conn, "SELECT feed FROM receipts_expected", |row| {
        *rows.expected.entry(column(row, 0)).or_default() += 1;
    });
}

/// All items of a table; none of one that does not exist.
pub(crate) async fn items(client: &Client, table: &str) -> Vec<Item> {
    let items = client.scan().table_name(table).consistent_read(true).into_paginator().items();
    match items.send().collect::<Result<Vec<_>, _>>().await {
        Ok(items) => items,
        Err(error) if format!("{error:?}").contains("ResourceNotFound") => Vec::new(),
        Err(error) => panic!("{error:?}"),
    }
}

/// The rows of the tables with a prefix, in these months.
pub(crate) async fn of_tables(client: &Client, prefix: &str, months: &[&str]) -> RawRows {
    let mut tables = Vec::new();
    let months = months.iter().map(|month| format!("message_{month}"));
    for table in months.chain(["sequences", "feeds"].map(str::to_owned)) {
        let items = items(client, &format!("{prefix}{table}")).await;
        tables.push((table, items));
    }
    of_items(tables.iter().map(|(table, items)| (table.as_str(), items.as_slice())))
}

/// The rows of tables, each with its name without a prefix.
pub(crate) fn of_items<'a>(tables: impl IntoIterator<Item = (&'a str, &'a [Item])>) -> RawRows {
    let mut rows = RawRows::default();
    for (table, items) in tables {
        if let Some(month) = table.strip_prefix("message_") {
            // Rows are counted when a message is pushed, without those that have expired by then.
            let counted_at = items.iter().filter_map(|item| number(item, "accepted_at")).max();
            for item in items {
                read_month_item(month, item, counted_at.unwrap_or_default(), &mut rows);
            }
        }
        match table {
            "sequences" => rows.sequences.extend(
                items.iter().map(|item| (text(item, "name"), number(item, "keys").unwrap())),
            ),
            "feeds" => items.iter().for_each(|item| read_feed_item(item, &mut rows)),
            _ => {}
        }
    }
    rows
}

/// The rows of a schema in PostgreSQL, read by one query: each query is a process and a session.
pub(crate) fn of_schema(schema: &str) -> RawRows {
    let mut rows = RawRows::default();
    let number = |text: &str| text.parse::<i64>().unwrap();
    let months = format!(
        "SELECT substr(tablename, 8) FROM pg_tables WHERE schemaname = '{schema}' AND tablename LIKE 'agents%'"
    );
    let months = postgres_server::shared().rows(&months);
    for row in postgres_server::shared().rows(&all_of_schema(schema, &months)) {
        let [kind, month, first, second, third, fourth] = &row[..] else { panic!("{row:?}") };
        let agent = (month.clone(), first.clone());
        match kind.as_str() {
            "agent" => {
                rows.known.insert(agent.clone());
                let counts = rows.counts.entry(agent).or_default();
                counts.insert(String::new(), (number(second), number(third)));
            }
            "channel" => {
                let counts = rows.counts.entry(agent).or_default();
                counts.insert(second.clone(), (number(third), number(fourth)));
            }
            "message" => rows.add_message(&agent, second, number(third), true),
            "sequence" => drop(rows.sequences.insert(first.clone(), number(second))),
            "key" => {
                let state = (second.clone(), third.clone(), fourth.parse().ok());
                rows.keys.entry(first.clone()).or_default().insert(state.clone());
                rows.values.entry(first.clone()).or_default().insert(state);
            }
            "expected" => *rows.expected.entry(first.clone()).or_default() += 1,
            kind => panic!("{kind:?} is no kind of a row"),
        }
    }
    rows
}

/// A query with all rows: a kind, a month or nothing, and what is read of a row of that kind.
fn all_of_schema(schema: &str, months: &[Vec<String>]) -> String {
    let of_month = |month: &Vec<String>| {
        let month = &month[0];
        // A channel that is not registered is counted for its agent only.
        format!(
            "SELECT 'agent', '{month}', uaid::text, messages::text, bytes::text, '' FROM {schema}.agents_{month}
             UNION ALL SELECT 'channel', '{month}', uaid::text, chid::text, messages::text, bytes::text
                FROM {schema}.channels_{month}
             UNION ALL SELECT 'channel', '{month}', uaid::text, chid::text, count(*)::text, sum(size)::text
                FROM {schema}.messages_{month} m WHERE NOT EXISTS (
                SELECT 1 FROM {schema}.channels_{month} c WHERE c.uaid = m.uaid AND c.chid = m.chid)
                GROUP BY uaid, chid
             UNION ALL SELECT 'message', '{month}', uaid::text, chid::text, (coalesce(octet_length(data), 0)
                + coalesce(octet_length(encryption), 0) + coalesce(octet_length(crypto_key), 0))::text, ''
                FROM {schema}.messages_{month} UNION ALL "
        )
    };
    let of_months: String = months.iter().map(of_month).collect();
    format!(
        "{of_months} SELECT 'sequence', '', name, keys::text, '', '' FROM {schema}.sequences
         UNION ALL SELECT 'key', '', feed, key, version::text, feed_sync_id::text FROM {schema}.feed_keys
         UNION ALL SELECT 'expected', '', feed, '', '', '' FROM {schema}.receipts_expected"
    )
}

fn text(item: &Item, name: &str) -> String {
    item[name].as_s().unwrap().clone()
}

fn number(item: &Item, name: &str) -> Option<i64> {
    item.get(name).map(|value| value.as_n().unwrap().parse().unwrap())
}

fn read_month_item(month: &str, item: &Item, counted_at: i64, rows: &mut RawRows) {
    let agent = (month.to_owned(), text(item, "uaid"));
    match text(item, "chidmessageid").as_str() {
        " " => drop(rows.known.insert(agent)),
        " waiting" => {
            let channels = item.keys().filter_map(|name| name.strip_prefix("m:"));
            let of_channel = |chid: &str| {
                let [messages, bytes] =
                    ["m", "b"].map(|kind| number(item, &format!("{kind}:{chid}")).unwrap_or(0));
                (chid.to_owned(), (messages, bytes))
            };
            let mut sizes: Sizes = channels.map(of_channel).collect();
            let of_agent = ["messages", "bytes"].map(|name| number(item, name).unwrap());
            sizes.insert(String::new(), of_agent.into());
            rows.counts.insert(agent, sizes);
        }
        sort_key => {
            let mut parts = sort_key.split(':');
            let channel = match parts.next() {
                Some("01") => parts.next(),
                _ => parts.next_back(),
            };
            let length = |value: &AttributeValue| match value {
                AttributeValue::B(data) => data.as_ref().len(),
                AttributeValue::S(text) => text.len(),
                _ => 0,
            };
            let headers = item.get("headers").map(|headers| headers.as_m().unwrap());
            let header = |name: &str| headers.and_then(|headers| headers.get(name));
            let sized = [item.get("data"), header("encryption"), header("crypto_key")];
            let bytes: usize = sized.into_iter().flatten().map(length).sum();
            let ttl =
                number(item, "ttl_ms").or(number(item, "ttl").map(|ttl| ttl.saturating_mul(1000)));
            let expires = number(item, "accepted_at").unwrap().saturating_add(ttl.unwrap());
            let lives = expires > counted_at;
            rows.add_message(&agent, channel.unwrap(), bytes as i64, lives);
        }
    }
}

fn read_feed_item(item: &Item, rows: &mut RawRows) {
    let (feed, sort_key) = (text(item, "feed"), text(item, "item"));
    if feed.starts_with(".expected.") {
        let subscription = sort_key.split(':').nth(1).unwrap();
        *rows.expected.entry(subscription.to_owned()).or_default() += 1;
        return;
    }
    let version = item["version"].as_n().unwrap().clone();
    let (kind, rest) = sort_key.split_once(':').unwrap();
    let (rows, state) = match kind {
        "k" => (&mut rows.keys, (rest.to_owned(), version, number(item, "number"))),
        "p" => (&mut rows.values, (rest.to_owned(), version, None)),
        "n" => (&mut rows.values, (text(item, "key"), version, Some(rest.parse().unwrap()))),
        other => panic!("{other:?} is no kind of a feed's item"),
    };
    rows.entry(feed).or_default().insert(state);
}
