//! Tries the operations of a node on each table and index (docs/sources.md#table-functions).
//!
//! The creation of tables is not tried. The rows belong to no user agent, have neither months nor a
//! last connection, and are removed even if a step fails.

use std::collections::BTreeSet;
use std::error::Error as StdError;

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::future::BoxFuture;
use state_machine::Month;

use super::attributes::{UAID, number, text};
use super::channels::CHANNELS_KEY;
use super::client::DynamoClient;
use super::error::{CallError, Item};
use super::feeds::preflight as feeds_preflight;
use super::notifications::CHID;
use super::rows::SORT_KEY;
use super::table_schema::{
    FEEDS, INDEX, INDEX_KEY, LEGACY, MESSAGES, ROUTER, SEQUENCES, TableSchema,
};
use super::tables::{self, ALL_TABLES};
use crate::maintenance::{PREFLIGHT_UAID, PreflightCheck};

/// The id of message and channel in the rows. It sorts after the channels of a month.
const PREFLIGHT: &str = "preflight";

/// Tries the router table, those of the months, and the legacy and feed tables if they exist.
pub(super) async fn run(
    client: &DynamoClient,
    months: BTreeSet<Month>,
) -> Result<Vec<PreflightCheck>, CallError> {
    let mut run = PreflightRun { client, checks: Vec::new() };
    // An unavailable server is the last of the checks.
    let (Ok(()) | Err(ServerUnavailable)) = run.all_tables(months).await;
    Ok(run.checks)
}

/// The server did not reply, so that further steps would fail too.
struct ServerUnavailable;

struct PreflightRun<'a> {
    client: &'a DynamoClient,
    checks: Vec<PreflightCheck>,
}

impl PreflightRun<'_> {
    async fn all_tables(&mut self, months: BTreeSet<Month>) -> Result<(), ServerUnavailable> {
        let client = self.client;
        self.table(&client.names.router, &ROUTER, router_steps(client)).await?;
        let listed = tables::months(client).await;
        self.note("ListTables", ALL_TABLES, listed)?;
        for month in months {
            let table = client.names.messages(month);
            self.table(&table, &MESSAGES, month_steps(client, &table)).await?;
        }
        if self.is_there(&client.names.legacy).await {
            self.table(&client.names.legacy, &LEGACY, legacy_steps(client)).await?;
        }
        // Both are created with the first feed.
        let (sequences, feeds) = (&client.names.sequences, &client.names.feeds);
        if self.is_there(sequences).await || self.is_there(feeds).await {
            self.table(sequences, &SEQUENCES, feeds_preflight::steps_of_sequences(client)).await?;
            self.table(feeds, &FEEDS, feeds_preflight::steps_of_feeds(client)).await?;
        }
        Ok(())
    }

    /// Also true if the table cannot be described.
    async fn is_there(&self, name: &str) -> bool {
        !matches!(tables::describe(self.client, name).await, Ok(None))
    }

    /// Compares the table with its schema, and then takes all steps: the last removes the row of
    /// the first.
    async fn table(
        &mut self,
        name: &str,
        schema: &TableSchema,
        steps: Vec<PreflightStep<'_>>,
    ) -> Result<(), ServerUnavailable> {
        let looked = tables::look_at(self.client, name, schema).await;
        if self.note("DescribeTable", name, looked)?.is_none() {
            return Ok(());
        }
        for PreflightStep { operation, resource, request } in steps {
            let done = request.await;
            self.note(operation, &resource, done)?;
        }
        Ok(())
    }

    /// Records the result of a step. None if it failed; the next may be taken nevertheless.
    fn note<T>(
        &mut self,
        operation: &str,
        resource: &str,
        done: Result<T, CallError>,
    ) -> Result<Option<T>, ServerUnavailable> {
        let (operation, outcome, answer) = match done {
            Ok(done) => (operation, Ok(()), Ok(Some(done))),
            Err(error) => {
                let answer = if error.is_unreachable() { Err(ServerUnavailable) } else { Ok(None) };
                (error.operation(), Err(advise(&error, resource)), answer)
            }
        };
        self.checks.push(PreflightCheck { what: format!("{operation} on {resource}"), outcome });
        answer
    }
}

/// A request that is not sent yet.
pub(super) struct PreflightStep<'a> {
    operation: &'static str,
    /// The resource in an IAM policy.
    resource: String,
    request: BoxFuture<'a, Result<(), CallError>>,
}

