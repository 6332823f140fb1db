//! The router table: one item per user agent (docs/sources.md#router-table-schema).
//!
//! Items are updated, never replaced, so that attributes of other software (`router_data`, those of
//! a bridge) stay. Two further items are [`HEALTH`] and that of `key_fingerprints`.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{
    AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure as OnFailure,
};
use state_machine::{
    LastConnect, Month, NodeBinding, NodeId, RouterRecord, RouterType, Time, Uaid,
};

use super::attributes::{UAID, number, number_of, text, text_of, uaid_key};
use super::client::DynamoClient;
use super::error::{CallError, Item, applied};
use crate::store::MonthStep;

/// The key of the item that health checks write. It is no uaid, and the item has no `last_connect`:
/// it is not in the index and not counted.
pub(super) const HEALTH: &str = "health";

pub(super) const UPDATE: &str = "UpdateItem";

pub(super) const ROUTER_TYPE: &str = "router_type";

/// Reads a record: one request, of one capacity unit per 4 KiB.
pub(super) async fn read(
    client: &DynamoClient,
    uaid: Uaid,
) -> Result<Option<RouterRecord>, CallError> {
    let item = read_item(client, uaid).await?.filter(is_served);
    item.map(|item| decode(client, uaid, &item)).transpose()
}

pub(super) async fn update_message_month(
    client: &DynamoClient,
    step: &MonthStep,
) -> Result<bool, CallError> {
    let change = RecordUpdate::of(step.uaid)
        .expression("SET curmonth = :to, oldmonth = :from, last_connect = :last_connect")
        .only_if(MINE)
        .with(":to", text(client.names.value(step.to)))
        .with(":from", text(client.names.value(step.from)))
        .with(":last_connect", number(step.last_connect.0))
        .mine(&step.node, step.connected_at);
    applied(change.send(client).await)
}

pub(super) async fn finish_month_move(
    client: &DynamoClient,
    step: &MonthStep,
) -> Result<bool, CallError> {
    let [value, full, bare] = client.names.record_forms(step.from);
    let change = RecordUpdate::of(step.uaid)
        .expression("REMOVE oldmonth")
        .only_if("node_id = :node AND connected_at = :at AND oldmonth IN (:value, :full, :bare)")
        .with(":value", text(value))
        .with(":full", text(full))
        .with(":bare", text(bare))
        .mine(&step.node, step.connected_at);
    match change.try_send(client).await? {
        Updated::Done(_before) => Ok(true),
        // `oldmonth` was another or absent: only the owner of the record counts.
        Updated::Refused { item, .. } => {
            Ok(item.is_some_and(|item| is_of(&item, &step.node, step.connected_at)))
        }
    }
}

pub(super) async fn clear_node(
    client: &DynamoClient,
    uaid: Uaid,
    node: &NodeId,
    connected_at: Time,
) -> Result<bool, CallError> {
    let change = RecordUpdate::of(uaid).expression("REMOVE node_id").only_if(MINE);
    applied(change.mine(node, connected_at).send(client).await)
}

/// Returns whether there was a record.
pub(super) async fn drop_user(client: &DynamoClient, uaid: Uaid) -> Result<bool, CallError> {
    let table = &client.names.router;
    let request = client.sdk.delete_item().table_name(table).key(UAID, text(uaid.to_string()));
    let request = request.return_values(ReturnValue::AllOld);
    let dropped = client.call("DeleteItem", table, request.send()).await?;
    Ok(dropped.attributes.is_some_and(|item| !item.is_empty()))
}

/// The write of a health check.
pub(super) async fn check(client: &DynamoClient) -> Result<(), CallError> {
    let change = RecordUpdate::of_key(HEALTH.to_owned()).expression("ADD checks :one");
    change.with(":one", number(1_u64)).send(client).await.map(|_changed| ())
}

/// Decodes a record that is served.
pub(super) fn decode(
    client: &DynamoClient,
    uaid: Uaid,
    item: &Item,
) -> Result<RouterRecord, CallError> {
    let (curmonth, oldmonth) = months(client, item)?;
    Ok(RouterRecord {
        uaid,
        router_type: router_type(item)
            .ok_or_else(|| unreadable(client, "a record is not served"))?,
        node: node(item),
        connected_at: connected_at(item),
        last_connect: LastConnect(number_of(item, "last_connect").unwrap_or(0)),
        curmonth: curmonth.ok_or_else(|| without_month(client))?,
        oldmonth,
    })
}

/// Whether a record has a router type that is served. Any other counts as none.
pub(super) fn is_served(item: &Item) -> bool {
    router_type(item).is_some()
}

/// The router type, if it is served: a record without one is of Web Push. One of SimplePush without a month is of older
/// software.
pub(super) fn router_type(item: &Item) -> Option<RouterType> {
    let Some(there) = text_of(item, ROUTER_TYPE) else { return Some(RouterType::WebPush) };
    RouterType::parse(there)
        .filter(|there| *there != RouterType::SimplePush || item.contains_key("curmonth"))
}

