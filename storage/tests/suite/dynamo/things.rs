//! Names for what the tests store.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Region};
use aws_sdk_dynamodb::types::AttributeValue;
use state_machine::{
    Chid, LastConnect, Message, MessageKey, Month, NodeId, RouterType, Time, Uaid,
};
use storage::Registration;
use storage_dynamodb::{Dynamo, DynamoOptions};

use crate::names;
pub(crate) use crate::names::{NOW, id};
use crate::wire_engine::{self, credentials, overrides, wire_server};

pub(crate) const AGENT: Uaid = Uaid([1; 16]);
pub(crate) const CHANNEL: Chid = Chid([0xc0; 16]);

/// Short pauses, so that a test that retries takes no time, and no retries beyond the third
/// attempt.
pub(crate) fn options() -> DynamoOptions {
    DynamoOptions {
        region: Some("eu-central-1".to_owned()),
        attempts_max: 3,
        backoff_initial: Duration::from_millis(1),
        backoff_max: Duration::from_millis(2),
        agent_writes_max: 64,
        ..wire_engine::options::options()
    }
}

/// Tables on the shared server, seen through an engine and as they are.
pub(crate) struct Tables {
    pub(crate) options: DynamoOptions,
    pub(crate) raw: Client,
}

pub(crate) type Item = HashMap<String, AttributeValue>;

impl Tables {
    pub(crate) fn new() -> Self {
        let DynamoOptions { endpoint_url, table_prefix, .. } = wire_engine::fresh_tables();
        let options = DynamoOptions { endpoint_url, table_prefix, ..options() };
        Self { options, raw: raw_client() }
    }

    /// Tables, and a node on them.
    pub(crate) fn with_node() -> (Self, Dynamo) {
        let tables = Self::new();
        let store = tables.open();
        (tables, store)
    }

    /// Opens a further node on the tables.
    pub(crate) fn open(&self) -> Dynamo {
        storage_dynamodb::open_with(&self.options, overrides(None)).unwrap()
    }

    pub(crate) fn name(&self, table: &str) -> String {
        format!("{}{table}", self.options.table_prefix)
    }

    pub(crate) async fn put<'a>(
        &self,
        table: &str,
        attributes: impl IntoIterator<Item = &'a (&'a str, AttributeValue)>,
    ) {
        let put = self.raw.put_item().table_name(self.name(table));
        put.set_item(Some(item(attributes))).send().await.unwrap();
    }

    /// All rows of a table, by their sort keys.
    pub(crate) async fn rows(&self, table: &str) -> Vec<Item> {
        let scan = self.raw.scan().table_name(self.name(table)).send().await.unwrap();
        let mut rows = scan.items.unwrap_or_default();
        let key = |row: &Item| row.get("item").or(row.get("chidmessageid")).cloned();
        rows.sort_by_key(|row| key(row).map(|key| key.as_s().unwrap().clone()));
        rows
    }
}

pub(crate) fn item<'a>(
    attributes: impl IntoIterator<Item = &'a (&'a str, AttributeValue)>,
) -> Item {
    attributes.into_iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

pub(crate) fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

pub(crate) fn n(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

/// A client that sees the tables of the shared server as they are.
pub(crate) fn raw_client() -> Client {
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-central-1"))
        .endpoint_url(&wire_server::shared().url)
        .credentials_provider(credentials());
    Client::from_conf(config.build())
}

pub(crate) fn november() -> Month {
    names::month("2026_11")
}

pub(crate) fn december() -> Month {
    november().next()
}

pub(crate) fn message(number: u32) -> Message {
    names::message(number, CHANNEL, NOW)
}

pub(crate) fn topical(number: u32) -> Message {
    names::with_topic(number, "a-topic", message(number))
}

pub(crate) fn references(messages: impl IntoIterator<Item = Message>) -> Vec<MessageKey> {
    messages.into_iter().map(|message| message.key()).collect()
}

pub(crate) fn registration(connected_at: u64) -> Registration {
    Registration {
        uaid: AGENT,
        router_type: RouterType::WebPush,
        node: NodeId::new("node"),
        connected_at: Time(connected_at),
        last_connect: LastConnect(2_026_111_400_001),
        create_in: Some(november()),
    }
}
