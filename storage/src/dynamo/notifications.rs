//! SimplePush notifications: an item a channel, with its last version (seed 001, `create_storage_table`).

use state_machine::{Chid, Uaid};

use super::attributes::{UAID, number, number_of, text, text_of};
use super::client::DynamoClient;
use super::error::{CallError, Item};
use super::{Dynamo, tables};
use crate::notifications::{Notification, NotificationTable};
use crate::store::StoreFuture;

/// The sort key.
pub(super) const CHID: &str = "chid";

impl NotificationTable for Dynamo {
    fn ensure_notifications(&self) -> StoreFuture<()> {
        self.call(async move |client| tables::ensure_legacy(&client).await)
    }

    fn fetch_notifications(
        &self,
        uaid: Uaid,
        after: Option<Chid>,
        limit: usize,
    ) -> StoreFuture<Vec<Notification>> {
        self.call(async move |client| fetch(&client, uaid, after, limit).await)
    }

    fn save_notification(&self, uaid: Uaid, notification: Notification) -> StoreFuture<bool> {
        self.write(uaid, async move |client| save(&client, uaid, notification).await)
    }

    fn delete_notification(
        &self,
        uaid: Uaid,
        chid: Chid,
        version: Option<u64>,
    ) -> StoreFuture<bool> {
        self.write(uaid, async move |client| delete(&client, uaid, chid, version).await)
    }
}

async fn fetch(
    client: &DynamoClient,
    uaid: Uaid,
    after: Option<Chid>,
    limit: usize,
) -> Result<Vec<Notification>, CallError> {
    let mut found = Vec::new();
    let mut start = after.map(|chid| key(uaid, chid));
    while found.len() < limit {
        let left = (limit - found.len()).min(ITEMS_MAX) as i32;
        let page = match query(client, uaid, start.take(), left).await {
            Err(error) if error.is_table_missing() => break,
            page => page?,
        };
        found.extend(page.0.iter().filter_map(decode));
        match page.1 {
            Some(next) => start = Some(next),
            None => break,
        }
    }
    Ok(found)
}

/// Items that one request asks for.
const ITEMS_MAX: usize = 1000;

async fn query(
    client: &DynamoClient,
    uaid: Uaid,
    start: Option<Item>,
    limit: i32,
) -> Result<(Vec<Item>, Option<Item>), CallError> {
    let table = client.names.legacy();
    let request = client
        .sdk
        .query()
        .table_name(table)
        .key_condition_expression("uaid = :uaid")
        .expression_attribute_values(":uaid", text(uaid.to_string()))
        .consistent_read(true)
        .set_exclusive_start_key(start)
        .limit(limit);
    let page = client.call("Query", table, request.send()).await?;
    Ok((page.items.unwrap_or_default(), page.last_evaluated_key))
}

/// The table is made by the first that finds it missing.
async fn save(
    client: &DynamoClient,
    uaid: Uaid,
    notification: Notification,
) -> Result<bool, CallError> {
    match put(client, uaid, notification).await {
        Err(error) if error.is_table_missing() => {
            tables::ensure_legacy(client).await?;
            put(client, uaid, notification).await
        }
        done => done,
    }
}

async fn put(
    client: &DynamoClient,
    uaid: Uaid,
    notification: Notification,
) -> Result<bool, CallError> {
    let table = client.names.legacy();
    let request = client
        .sdk
        .put_item()
        .table_name(table)
        .set_item(Some(key(uaid, notification.chid)))
        .item(VERSION, number(notification.version))
        .condition_expression("attribute_not_exists(version) OR version < :version")
        .expression_attribute_values(":version", number(notification.version));
    was_applied(client.call("PutItem", table, request.send()).await)
}

async fn delete(
    client: &DynamoClient,
    uaid: Uaid,
    chid: Chid,
    version: Option<u64>,
) -> Result<bool, CallError> {
    let table = client.names.legacy();
    let request = client.sdk.delete_item().table_name(table).set_key(Some(key(uaid, chid)));
    let request = match version {
        Some(version) => request
            .condition_expression("version = :version")
            .expression_attribute_values(":version", number(version)),
        None => request.condition_expression("attribute_exists(uaid)"),
    };
    match client.call("DeleteItem", table, request.send()).await {
        Err(error) if error.is_table_missing() => Ok(false),
        done => was_applied(done),
    }
}

const VERSION: &str = "version";

fn key(uaid: Uaid, chid: Chid) -> Item {
    Item::from([
        (UAID.to_owned(), text(uaid.to_string())),
        (CHID.to_owned(), text(chid.to_string())),
    ])
}

/// What is no channel id on the wire cannot be asked for, and is passed over.
fn decode(item: &Item) -> Option<Notification> {
    let chid = Chid::parse(text_of(item, CHID)?).ok()?;
    Some(Notification { chid, version: number_of(item, VERSION)? })
}

fn was_applied<T>(done: Result<T, CallError>) -> Result<bool, CallError> {
    match done {
        Ok(_done) => Ok(true),
        // The first attempt did it, and only its answer was lost; or another did meanwhile.
        Err(error) if error.is_condition_failed() => Ok(error.is_indeterminate()),
        Err(error) => Err(error),
    }
}