/// `curmonth` and `oldmonth` of a record.
pub(super) fn months(
    client: &DynamoClient,
    item: &Item,
) -> Result<(Option<Month>, Option<Month>), CallError> {
    Ok((month(client, item, "curmonth")?, month(client, item, "oldmonth")?))
}

fn month(client: &DynamoClient, item: &Item, attribute: &str) -> Result<Option<Month>, CallError> {
    let Some(there) = item.get(attribute) else { return Ok(None) };
    let there = there.as_s().map_or("", String::as_str);
    client.names.month_of_record(there).map(Some).ok_or_else(|| {
        let what = "which is no message table by the prefixes that are set";
        unreadable(client, &format!("a record has the {attribute} `{there}`, {what}"))
    })
}

pub(super) fn without_month(client: &DynamoClient) -> CallError {
    unreadable(client, "a record has no `curmonth`")
}

fn unreadable(client: &DynamoClient, what: &str) -> CallError {
    CallError::unreadable("reading a record", &client.names.router, what)
}

pub(super) fn place(item: &Item) -> Option<NodeBinding> {
    Some(NodeBinding { node: node(item)?, connected_at: connected_at(item) })
}

fn node(item: &Item) -> Option<NodeId> {
    text_of(item, "node_id").filter(|node| !node.is_empty()).map(NodeId::new)
}

/// A record without the attribute is older than any connection.
pub(super) fn connected_at(item: &Item) -> Time {
    Time(number_of(item, "connected_at").unwrap_or(0))
}

pub(super) async fn read_item(
    client: &DynamoClient,
    uaid: Uaid,
) -> Result<Option<Item>, CallError> {
    client.get(&client.names.router, uaid_key(uaid)).await
}

pub(super) fn is_of(item: &Item, node: &NodeId, at: Time) -> bool {
    text_of(item, "node_id") == Some(node.as_str()) && connected_at(item) == at
}

/// The record still belongs to the connection of [`RecordUpdate::mine`].
const MINE: &str = "node_id = :node AND connected_at = :at";

/// An update of one item of the router table.
pub(super) struct RecordUpdate {
    key: String,
    expression: String,
    condition: Option<String>,
    values: HashMap<String, AttributeValue>,
}

/// The result of [`RecordUpdate::try_send`].
pub(super) enum Updated {
    /// With the item before it, without attributes if there was none.
    Done(Item),
    /// The condition does not hold for this item.
    Refused {
        item: Option<Item>,
        /// An earlier attempt may have made the update.
        indeterminate: bool,
    },
}

impl RecordUpdate {
    pub(super) fn of(uaid: Uaid) -> Self {
        Self::of_key(uaid.to_string())
    }

    pub(super) fn of_key(key: String) -> Self {
        Self { key, expression: String::new(), condition: None, values: HashMap::new() }
    }

    pub(super) fn expression(self, expression: &str) -> Self {
        Self { expression: expression.to_owned(), ..self }
    }

    pub(super) fn only_if(self, condition: &str) -> Self {
        Self { condition: Some(condition.to_owned()), ..self }
    }

    pub(super) fn with(mut self, name: &str, value: AttributeValue) -> Self {
        self.values.insert(name.to_owned(), value);
        self
    }

    pub(super) fn mine(self, node: &NodeId, connected_at: Time) -> Self {
        self.with(":node", text(node.as_str())).with(":at", number(connected_at.0))
    }

    /// Returns the item before the update, without attributes if there was none.
    pub(super) async fn send(self, client: &DynamoClient) -> Result<Item, CallError> {
        let table = &client.names.router;
        let request = client
            .sdk
            .update_item()
            .table_name(table)
            .key(UAID, text(self.key))
            .update_expression(self.expression)
            .set_condition_expression(self.condition)
            .set_expression_attribute_values(Some(self.values))
            .return_values(ReturnValue::AllOld)
            .return_values_on_condition_check_failure(OnFailure::AllOld);
        let changed = client.call(UPDATE, table, request.send()).await?;
        Ok(changed.attributes.unwrap_or_default())
    }
    /// As [`RecordUpdate::send`], and returns the present item if the condition does not hold.
    pub(super) async fn try_send(self, client: &DynamoClient) -> Result<Updated, CallError> {
        let key = Item::from([(UAID.to_owned(), text(&self.key))]);
        let error = match self.send(client).await {
            Ok(before) => return Ok(Updated::Done(before)),
            Err(error) if error.is_condition_failed() => error,
            Err(error) => return Err(error),
        };
        let indeterminate = error.is_indeterminate();
        let item = match error.into_item() {
            Some(item) => Some(item),
            None => client.get(&client.names.router, key).await?,
        };
        Ok(Updated::Refused { item, indeterminate })
    }
}
