//! Tries the operations of a node on each table and index (docs/sources.md#table-functions).
//!
//! The creation of tables is not tried. The rows belong to no user agent, have neither months nor a
//! last connection, and are removed even if a step fails.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use state_machine::{Chid, LastConnect, Month};
use storage::maintenance::{PREFLIGHT_UAID, PreflightCheck};
use storage::notifications::Notification;

use crate::attributes::{UAID, number, text};
use crate::channels::{self, CHANNELS_KEY};
use crate::client::DynamoClient;
use crate::error::{CallError, Item};
use crate::feeds::preflight as feeds_preflight;
use crate::messages::{Replaces, Row, delete_row, put};
use crate::query::rows_after;
use crate::record_update::RecordUpdate;
use crate::router;
use crate::rows::SORT_KEY;
use crate::table_schema::{FEEDS, INDEX, LEGACY, MESSAGES, ROUTER, SEQUENCES, TableSchema};
use crate::tables::{self, ALL_TABLES};
use crate::{inactive_users, notifications};

/// The id of message and channel in the rows. It sorts after the channels of a month.
const PREFLIGHT: &str = "preflight";

/// Tries the router table, those of the months, and the legacy and feed tables if they exist.
pub(crate) async fn run(
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
        let looked = tables::ensure(self.client, name, schema, None).await;
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
pub(crate) struct PreflightStep<'a> {
    operation: &'static str,
    /// The resource in an IAM policy.
    resource: String,
    request: BoxFuture<'a, Result<(), CallError>>,
}

pub(crate) fn step<'a, T>(
    operation: &'static str,
    resource: impl Into<String>,
    request: impl Future<Output = Result<T, CallError>> + Send + 'a,
) -> PreflightStep<'a> {
    let request = request.map_ok(|_answer| ()).boxed();
    PreflightStep { operation, resource: resource.into(), request }
}

fn router_steps(client: &DynamoClient) -> Vec<PreflightStep<'_>> {
    let table = &client.names.router;
    let update = RecordUpdate::of(PREFLIGHT_UAID).set("connected_at", number(0_u64));
    let index = format!("{table}/index/{INDEX}");
    vec![
        step("UpdateItem", table, update.send(client)),
        step("GetItem", table, router::read_item(client, PREFLIGHT_UAID)),
        step("Query", index, inactive_users::query(client, LastConnect(0), None)),
        step("DeleteItem", table, router::drop_user(client, PREFLIGHT_UAID)),
    ]
}

fn month_steps<'a>(client: &'a DynamoClient, table: &'a str) -> Vec<PreflightStep<'a>> {
    let update = channels::update(client, PREFLIGHT_UAID, table)
        .update_expression("ADD chids :chids")
        .expression_attribute_values(":chids", AttributeValue::Ss(vec![PREFLIGHT.to_owned()]));
    let message = Item::from([
        (UAID.to_owned(), text(PREFLIGHT_UAID.to_string())),
        (SORT_KEY.to_owned(), text(PREFLIGHT)),
    ]);
    let delete =
        |sort_key: &str| {
            let row = Row { sort_key: sort_key.to_owned(), update_id: None };
            step("DeleteItem", table, async move {
                delete_row(client, PREFLIGHT_UAID, table, &row).await
            })
        };
    let put = put(client, table.to_owned(), message, &Replaces::Itself);
    vec![
        step("UpdateItem", table, client.call("UpdateItem", table, update.send())),
        step("PutItem", table, put),
        step("GetItem", table, channels::read_item(client, PREFLIGHT_UAID, table.to_owned())),
        step("Query", table, rows_after(client, PREFLIGHT_UAID, table, CHANNELS_KEY, 1, None)),
        delete(PREFLIGHT),
        delete(CHANNELS_KEY),
    ]
}

fn legacy_steps(client: &DynamoClient) -> Vec<PreflightStep<'_>> {
    let table = &client.names.legacy;
    let chid = Chid([0xde; 16]);
    let notification = Notification { chid, version: 0, data: None };
    vec![
        step("PutItem", table, notifications::put(client, PREFLIGHT_UAID, notification)),
        step("Query", table, notifications::fetch(client, PREFLIGHT_UAID, None, 1)),
        step("DeleteItem", table, notifications::delete(client, PREFLIGHT_UAID, chid, None)),
    ]
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
