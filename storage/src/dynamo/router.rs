//! The router table: one item per user agent (docs/sources.md#router-table-schema).
//!
//! Items are updated, never replaced, so that attributes of other software stay. Two further items are [`HEALTH`] and
//! that of `key_fingerprints`.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{
    AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure as OnFailure,
};
use state_machine::{
    BridgeName, BridgeRecipient, LastConnect, Month, NodeBinding, NodeId, RouterRecord, RouterType,
    Time, Uaid,
};

use super::attributes::{UAID, json, number, number_of, text, text_of, uaid_key};
use super::client::DynamoClient;
use super::error::{CallError, Item, applied, applied_once};
use crate::registration;
use crate::rows::RecordRow;
use crate::store::MonthStep;

/// The name of `curmonth` in the last versions of autopush (docs/sources.md#router-table-schema).
pub(super) const CURRENT_MONTH: &str = "current_month";

/// The key of the item that health checks write. It is no uaid, and the item has no `last_connect`:
/// it is not in the index and not counted.
pub(super) const HEALTH: &str = "health";

pub(super) const UPDATE: &str = "UpdateItem";

pub(super) const ROUTER_TYPE: &str = "router_type";
pub(super) const ROUTER_DATA: &str = "router_data";

/// Reads a record: one request, of one capacity unit per 4 KiB.
pub(super) async fn read(
    client: &DynamoClient,
    uaid: Uaid,
) -> Result<Option<RouterRecord>, CallError> {
    match read_item(client, uaid).await? {
        Some(item) => decode(client, uaid, &item),
        None => Ok(None),
    }
}

pub(super) async fn update_message_month(
    client: &DynamoClient,
    step: &MonthStep,
) -> Result<bool, CallError> {
    let change = RecordUpdate::of(step.uaid)
        .expression("SET curmonth = :to, oldmonth = :from, last_connect = :last_connect")
        .with(":to", text(client.names.value(step.to)))
        .with(":from", text(client.names.value(step.from)))
        .with(":last_connect", number(step.last_connect.0));
    let change = match &step.node {
        Some(node) => change.only_if(MINE).mine(node, step.connected_at),
        None => {
            let [_value, full, bare] = client.names.record_forms(step.from);
            let from = "(curmonth IN (:from, :full, :bare) OR attribute_not_exists(curmonth) \
                        AND current_month IN (:from, :full, :bare)) AND attribute_not_exists(oldmonth)";
            change
                .of_bridge(step.connected_at, from)
                .with(":full", text(full))
                .with(":bare", text(bare))
        }
    };
    applied(change.send(client).await)
}

