//! Finds inactive users by the `last_connect` index, and drops them.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{DeleteRequest, WriteRequest};
use futures_util::future::try_join_all;
use state_machine::{LastConnect, Uaid};
use tokio::time::sleep;

use super::attributes::{UAID, number, text, text_of};
use super::client::DynamoClient;
use super::error::{CallError, Item, applied_once};
use super::last_connect_index;
use super::messages::write_rows;
use super::table_schema::{INDEX, INDEX_KEY};
use crate::maintenance::{InactiveUser, InactiveUsers, MonthRange, USERS_IN_A_BATCH};
use crate::store::Cursor;

/// Keys that one call queries, two days' at the default spread: bounds a call in an empty month.
const KEYS_MAX: usize = 480;

pub(super) async fn find(
    client: &DynamoClient,
    seen: MonthRange,
    after: Option<Cursor>,
) -> Result<InactiveUsers, CallError> {
    let (first, mut behind) = match after {
        None => (seen.keys().start, None),
        Some(cursor) => {
            let position = ScanPosition::parse(&cursor).ok_or_else(|| no_position(client))?;
            (position.key, position.behind)
        }
    };
    let keys = last_connect_index::keys(seen, client.options.last_connect_shards);
    let mut keys = keys.skip_while(|key| *key < first).peekable();
    let mut users = Vec::new();
    let at_once = client.options.rows_in_flight_max.clamp(1, KEYS_MAX);
    for _round in 0..KEYS_MAX.div_ceil(at_once) {
        let queries = keys.by_ref().take(at_once).map(|key| query(client, key, behind.take()));
        for KeyPage { key, uaids, last } in try_join_all(queries.collect::<Vec<_>>()).await? {
            let room = USERS_IN_A_BATCH - users.len();
            let behind = uaids.get(room - 1).copied().or(last);
            let found = uaids.into_iter().take(room);
            users.extend(found.map(|uaid| InactiveUser { uaid, last_connect: key }));
            if behind.is_some() {
                let next = Some(ScanPosition { key, behind }.cursor());
                return Ok(InactiveUsers { users, next });
            }
        }
    }
    let next = keys.peek().map(|key| ScanPosition { key: *key, behind: None }.cursor());
    Ok(InactiveUsers { users, next })
}

/// Drops those whose `last_connect` is unchanged. Returns the number of dropped users.
pub(super) async fn drop_unchanged(
    client: &DynamoClient,
    users: Vec<InactiveUser>,
) -> Result<usize, CallError> {
    let drops = users.into_iter().map(|user| drop_one(client, user));
    let (dropped, done) = write_rows(client, drops.collect()).await;
    done.map_err(|error| error.after_writes(dropped > 0))?;
    Ok(dropped)
}

/// Drops users unconditionally, one batch per request. What DynamoDB did not process of a batch is
/// sent again after a pause.
pub(super) async fn drop_all(client: &DynamoClient, uaids: Vec<Uaid>) -> Result<(), CallError> {
    let mut some = false;
    for batch in uaids.chunks(USERS_IN_A_BATCH) {
        let deletes = batch.iter().map(|uaid| delete_request(*uaid)).collect();
        delete_batch(client, deletes, &mut some).await.map_err(|error| error.after_writes(some))?;
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
struct ScanPosition {
    key: LastConnect,
    /// The last user of that key that was returned.
    behind: Option<Uaid>,
}

impl ScanPosition {
    fn cursor(&self) -> Cursor {
        Cursor::new(match self.behind {
            None => self.key.0.to_string(),
            Some(uaid) => format!("{} {uaid}", self.key.0),
        })
    }

    fn parse(cursor: &Cursor) -> Option<Self> {
        let (key, behind) = match cursor.as_str().split_once(' ') {
            None => (cursor.as_str(), None),
            Some((key, uaid)) => (key, Some(uaid.parse().ok()?)),
        };
        Some(Self { key: LastConnect(key.parse().ok()?), behind })
    }
}

fn no_position(client: &DynamoClient) -> CallError {
    CallError::unreadable("Query", &client.names.router, "the cursor of the search is invalid")
}

/// A page of the users of one key.
pub(super) struct KeyPage {
    key: LastConnect,
    uaids: Vec<Uaid>,
    /// The last user of the page, if there may be more.
    last: Option<Uaid>,
}

pub(super) async fn query(
    client: &DynamoClient,
    key: LastConnect,
    behind: Option<Uaid>,
) -> Result<KeyPage, CallError> {
    let table = &client.names.router;
    let start = behind.map(|uaid| {
        let uaid = (UAID.to_owned(), text(uaid.to_string()));
        Item::from([uaid, (INDEX_KEY.to_owned(), number(key.0))])
    });
    let request = client
        .sdk
        .query()
        .table_name(table)
        .index_name(INDEX)
        .key_condition_expression("last_connect = :key")
        .expression_attribute_values(":key", number(key.0))
        .set_exclusive_start_key(start)
        .limit(USERS_IN_A_BATCH as i32);
    let page = client.call("Query", table, request.send()).await?;
    let uaid = |item: &Item| text_of(item, UAID).and_then(|uaid| uaid.parse().ok());
    let uaids = page.items().iter().filter_map(uaid).collect();
    Ok(KeyPage { key, uaids, last: page.last_evaluated_key.as_ref().and_then(uaid) })
}

async fn drop_one(client: &DynamoClient, user: InactiveUser) -> Result<bool, CallError> {
    let table = &client.names.router;
    let request = client
        .sdk
        .delete_item()
        .table_name(table)
        .key(UAID, text(user.uaid.to_string()))
        .condition_expression("last_connect = :seen")
        .expression_attribute_values(":seen", number(user.last_connect.0));
    applied_once(client.call("DeleteItem", table, request.send()).await)
}

fn delete_request(uaid: Uaid) -> WriteRequest {
    let delete = DeleteRequest::builder().key(UAID, text(uaid.to_string())).build();
    WriteRequest::builder().delete_request(delete.expect("it has a key")).build()
}

async fn delete_batch(
    client: &DynamoClient,
    deletes: Vec<WriteRequest>,
    some: &mut bool,
) -> Result<(), CallError> {
    let table = &client.names.router;
    let mut left = HashMap::from([(table.to_owned(), deletes)]);
    for attempt in 1..=client.options.attempts_max.max(1) {
        let asked = left.values().map(Vec::len).sum::<usize>();
        let request = client.sdk.batch_write_item().set_request_items(Some(left));
        let answer = client.call(BATCH, table, request.send()).await?;
        left = answer.unprocessed_items.unwrap_or_default();
        left.retain(|_table, deletes| !deletes.is_empty());
        *some |= left.values().map(Vec::len).sum::<usize>() < asked;
        if left.is_empty() {
            return Ok(());
        }
        sleep(client.pause_before(attempt)).await;
    }
    Err(CallError::throttled(BATCH, table))
}

const BATCH: &str = "BatchWriteItem";
