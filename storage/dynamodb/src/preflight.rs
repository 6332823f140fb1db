//! Tries the operations of a node on each table and index (docs/sources.md#table-functions).
//!
//! The creation of tables is not tried. The rows belong to no user agent, have neither months nor a
//! last connection, and are removed even if a step fails.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::{
    AttributeValue, Delete, Get, Put, TransactGetItem, TransactWriteItem, Update,
};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use state_machine::{Chid, LastConnect, Month};
use storage::maintenance::{PREFLIGHT_UAID, PreflightCheck};
use storage::notifications::Notification;

use crate::attributes::{UAID, number, text};
use crate::client::DynamoClient;
use crate::error::{CallError, Item};
use crate::feeds::feed_items::{FEED, ITEM, NAME, PREFLIGHT_FEED};
use crate::feeds::transaction::{COMPLETE, TRANSACT, of_delete, of_put, of_update};
use crate::message_items::{CHANNELS_KEY, SORT_KEY};
use crate::messages::{Replaces, put};
use crate::month_rows::{MonthRows, RowIdentity};
use crate::names::ALL_TABLES;
use crate::record_update::RecordUpdate;
use crate::table_schema::{FEEDS, INDEX, LEGACY, MESSAGES, ROUTER, SEQUENCES, TableSchema};
use crate::{channels, inactive_users, notifications, router, tables};

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
            let rows = MonthRows::new(client, PREFLIGHT_UAID, month);
            let message = Item::from([
                (UAID.to_owned(), text(PREFLIGHT_UAID.to_string())),
                (SORT_KEY.to_owned(), text(PREFLIGHT)),
            ]);
            self.table(&rows.table, &MESSAGES, month_steps(&rows, &message)).await?;
        }
        if self.is_there(&client.names.legacy).await {
            self.table(&client.names.legacy, &LEGACY, legacy_steps(client)).await?;
        }
        // Both are created with the first feed.
        let (sequences, feeds) = (&client.names.sequences, &client.names.feeds);
        if self.is_there(sequences).await || self.is_there(feeds).await {
            self.table(sequences, &SEQUENCES, sequences_steps(client)).await?;
            self.table(feeds, &FEEDS, feeds_steps(client)).await?;
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
struct PreflightStep<'a> {
    operation: &'static str,
    /// The resource in an IAM policy.
    resource: String,
    request: BoxFuture<'a, Result<(), CallError>>,
}

fn step<'a, T>(
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

fn month_steps<'a>(rows: &'a MonthRows<'a>, message: &'a Item) -> Vec<PreflightStep<'a>> {
    let MonthRows { client, table, .. } = rows;
    let update = rows
        .update_request(CHANNELS_KEY)
        .update_expression("ADD chids :chids")
        .expression_attribute_values(":chids", AttributeValue::Ss(vec![PREFLIGHT.to_owned()]));
    let delete = |sort_key: &str| {
        let row = RowIdentity { sort_key: sort_key.to_owned(), update_id: None };
        step("DeleteItem", table, async move { rows.delete(&row).await })
    };
    vec![
        step("UpdateItem", table, rows.update(update)),
        step("PutItem", table, put(client, table, message, &Replaces::Itself)),
        step("GetItem", table, channels::read_item(rows)),
        step("Query", table, rows.after(CHANNELS_KEY, 1, None)),
        delete(PREFLIGHT),
        delete(CHANNELS_KEY),
    ]
}

fn legacy_steps(client: &DynamoClient) -> Vec<PreflightStep<'_>> {
    let table = &client.names.legacy;
    let chid = Chid([0xde; 16]);
    let notification = Notification { chid, version: 0, data: None };
    vec![
        step("PutItem", table, async move {
            notifications::put(client, PREFLIGHT_UAID, &notification).await
        }),
        step("Query", table, notifications::fetch(client, PREFLIGHT_UAID, None, 1)),
        step("DeleteItem", table, notifications::delete(client, PREFLIGHT_UAID, chid, None)),
    ]
}

/// Each transaction is on one table, so that its error names that table.
fn sequences_steps(client: &DynamoClient) -> Vec<PreflightStep<'_>> {
    let table = &client.names.sequences;
    let key = Item::from([(NAME.to_owned(), text(PREFLIGHT_FEED))]);
    let update = Update::builder().table_name(table).set_key(Some(key.clone()));
    let update = update
        .update_expression("SET version = :zero")
        .expression_attribute_values(":zero", number(0_u64));
    let delete = Delete::builder().table_name(table).set_key(Some(key.clone()));
    let raise = client.sdk.update_item().table_name(table).set_key(Some(key.clone()));
    let raise = raise
        .update_expression("SET settled = :zero")
        .expression_attribute_values(":zero", number(0_u64));
    vec![
        transact(client, table, of_update(update)),
        step("UpdateItem", table, client.call("UpdateItem", table, raise.send())),
        step("GetItem", table, client.get(table, key)),
        step("Scan", table, client.scan(table, None, None, Some(1))),
        transact(client, table, of_delete(delete)),
    ]
}

fn feeds_steps(client: &DynamoClient) -> Vec<PreflightStep<'_>> {
    let table = &client.names.feeds;
    let nobody = || (FEED.to_owned(), text(PREFLIGHT_FEED));
    let key = Item::from([nobody(), (ITEM.to_owned(), text(PREFLIGHT_FEED))]);
    let put = Put::builder().table_name(table).set_item(Some(key.clone()));
    let delete = Delete::builder().table_name(table).set_key(Some(key.clone()));
    let query = client.sdk.query().table_name(table).consistent_read(true);
    let query = query
        .key_condition_expression("feed = :feed")
        .expression_attribute_values(":feed", text(PREFLIGHT_FEED));
    let read = Get::builder().table_name(table).set_key(Some(key.clone()));
    let read = TransactGetItem::builder().get(read.build().expect(COMPLETE)).build();
    let read = client.sdk.transact_get_items().transact_items(read);
    vec![
        transact(client, table, of_put(put)),
        step("GetItem", table, client.get(table, key)),
        step("Query", table, client.call("Query", table, query.send())),
        step("TransactGetItems", table, client.call("TransactGetItems", table, read.send())),
        transact(client, table, of_delete(delete)),
    ]
}

fn transact<'a>(
    client: &'a DynamoClient,
    table: &'a str,
    action: TransactWriteItem,
) -> PreflightStep<'a> {
    let request = client.sdk.transact_write_items().transact_items(action);
    step(TRANSACT, table, client.call(TRANSACT, table, request.send()))
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