pub(super) async fn finish_month_move(
    client: &DynamoClient,
    step: &MonthStep,
) -> Result<bool, CallError> {
    let [value, full, bare] = client.names.record_forms(step.from);
    let change = RecordUpdate::of(step.uaid)
        .expression("REMOVE oldmonth")
        .with(":value", text(value))
        .with(":full", text(full))
        .with(":bare", text(bare));
    let from = "oldmonth IN (:value, :full, :bare)";
    let change = match &step.node {
        Some(node) => change.only_if(&format!("{MINE} AND {from}")).mine(node, step.connected_at),
        None => change.of_bridge(step.connected_at, from),
    };
    match change.try_send(client).await? {
        Updated::Done(_before) => Ok(true),
        // `oldmonth` was another or absent: only the owner of the record counts.
        Updated::Refused { item, .. } => Ok(item.is_some_and(|item| is_moved_by(&item, step))),
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

pub(super) async fn drop_bridged(
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
pub(super) async fn check(client: &DynamoClient) -> Result<(), CallError> {
    let change = RecordUpdate::of_key(HEALTH.to_owned()).expression("ADD checks :one");
    change.with(":one", number(1_u64)).send(client).await.map(|_changed| ())
}

/// Decodes a record. None for one that is not served.
pub(super) fn decode(
    client: &DynamoClient,
    uaid: Uaid,
    item: &Item,
) -> Result<Option<RouterRecord>, CallError> {
    let Some(router_type) = router_type(item) else { return Ok(None) };
    let (curmonth, oldmonth) = months(client, item)?;
    // Other software writes nodes of its own into the records of bridges.
    let node = node(item).filter(|_| router_type.recipient().is_none());
    Ok(Some(RouterRecord {
        uaid,
        router_type,
        node,
        connected_at: connected_at(item),
        last_connect: LastConnect(number_of(item, "last_connect").unwrap_or(0)),
        curmonth: curmonth.ok_or_else(|| without_month(client))?,
        oldmonth,
    }))
}

/// A record of any type, with what its bridge needs if that can be read. None for one without a month that counts as none.
pub(super) fn record_row(
    client: &DynamoClient,
    uaid: Uaid,
    item: &Item,
) -> Result<Option<RecordRow>, CallError> {
    let (curmonth, oldmonth) = months(client, item)?;
    let served = router_type(item);
    let Some(curmonth) = curmonth else {
        return if served.is_some() { Err(without_month(client)) } else { Ok(None) };
    };
    let web_push = RouterType::WebPush;
    Ok(Some(RecordRow {
        uaid,
        router_type: text_of(item, ROUTER_TYPE).unwrap_or(web_push.as_str()).to_owned(),
        recipient: served.and_then(|served| served.recipient().cloned()),
        connected_at: connected_at(item),
        last_connect: LastConnect(number_of(item, "last_connect").unwrap_or(0)),
        curmonth,
        oldmonth,
    }))
}

/// How the agent of a record is reached: by Web Push without a type. None for a record that counts as none, such as
/// that of a bridge without a month.
pub(super) fn router_type(item: &Item) -> Option<RouterType> {
    let Some(name) = text_of(item, ROUTER_TYPE) else { return Some(RouterType::WebPush) };
    let router_type = registration::router_type(name, || item.get(ROUTER_DATA).map(json))?;
    let is_whole = router_type == RouterType::WebPush
        || ["curmonth", CURRENT_MONTH].iter().any(|name| item.contains_key(*name));
    is_whole.then_some(router_type)
}

/// `curmonth` and `oldmonth` of a record.
pub(super) fn months(
    client: &DynamoClient,
    item: &Item,
) -> Result<(Option<Month>, Option<Month>), CallError> {
    let curmonth = match month(client, item, "curmonth")? {
        None => month(client, item, CURRENT_MONTH)?,
        curmonth => curmonth,
    };
    Ok((curmonth, month(client, item, "oldmonth")?))
}

/// Gives a record its `curmonth` if only the last versions of the Python autopush wrote it.
pub(super) async fn adopt_month(
    client: &DynamoClient,
    uaid: Uaid,
    item: &Item,
) -> Result<(), CallError> {
    let Some(month) = month(client, item, CURRENT_MONTH)? else { return Ok(()) };
    if item.contains_key("curmonth") || router_type(item).is_none() {
        return Ok(());
    }
    let change = RecordUpdate::of(uaid)
        .expression("SET curmonth = :month")
        .only_if("attribute_exists(uaid) AND attribute_not_exists(curmonth)")
        .with(":month", text(client.names.value(month)));
    applied(change.send(client).await).map(|_is_changed| ())
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

pub(super) fn node(item: &Item) -> Option<NodeId> {
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

/// Whether the record still is that of a month's step.
fn is_moved_by(item: &Item, step: &MonthStep) -> bool {
    match &step.node {
        Some(node) => is_of(item, node, step.connected_at),
        None => {
            router_type(item).is_some_and(|router_type| router_type.recipient().is_some())
                && connected_at(item) == step.connected_at
        }
    }
}

/// The record still belongs to the connection of [`RecordUpdate::mine`].
const MINE: &str = "node_id = :node AND connected_at = :at";

/// The router types of [`BridgeName::ALL`].
pub(super) const BRIDGES: &str = ":fcm, :apns";

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

    /// The record is one of an agent behind a bridge, with this `connected_at` and this condition.
    fn of_bridge(self, connected_at: Time, condition: &str) -> Self {
        let at = match connected_at {
            Time(0) => "(attribute_not_exists(connected_at) OR connected_at = :at)",
            _ => "connected_at = :at",
        };
        self.only_if(&format!("router_type IN ({BRIDGES}) AND {at} AND {condition}"))
            .with(":at", number(connected_at.0))
            .with_bridges()
    }

    /// The values of [`BRIDGES`].
    pub(super) fn with_bridges(self) -> Self {
        let names = BRIDGES.split(", ").zip(BridgeName::ALL);
        names.fold(self, |update, (name, bridge)| update.with(name, text(bridge.as_str())))
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