impl<'a> PreflightStep<'a> {
    pub(super) fn new<T, E>(
        client: &'a DynamoClient,
        operation: &'static str,
        table: &'a str,
        request: impl Future<Output = Result<T, SdkError<E, HttpResponse>>> + Send + 'a,
    ) -> Self
    where
        T: Send + 'static,
        E: StdError + ProvideErrorMetadata + Into<aws_sdk_dynamodb::Error> + Send + Sync + 'static,
    {
        let request = client.call(operation, table, request);
        let request = Box::pin(async { request.await.map(|_answer| ()) });
        Self { operation, resource: table.to_owned(), request }
    }
}

fn router_steps(client: &DynamoClient) -> Vec<PreflightStep<'_>> {
    let table = &client.names.router;
    let update = client.sdk.update_item().table_name(table).key(UAID, uaid());
    let update = update
        .update_expression("SET connected_at = :zero")
        .expression_attribute_values(":zero", number(0_u64));
    let query = client.sdk.query().table_name(table).index_name(INDEX);
    let query = query
        .key_condition_expression(format!("{INDEX_KEY} = :zero"))
        .expression_attribute_values(":zero", number(0_u64));
    let key = Item::from([(UAID.to_owned(), uaid())]);
    let index = format!("{table}/index/{INDEX}");
    vec![
        PreflightStep::new(client, "UpdateItem", table, update.send()),
        get(client, table, key.clone()),
        PreflightStep {
            resource: index,
            ..PreflightStep::new(client, "Query", table, query.send())
        },
        delete(client, table, key),
    ]
}

fn month_steps<'a>(client: &'a DynamoClient, table: &'a str) -> Vec<PreflightStep<'a>> {
    let channels = key(SORT_KEY, CHANNELS_KEY);
    let update = client.sdk.update_item().table_name(table).set_key(Some(channels.clone()));
    let update = update
        .update_expression("ADD chids :chids")
        .expression_attribute_values(":chids", AttributeValue::Ss(vec![PREFLIGHT.to_owned()]));
    vec![
        PreflightStep::new(client, "UpdateItem", table, update.send()),
        put(client, table, key(SORT_KEY, PREFLIGHT)),
        get(client, table, channels.clone()),
        query(client, table),
        delete(client, table, key(SORT_KEY, PREFLIGHT)),
        delete(client, table, channels),
    ]
}

fn legacy_steps(client: &DynamoClient) -> Vec<PreflightStep<'_>> {
    let table = &client.names.legacy;
    let key = key(CHID, PREFLIGHT);
    vec![put(client, table, key.clone()), query(client, table), delete(client, table, key)]
}

fn put<'a>(client: &'a DynamoClient, table: &'a str, item: Item) -> PreflightStep<'a> {
    let put = client.sdk.put_item().table_name(table).set_item(Some(item));
    PreflightStep::new(client, "PutItem", table, put.send())
}

pub(super) fn get<'a>(client: &'a DynamoClient, table: &'a str, key: Item) -> PreflightStep<'a> {
    let get = client.sdk.get_item().table_name(table).set_key(Some(key));
    PreflightStep::new(client, "GetItem", table, get.consistent_read(true).send())
}

fn query<'a>(client: &'a DynamoClient, table: &'a str) -> PreflightStep<'a> {
    let query = client.sdk.query().table_name(table).consistent_read(true);
    let query =
        query.key_condition_expression("uaid = :uaid").expression_attribute_values(":uaid", uaid());
    PreflightStep::new(client, "Query", table, query.send())
}

fn delete<'a>(client: &'a DynamoClient, table: &'a str, key: Item) -> PreflightStep<'a> {
    let delete = client.sdk.delete_item().table_name(table).set_key(Some(key));
    PreflightStep::new(client, "DeleteItem", table, delete.send())
}

fn advise(error: &CallError, resource: &str) -> String {
    if error.is_denied() {
        let actions = actions_of(error.operation());
        format!("{error}; allow this server's role {actions} on {resource}")
    } else {
        error.to_string()
    }
}

/// The actions in an IAM policy: a transaction needs those of its parts.
fn actions_of(operation: &str) -> String {
    match operation {
        "TransactWriteItems" => {
            "dynamodb:PutItem, dynamodb:UpdateItem and dynamodb:DeleteItem".to_owned()
        }
        "TransactGetItems" => "dynamodb:GetItem".to_owned(),
        _ => format!("dynamodb:{operation}"),
    }
}

fn uaid() -> AttributeValue {
    text(PREFLIGHT_UAID.to_string())
}

fn key(sort: &str, value: &str) -> Item {
    Item::from([(UAID.to_owned(), uaid()), (sort.to_owned(), text(value))])
}
