//! Reading a user agent's rows, in the order of their sort keys.

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use state_machine::{Time, Uaid};

use super::attributes::{number, text, text_of};
use super::error::{CallError, Item};
use super::link::Link;
use super::rows::{EXPIRY_MAX_S, SORT_KEY};

/// Some of the rows.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) items: Vec<Item>,
    /// The sort key behind which there may be more.
    pub(super) next: Option<String>,
}

/// Rows behind a sort key, `rows` of them looked at at most. Those that expired before `now`, if it
/// is given, need not come.
pub(super) async fn rows_after(
    link: &Link,
    uaid: Uaid,
    table: &str,
    after: &str,
    rows: i32,
    now: Option<Time>,
) -> Result<Batch, CallError> {
    let request = of_agent(link, uaid, table)
        .key_condition_expression("uaid = :uaid AND chidmessageid > :after")
        .expression_attribute_values(":after", text(after))
        .limit(rows);
    // `expiry` is rounded up, and never above the limit: none that lives is left out.
    let request = match now {
        Some(now) => request
            .filter_expression("attribute_not_exists(expiry) OR expiry > :now")
            .expression_attribute_values(":now", number(now.as_secs().min(EXPIRY_MAX_S - 1))),
        None => request,
    };
    send(link, table, request).await
}

/// The first row whose sort key begins with `prefix` and that is the one looked for: only its sort key and `updateid`.
pub(super) async fn find(
    link: &Link,
    uaid: Uaid,
    table: &str,
    prefix: &str,
    is_it: impl Fn(&Item) -> bool,
) -> Result<Option<Item>, CallError> {
    let mut start = None;
    loop {
        let request = of_agent(link, uaid, table)
            .key_condition_expression("uaid = :uaid AND begins_with(chidmessageid, :prefix)")
            .expression_attribute_values(":prefix", text(prefix))
            .projection_expression("uaid, chidmessageid, updateid")
            .set_exclusive_start_key(start);
        let batch = send(link, table, request).await?;
        let found = batch.items.into_iter().find(&is_it);
        let Some(next) = batch.next.filter(|_| found.is_none()) else { return Ok(found) };
        let key = [("uaid", uaid.to_string()), (SORT_KEY, next)];
        start = Some(key.map(|(name, value)| (name.to_owned(), text(value))).into());
    }
}

fn of_agent(link: &Link, uaid: Uaid, table: &str) -> QueryFluentBuilder {
    link.client
        .query()
        .table_name(table)
        .expression_attribute_values(":uaid", text(uaid.to_string()))
        .consistent_read(true)
}

async fn send(link: &Link, table: &str, request: QueryFluentBuilder) -> Result<Batch, CallError> {
    let read = link.call("Query", table, request.send()).await?;
    let next = read.last_evaluated_key.as_ref();
    Ok(Batch {
        next: next.and_then(|key| text_of(key, SORT_KEY)).map(str::to_owned),
        items: read.items.unwrap_or_default(),
    })
}
