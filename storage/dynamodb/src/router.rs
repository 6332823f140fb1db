//! The router table: one item per user agent (docs/sources.md#router-table-schema).
//!
//! Items are updated, never replaced, so that attributes of other software stay. Two further items are [`HEALTH`] and
//! that of `key_fingerprints`.

use aws_sdk_dynamodb::types::ReturnValue;
use state_machine::{
    BridgeName, BridgeRecipient, LastConnect, Month, NodeId, RouterType, Time, Uaid,
};
use storage::maintenance::PREFLIGHT_UAID;
use storage::record_row::RecordRow;
use storage::registration;
use storage::rules::record_rows::{Changed, GuardedChange, RecordPage, RecordRows};
use storage::store::Cursor;

use crate::attributes::{UAID, json, number, number_of, text, text_of, uaid_key};
use crate::client::DynamoClient;
use crate::error::{CallError, Item, applied_once};
use crate::record_update::RecordUpdate;

/// Records in one page.
const RECORDS_MAX: i32 = 1000;

/// The name of `curmonth` in the last versions of autopush (docs/sources.md#router-table-schema).
const CURRENT_MONTH: &str = "current_month";

/// The key of the item that health checks write. It is no uaid, and the item has no `last_connect`:
/// it is not in the index and not counted.
pub(crate) const HEALTH: &str = "health";

pub(crate) const ROUTER_TYPE: &str = "router_type";
const ROUTER_DATA: &str = "router_data";

impl RecordRows for DynamoClient {
    type Error = CallError;

    /// One request, of one capacity unit per 4 KiB. Fails if the record is served and its months cannot be read.
    async fn record(&self, uaid: Uaid) -> Result<Option<RecordRow>, CallError> {
        let item = read_item(self, uaid).await?;
        item.map(|item| readable_row(self, uaid, &item, None)).transpose()
    }

    async fn change_record(&self, change: &GuardedChange) -> Result<Changed, CallError> {
        let row = |item| row(self, change.uaid, &item);
        match RecordUpdate::of_change(self, change).send(self).await {
            Ok(before) => Ok(Changed::Done(row(before))),
            Err(error) if error.is_condition_failed() => {
                Ok(Changed::Refused(error.into_item().map(row)))
            }
            Err(error) => Err(error),
        }
    }

    async fn change_records(&self, changes: Vec<GuardedChange>) -> Result<u64, CallError> {
        let updates = changes
            .iter()
            .map(async |change| self.change_record(change).await.map(|changed| changed.is_done()));
        let (written, done) = self.write_rows(updates.collect()).await;
        done.map_err(|error| error.after_writes(written > 0))?;
        Ok(written as u64)
    }

    /// By a scan, without the items of health checks, key fingerprints and preflight checks.
    async fn records(&self, after: Option<&Cursor>) -> Result<RecordPage, CallError> {
        let start = after.map(|after| Item::from([(UAID.to_owned(), text(after.as_str()))]));
        let (table, limit) = (&self.names.router, Some(RECORDS_MAX));
        let (items, next) = self.scan(table, Some(ATTRIBUTES), start, limit).await?;
        let next = next.as_ref().and_then(|key| text_of(key, UAID)).map(Cursor::new);
        let mut page = RecordPage { next, ..RecordPage::default() };
        for item in &items {
            let uaid = text_of(item, UAID).and_then(|uaid| Uaid::parse(uaid).ok());
            if let Some(uaid) = uaid.filter(|uaid| *uaid != PREFLIGHT_UAID) {
                page.unreadable += u64::from(readable_row(self, uaid, item, None).is_err());
                page.rows.push(row(self, uaid, item));
            }
        }
        Ok(page)
    }
}

/// Those of a record. Other software may have more.
const ATTRIBUTES: &str = "uaid, curmonth, current_month, oldmonth, router_type, router_data, node_id, connected_at, \
     last_connect";

/// Returns whether there was a record.
pub(crate) async fn drop_user(client: &DynamoClient, uaid: Uaid) -> Result<bool, CallError> {
    let table = &client.names.router;
    let request = client.sdk.delete_item().table_name(table).key(UAID, text(uaid.to_string()));
    let request = request.return_values(ReturnValue::AllOld);
    let dropped = client.call("DeleteItem", table, request.send()).await?;
    Ok(dropped.attributes.is_some_and(|item| !item.is_empty()))
}

