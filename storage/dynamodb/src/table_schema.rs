//! The schema of each table: keys, index and TTL (docs/sources.md#dynamodb-schema).

use aws_sdk_dynamodb::operation::create_table::builders::CreateTableFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, GlobalSecondaryIndexDescription,
    IndexStatus, KeySchemaElement, KeyType, Projection, ProjectionType, ProvisionedThroughput,
    ScalarAttributeType, TableDescription,
};
use storage::maintenance::Throughput;

use crate::attributes::UAID;
use crate::options::Billing;

/// A key attribute's name and type.
type Key = (&'static str, ScalarAttributeType);

#[derive(Debug)]
pub(crate) struct TableSchema {
    partition: &'static str,
    sort: Option<&'static str>,
    /// Whether the table has [`INDEX`].
    indexed: bool,
    /// Whether rows expire by [`EXPIRY`].
    pub(crate) expires: bool,
}

/// Router records: one item per user agent.
pub(crate) const ROUTER: TableSchema = TableSchema { indexed: true, ..plain(UAID, None) };
/// Channels and messages of a month.
pub(crate) const MESSAGES: TableSchema =
    TableSchema { expires: true, ..plain(UAID, Some("chidmessageid")) };
pub(crate) const LEGACY: TableSchema = plain(UAID, Some("chid"));
/// Sequences of feeds: one item per feed.
pub(crate) const SEQUENCES: TableSchema = plain("name", None);
/// Keys of feeds, with their waiting and published values.
pub(crate) const FEEDS: TableSchema = plain("feed", Some("item"));

const fn plain(partition: &'static str, sort: Option<&'static str>) -> TableSchema {
    TableSchema { partition, sort, indexed: false, expires: false }
}

/// The index of users by their last connection.
pub(crate) const INDEX: &str = "AccessIndex";
pub(crate) const INDEX_KEY: &str = "last_connect";
/// Seconds since the epoch after which DynamoDB deletes a row.
pub(crate) const EXPIRY: &str = "expiry";

impl TableSchema {
    /// Adds the schema to a request.
    pub(crate) fn describe_in(
        &self,
        request: CreateTableFluentBuilder,
        billing: Billing,
    ) -> CreateTableFluentBuilder {
        let (mode, throughput) = match billing {
            Billing::OnDemand => (BillingMode::PayPerRequest, None),
            Billing::Provisioned(throughput) => {
                (BillingMode::Provisioned, Some(provisioned(throughput)))
            }
        };
        let index = self.indexed.then(|| index(throughput.as_ref()));
        request
            .set_key_schema(Some(key_schema(&self.keys())))
            .set_attribute_definitions(Some(self.attributes()))
            .set_global_secondary_indexes(index.map(|index| vec![index]))
            .billing_mode(mode)
            .set_provisioned_throughput(throughput)
    }

    /// Compares a table with the schema. The error names the difference and the remedy.
    pub(crate) fn compare(&self, table: &TableDescription) -> Result<(), String> {
        if key_schema(&self.keys()) != table.key_schema() {
            return Err(self.wrong_keys());
        }
        if self.indexed {
            compare_index(table)?;
        }
        let defined = table.attribute_definitions();
        match self.attributes().iter().find(|key| !defined.contains(key)) {
            None => Ok(()),
            Some(key) => Err(format!(
                "its key {} must be {}: create the table again",
                key.attribute_name(),
                type_name(key.attribute_type()),
            )),
        }
    }

    fn wrong_keys(&self) -> String {
        let partition = self.partition;
        let sort = match self.sort {
            Some(sort) => format!("sort key {sort}"),
            None => "no sort key".to_owned(),
        };
        format!("it must have partition key {partition} and {sort}: create the table again")
    }

    fn keys(&self) -> Vec<Key> {
        let sort = self.sort.map(|sort| (sort, ScalarAttributeType::S));
        [(self.partition, ScalarAttributeType::S)].into_iter().chain(sort).collect()
    }

    fn attributes(&self) -> Vec<AttributeDefinition> {
        let index_key = self.indexed.then_some((INDEX_KEY, ScalarAttributeType::N));
        let keys = self.keys().into_iter().chain(index_key);
        keys.map(|(name, kind)| {
            let attribute = AttributeDefinition::builder().attribute_name(name);
            attribute.attribute_type(kind).build().expect(COMPLETE)
        })
        .collect()
    }
}

fn index(throughput: Option<&ProvisionedThroughput>) -> GlobalSecondaryIndex {
    GlobalSecondaryIndex::builder()
        .index_name(INDEX)
        .set_key_schema(Some(key_schema(&[(INDEX_KEY, ScalarAttributeType::N)])))
        .projection(Projection::builder().projection_type(ProjectionType::KeysOnly).build())
        .set_provisioned_throughput(throughput.cloned())
        .build()
        .expect(COMPLETE)
}

pub(crate) fn provisioned(throughput: Throughput) -> ProvisionedThroughput {
    ProvisionedThroughput::builder()
        .read_capacity_units(throughput.read.into())
        .write_capacity_units(throughput.write.into())
        .build()
        .expect(COMPLETE)
}

fn compare_index(table: &TableDescription) -> Result<(), String> {
    let named = |index: &&GlobalSecondaryIndexDescription| index.index_name() == Some(INDEX);
    let Some(index) = table.global_secondary_indexes().iter().find(named) else {
        return Err(format!("it has no index {INDEX}: add it with {INDEX_SCHEMA}"));
    };
    let wanted = key_schema(&[(INDEX_KEY, ScalarAttributeType::N)]);
    let projection = index.projection().and_then(Projection::projection_type);
    if wanted != index.key_schema()
        || projection.is_some_and(|projection| *projection != ProjectionType::KeysOnly)
    {
        return Err(format!(
            "its index {INDEX} is another one: create it again with {INDEX_SCHEMA}"
        ));
    }
    match index.index_status() {
        Some(IndexStatus::Creating) => {
            Err(format!("its index {INDEX} is still being built: wait until it is ACTIVE"))
        }
        Some(IndexStatus::Deleting) => {
            Err(format!("its index {INDEX} is being deleted: add it again with {INDEX_SCHEMA}"))
        }
        _ => Ok(()),
    }
}

const INDEX_SCHEMA: &str = "partition key last_connect (a number) and projection KEYS_ONLY";

fn key_schema(keys: &[Key]) -> Vec<KeySchemaElement> {
    let keys = keys.iter().zip([KeyType::Hash, KeyType::Range]);
    keys.map(|((name, _), kind)| {
        KeySchemaElement::builder().attribute_name(*name).key_type(kind).build().expect(COMPLETE)
    })
    .collect()
}

const COMPLETE: &str = "each of its fields is set";

fn type_name(kind: &ScalarAttributeType) -> &'static str {
    match kind {
        ScalarAttributeType::N => "a number",
        _ => "a string",
    }
}
