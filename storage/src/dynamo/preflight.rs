//! Trying out what a node does with each table and index (seed 001, `preflight_check`).
//!
//! What it takes to make tables is not tried out: that shows when they are made. The rows are of nobody,
//! have neither months nor a last connection, and are removed whatever becomes of the steps between.

use std::collections::BTreeSet;
use std::error::Error as StdError;

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::future::BoxFuture;
use state_machine::Month;

use super::attributes::{UAID, number, text};
use super::channels::CHANNELS_KEY;
use super::error::{CallError, Item};
use super::feeds::preflight as trial_of_feeds;
use super::link::Link;
use super::notifications::CHID;
use super::rows::SORT_KEY;
use super::shapes::{FEEDS, INDEX, INDEX_KEY, LEGACY, MESSAGES, ROUTER, SEQUENCES, Shape};
use super::tables::{self, ALL_TABLES};
use crate::upkeep::{Check, PREFLIGHT_UAID};

/// Stands where a message's or channel's id does. It sorts behind the channels of a month.
const PREFLIGHT: &str = "preflight";

/// Tries out the router table, those of the months, and the legacy one and those of feeds where they are.
pub(super) async fn run(link: &Link, months: BTreeSet<Month>) -> Result<Vec<Check>, CallError> {
    let mut trial = Trial { link, checks: Vec::new() };
    // What did not answer is the last of the checks.
    let (Ok(()) | Err(GaveUp)) = trial.all_tables(months).await;
    Ok(trial.checks)
}

/// The server did not answer: nothing further is to be learned.
struct GaveUp;

struct Trial<'a> {
    link: &'a Link,
    checks: Vec<Check>,
}

impl Trial<'_> {
    async fn all_tables(&mut self, months: BTreeSet<Month>) -> Result<(), GaveUp> {
        let link = self.link;
        self.table(link.names.router(), &ROUTER, router_steps(link)).await?;
        let listed = tables::months(link).await;
        self.note("ListTables", ALL_TABLES, listed)?;
        for month in months {
            let table = link.names.messages(month);
            self.table(&table, &MESSAGES, month_steps(link, &table)).await?;
        }
        // Only where it is there: it is for SimplePush.
        if self.is_there(link.names.legacy()).await {
            self.table(link.names.legacy(), &LEGACY, legacy_steps(link)).await?;
        }
        // These belong together, and are made when the first feed is.
        let (sequences, feeds) = (link.names.sequences(), link.names.feeds());
        if self.is_there(sequences).await || self.is_there(feeds).await {
            self.table(sequences, &SEQUENCES, trial_of_feeds::steps_of_sequences(link)).await?;
            self.table(feeds, &FEEDS, trial_of_feeds::steps_of_feeds(link)).await?;
        }
        Ok(())
    }

    /// Whether there is such a table. One that cannot be looked at may be there.
    async fn is_there(&self, name: &str) -> bool {
        !matches!(tables::describe(self.link, name).await, Ok(None))
    }

    /// Looks whether the table is as it should be, and then takes all steps, so that the last
    /// removes what the first wrote.
    async fn table(
        &mut self,
        name: &str,
        shape: &Shape,
        steps: Vec<Step<'_>>,
    ) -> Result<(), GaveUp> {
        let looked = tables::look_at(self.link, name, shape).await;
        if self.note("DescribeTable", name, looked)?.is_none() {
            return Ok(());
        }
        for Step { operation, resource, request } in steps {
            let done = request.await;
            self.note(operation, &resource, done)?;
        }
        Ok(())
    }

    /// Notes what became of a step. None if it failed; the next may be taken all the same.
    fn note<T>(
        &mut self,
        operation: &str,
        resource: &str,
        done: Result<T, CallError>,
    ) -> Result<Option<T>, GaveUp> {
        let (operation, outcome, answer) = match done {
            Ok(done) => (operation, Ok(()), Ok(Some(done))),
            Err(error) => {
                let answer = if error.is_unreachable() { Err(GaveUp) } else { Ok(None) };
                (error.operation(), Err(advise(&error, resource)), answer)
            }
        };
        self.checks.push(Check { what: format!("{operation} on {resource}"), outcome });
        answer
    }
}