pub(crate) async fn drop_bridged(
    client: &DynamoClient,
    uaid: Uaid,
    recipient: &BridgeRecipient,
) -> Result<bool, CallError> {
    let table = &client.names.router;
    let request = client
        .sdk
        .delete_item()
        .table_name(table)
        .key(UAID, text(uaid.to_string()))
        .condition_expression(IS_RECIPIENT)
        .expression_attribute_names("#token", "token")
        .expression_attribute_names("#app", registration::app_attribute(recipient.bridge))
        .expression_attribute_values(":app", text(&*recipient.app))
        .expression_attribute_values(":bridge", text(recipient.bridge.as_str()))
        .expression_attribute_values(":token", text(&*recipient.token));
    applied_once(client.call("DeleteItem", table, request.send()).await)
}

/// The record has this bridge, token and application, in the attributes and the order of `registration::router_type`.
const IS_RECIPIENT: &str = "router_type = :bridge AND router_data.#token = :token \
    AND (router_data.#app = :app OR attribute_not_exists(router_data.#app) \
    AND (router_data.app_id = :app OR attribute_not_exists(router_data.app_id) \
    AND router_data.creds.senderID = :app))";

/// The write of a health check.
pub(crate) async fn check(client: &DynamoClient) -> Result<(), CallError> {
    let change = RecordUpdate::of_key(HEALTH.to_owned()).expression("ADD checks :one");
    change.with(":one", number(1_u64)).send(client).await.map(|_changed| ())
}

/// A record of any type. A month that cannot be read is none, and so is the recipient of a record without a month.
pub(crate) fn row(client: &DynamoClient, uaid: Uaid, item: &Item) -> RecordRow {
    let router_type = text_of(item, ROUTER_TYPE).unwrap_or(RouterType::WebPush.as_str());
    let recipient = registration::recipient(router_type, || item.get(ROUTER_DATA).map(json));
    RecordRow {
        uaid,
        router_type: router_type.to_owned(),
        recipient: recipient.filter(|_| has_month(item)),
        // Other software writes nodes of its own into the records of bridges.
        node: node(item).filter(|_| BridgeName::parse(router_type).is_none()),
        // A record without the attribute is older than any connection.
        connected_at: Time(number_of(item, "connected_at").unwrap_or(0)),
        last_connect: LastConnect(number_of(item, "last_connect").unwrap_or(0)),
        curmonth: curmonth(client, item).unwrap_or_default(),
        oldmonth: month(client, item, "oldmonth").unwrap_or_default(),
    }
}

/// The same. Fails if a record that is served has a month that cannot be read, or none and there is no `create_in` in its
/// place. Without a month, a record of another type than Web Push counts as none.
pub(crate) fn readable_row(
    client: &DynamoClient,
    uaid: Uaid,
    item: &Item,
    create_in: Option<Month>,
) -> Result<RecordRow, CallError> {
    let row = row(client, uaid, item);
    let is_web_push = row.router_type == RouterType::WebPush.as_str();
    if is_web_push || has_month(item) && row.has_served_type() {
        let (curmonth, _oldmonth) = months(client, item)?;
        curmonth.or(create_in).ok_or_else(|| unreadable(client, "a record has no `curmonth`"))?;
    }
    Ok(row)
}

fn has_month(item: &Item) -> bool {
    ["curmonth", CURRENT_MONTH].iter().any(|name| item.contains_key(*name))
}

/// `curmonth` and `oldmonth` of a record.
pub(crate) fn months(
    client: &DynamoClient,
    item: &Item,
) -> Result<(Option<Month>, Option<Month>), CallError> {
    Ok((curmonth(client, item)?, month(client, item, "oldmonth")?))
}

fn curmonth(client: &DynamoClient, item: &Item) -> Result<Option<Month>, CallError> {
    match month(client, item, "curmonth")? {
        None => month(client, item, CURRENT_MONTH),
        curmonth => Ok(curmonth),
    }
}

fn month(client: &DynamoClient, item: &Item, attribute: &str) -> Result<Option<Month>, CallError> {
    let Some(there) = item.get(attribute) else { return Ok(None) };
    let there = there.as_s().map_or("", String::as_str);
    client.names.month_of_record(there).map(Some).ok_or_else(|| {
        let what = "which is no message table by the prefixes that are set";
        unreadable(client, &format!("a record has the {attribute} `{there}`, {what}"))
    })
}

fn unreadable(client: &DynamoClient, what: &str) -> CallError {
    CallError::unreadable("reading a record", &client.names.router, what)
}

fn node(item: &Item) -> Option<NodeId> {
    text_of(item, "node_id").filter(|node| !node.is_empty()).map(NodeId::new)
}

pub(crate) async fn read_item(
    client: &DynamoClient,
    uaid: Uaid,
) -> Result<Option<Item>, CallError> {
    client.get(&client.names.router, uaid_key(uaid)).await
}