/// One request, not made yet.
pub(super) struct Step<'a> {
    operation: &'static str,
    /// What a policy must allow it on.
    resource: String,
    request: BoxFuture<'a, Result<(), CallError>>,
}

impl<'a> Step<'a> {
    pub(super) fn new<T, E>(
        link: &'a Link,
        operation: &'static str,
        table: &'a str,
        request: impl Future<Output = Result<T, SdkError<E, HttpResponse>>> + Send + 'a,
    ) -> Self
    where
        T: Send + 'static,
        E: StdError + ProvideErrorMetadata + Into<aws_sdk_dynamodb::Error> + Send + Sync + 'static,
    {
        let request = link.call(operation, table, request);
        let request = Box::pin(async { request.await.map(|_answer| ()) });
        Self { operation, resource: table.to_owned(), request }
    }
}

fn router_steps(link: &Link) -> Vec<Step<'_>> {
    let table = link.names.router();
    let update = link.client.update_item().table_name(table).key(UAID, uaid());
    let update = update
        .update_expression("SET connected_at = :zero")
        .expression_attribute_values(":zero", number(0_u64));
    let query = link.client.query().table_name(table).index_name(INDEX);
    let query = query
        .key_condition_expression(format!("{INDEX_KEY} = :zero"))
        .expression_attribute_values(":zero", number(0_u64));
    let key = Item::from([(UAID.to_owned(), uaid())]);
    let index = format!("{table}/index/{INDEX}");
    vec![
        Step::new(link, "UpdateItem", table, update.send()),
        get(link, table, key.clone()),
        Step { resource: index, ..Step::new(link, "Query", table, query.send()) },
        delete(link, table, key),
    ]
}

fn month_steps<'a>(link: &'a Link, table: &'a str) -> Vec<Step<'a>> {
    let channels = key(SORT_KEY, CHANNELS_KEY);
    let update = link.client.update_item().table_name(table).set_key(Some(channels.clone()));
    let update = update
        .update_expression("ADD chids :chids")
        .expression_attribute_values(":chids", AttributeValue::Ss(vec![PREFLIGHT.to_owned()]));
    vec![
        Step::new(link, "UpdateItem", table, update.send()),
        put(link, table, key(SORT_KEY, PREFLIGHT)),
        get(link, table, channels.clone()),
        query(link, table),
        delete(link, table, key(SORT_KEY, PREFLIGHT)),
        delete(link, table, channels),
    ]
}

fn legacy_steps(link: &Link) -> Vec<Step<'_>> {
    let table = link.names.legacy();
    let key = key(CHID, PREFLIGHT);
    vec![put(link, table, key.clone()), query(link, table), delete(link, table, key)]
}

fn put<'a>(link: &'a Link, table: &'a str, item: Item) -> Step<'a> {
    let put = link.client.put_item().table_name(table).set_item(Some(item));
    Step::new(link, "PutItem", table, put.send())
}

pub(super) fn get<'a>(link: &'a Link, table: &'a str, key: Item) -> Step<'a> {
    let get = link.client.get_item().table_name(table).set_key(Some(key));
    Step::new(link, "GetItem", table, get.consistent_read(true).send())
}

fn query<'a>(link: &'a Link, table: &'a str) -> Step<'a> {
    let query = link.client.query().table_name(table).consistent_read(true);
    let query =
        query.key_condition_expression("uaid = :uaid").expression_attribute_values(":uaid", uaid());
    Step::new(link, "Query", table, query.send())
}

fn delete<'a>(link: &'a Link, table: &'a str, key: Item) -> Step<'a> {
    let delete = link.client.delete_item().table_name(table).set_key(Some(key));
    Step::new(link, "DeleteItem", table, delete.send())
}

fn advise(error: &CallError, resource: &str) -> String {
    if error.is_denied() {
        let actions = actions_of(error.operation());
        format!("{error}; allow this server's role {actions} on {resource}")
    } else {
        error.to_string()
    }
}

/// What a policy calls the operation: a transaction is allowed by what it is made of.
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
