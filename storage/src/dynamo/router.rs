//! The router table: one item a user agent (seed 002, "Router Table Schema").
//!
//! Items are changed, never replaced, so that attributes of others (`router_data` and what a bridge
//! keeps) stay. Beside the user agents there is one item more, [`HEALTH`].

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{
    AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure as OnFailure,
};
use state_machine::{LastConnect, NodeId, RouterRecord, RouterType, Time, Uaid};

use super::attributes::{UAID, number, number_of, text, text_of};
use super::error::{CallError, Item};
use super::link::Link;
use super::names::Names;
use crate::contract::{MonthStep, Registered, Registration};

/// The key of the item that health checks write: no uaid, and without `last_connect`, so that it is
/// not in the index and no census counts it.
pub(super) const HEALTH: &str = "health";

/// What the original calls the version of a record's format.
const RECORD_VERSION: u64 = 2;
/// How often a registration is tried whose record came and went meanwhile.
const REGISTER_ATTEMPTS_MAX: u32 = 3;

const UPDATE: &str = "UpdateItem";

/// Reads a record: one request, of one capacity unit for each 4 KiB.
pub(super) async fn read(link: &Link, uaid: Uaid) -> Result<Option<RouterRecord>, CallError> {
    let item = read_item(link, uaid).await?;
    item.map(|item| decode(link, uaid, &item)).transpose()
}

/// Writes who connected, unless the record is as new.
pub(super) async fn register(
    link: &Link,
    registration: &Registration,
) -> Result<Registered, CallError> {
    let mut attempt = 1;
    loop {
        let refused = match write_registration(link, registration).await {
            Ok(record) => return Ok(Registered::Done(record, None)),
            Err(error) if error.is_condition_failed() => error,
            Err(error) => return Err(error),
        };
        let doubtful = refused.is_doubtful();
        let item = match refused.into_item() {
            Some(item) => Some(item),
            None => read_item(link, registration.uaid).await?,
        };
        let answer = why_refused(link, registration, item, doubtful)?;
        match answer {
            Some(answer) => return Ok(answer),
            None if attempt < REGISTER_ATTEMPTS_MAX => attempt += 1,
            None => {
                let reason = "the record changes all the time";
                return Err(CallError::unreadable(UPDATE, link.names.router(), reason));
            }
        }
    }
}

/// Sets the month, if the record is still this connection's.
pub(super) async fn update_message_month(link: &Link, step: &MonthStep) -> Result<bool, CallError> {
    let change = Change::of(step.uaid)
        .expression("SET curmonth = :to, oldmonth = :from, last_connect = :last_connect")
        .only_if(MINE)
        .with(":to", text(link.names.value(step.to)))
        .with(":from", text(link.names.value(step.from)))
        .with(":last_connect", number(step.last_connect.0))
        .mine(&step.node, step.connected_at);
    happened(change.send(link).await)
}

/// Forgets the old month, if the record is still this connection's.
pub(super) async fn finish_month_move(link: &Link, step: &MonthStep) -> Result<bool, CallError> {
    let [value, full, bare] = link.names.record_forms(step.from);
    let change = Change::of(step.uaid)
        .expression("REMOVE oldmonth")
        .only_if("node_id = :node AND connected_at = :at AND oldmonth IN (:value, :full, :bare)")
        .with(":value", text(value))
        .with(":full", text(full))
        .with(":bare", text(bare))
        .mine(&step.node, step.connected_at);
    let refused = match change.send(link).await {
        Ok(_changed) => return Ok(true),
        Err(error) if error.is_condition_failed() => error,
        Err(error) => return Err(error),
    };
    let item = match refused.into_item() {
        Some(item) => Some(item),
        None => read_item(link, step.uaid).await?,
    };
    // There was nothing to forget; it counts whose the record is.
    Ok(item.is_some_and(|item| is_of(&item, &step.node, step.connected_at)))
}

/// Removes the node, if it is still this connection's.
pub(super) async fn clear_node(
    link: &Link,
    uaid: Uaid,
    node: &NodeId,
    connected_at: Time,
) -> Result<bool, CallError> {
    let change = Change::of(uaid).expression("REMOVE node_id").only_if(MINE);
    happened(change.mine(node, connected_at).send(link).await)
}

/// Removes a record. Answers whether there was one.
pub(super) async fn drop_user(link: &Link, uaid: Uaid) -> Result<bool, CallError> {
    let table = link.names.router();
    let request = link.client.delete_item().table_name(table).key(UAID, text(uaid.to_string()));
    let request = request.return_values(ReturnValue::AllOld);
    let dropped = link.call("DeleteItem", table, request.send()).await?;
    Ok(dropped.attributes.is_some_and(|item| !item.is_empty()))
}

/// Writes something that means nothing.
pub(super) async fn check(link: &Link) -> Result<(), CallError> {
    let change = Change::of_key(HEALTH.to_owned()).expression("ADD checks :one");
    change.with(":one", number(1_u64)).send(link).await.map(|_changed| ())
}

/// Reads a record as DynamoDB gives it.
pub(super) fn decode(link: &Link, uaid: Uaid, item: &Item) -> Result<RouterRecord, CallError> {
    let unreadable =
        |what: &str| CallError::unreadable("reading a record", link.names.router(), what);
    let router_type = router_type(item).map_err(|there| {
        unreadable(&format!(
            "a record has the router type `{there}`, which this server does not serve"
        ))
    })?;
    let curmonth = month(&link.names, item, "curmonth").map_err(|there| unreadable(&there))?;
    let oldmonth = month(&link.names, item, "oldmonth").map_err(|there| unreadable(&there))?;
    Ok(RouterRecord {
        uaid,
        router_type,
        node: text_of(item, "node_id").filter(|node| !node.is_empty()).map(NodeId::new),
        connected_at: connected_at(item),
        last_connect: LastConnect(number_of(item, "last_connect").unwrap_or(0)),
        curmonth: curmonth.ok_or_else(|| unreadable("a record has no `curmonth`"))?,
        oldmonth,
    })
}

/// A record without it is older than any connection.
fn connected_at(item: &Item) -> Time {
    Time(number_of(item, "connected_at").unwrap_or(0))
}

/// A record without it is of the type that the original began with.
fn router_type(item: &Item) -> Result<RouterType, String> {
    let Some(there) = text_of(item, "router_type") else { return Ok(RouterType::WebPush) };
    RouterType::parse(there).ok_or_else(|| there.to_owned())
}

fn month(
    names: &Names,
    item: &Item,
    attribute: &str,
) -> Result<Option<state_machine::Month>, String> {
    let Some(there) = text_of(item, attribute) else { return Ok(None) };
    match names.month_of_record(there) {
        Some(month) => Ok(Some(month)),
        None => Err(format!(
            "a record has the {attribute} `{there}`, which is no message table by the prefixes that are set"
        )),
    }
}

async fn read_item(link: &Link, uaid: Uaid) -> Result<Option<Item>, CallError> {
    let table = link.names.router();
    let request = link.client.get_item().table_name(table).key(UAID, text(uaid.to_string()));
    let read = link.call("GetItem", table, request.consistent_read(true).send()).await?;
    Ok(read.item)
}

async fn write_registration(
    link: &Link,
    registration: &Registration,
) -> Result<RouterRecord, CallError> {
    let Registration { uaid, router_type, ref node, connected_at, last_connect, create_in } =
        *registration;
    let set = "SET router_type = :type, node_id = :node, connected_at = :at, \
               last_connect = :last_connect, record_version = :version";
    let older = "(attribute_not_exists(router_type) OR router_type = :type) \
                 AND (attribute_not_exists(connected_at) OR connected_at < :at)";
    let change = match create_in {
        Some(month) => Change::of(uaid)
            .expression(&format!("{set}, curmonth = if_not_exists(curmonth, :month)"))
            .only_if(older)
            .with(":month", text(link.names.value(month))),
        None => {
            Change::of(uaid).expression(set).only_if(&format!("attribute_exists(uaid) AND {older}"))
        }
    };
    let change = change
        .with(":type", text(router_type.as_str()))
        .with(":last_connect", number(last_connect.0))
        .with(":version", number(RECORD_VERSION))
        .mine(node, connected_at);
    decode(link, uaid, &change.send(link).await?)
}

/// What a registration is answered that was not written. None if nothing speaks against it any more.
fn why_refused(
    link: &Link,
    registration: &Registration,
    item: Option<Item>,
    doubtful: bool,
) -> Result<Option<Registered>, CallError> {
    let Registration { uaid, router_type: wanted, ref node, connected_at: at, create_in, .. } =
        *registration;
    let Some(item) = item else {
        return Ok(create_in.is_none().then_some(Registered::Unknown));
    };
    // The first attempt wrote it, and only its answer was lost.
    if doubtful && is_of(&item, node, at) {
        let record = decode(link, uaid, &item)?;
        return Ok(Some(Registered::Done(record, None)));
    }
    if connected_at(&item) >= at {
        return Ok(Some(Registered::Newer(connected_at(&item))));
    }
    match router_type(&item) {
        Ok(there) if there == wanted => Ok(None),
        _ => decode(link, uaid, &item).map(|_record| None),
    }
}

fn is_of(item: &Item, node: &NodeId, at: Time) -> bool {
    text_of(item, "node_id") == Some(node.as_str()) && connected_at(item) == at
}

fn happened(changed: Result<Item, CallError>) -> Result<bool, CallError> {
    match changed {
        Ok(_item) => Ok(true),
        Err(error) if error.is_condition_failed() => Ok(false),
        Err(error) => Err(error),
    }
}

/// The record is still of the connection that [`Change::mine`] names.
const MINE: &str = "node_id = :node AND connected_at = :at";

/// A change of one item of the router table.
struct Change {
    key: String,
    expression: String,
    condition: Option<String>,
    values: HashMap<String, AttributeValue>,
}

impl Change {
    fn of(uaid: Uaid) -> Self {
        Self::of_key(uaid.to_string())
    }

    fn of_key(key: String) -> Self {
        Self { key, expression: String::new(), condition: None, values: HashMap::new() }
    }

    fn expression(self, expression: &str) -> Self {
        Self { expression: expression.to_owned(), ..self }
    }

    fn only_if(self, condition: &str) -> Self {
        Self { condition: Some(condition.to_owned()), ..self }
    }

    fn with(mut self, name: &str, value: AttributeValue) -> Self {
        self.values.insert(name.to_owned(), value);
        self
    }

    fn mine(self, node: &NodeId, connected_at: Time) -> Self {
        self.with(":node", text(node.as_str())).with(":at", number(connected_at.0))
    }

    /// Answers the item as it now stands.
    async fn send(self, link: &Link) -> Result<Item, CallError> {
        let table = link.names.router();
        let request = link
            .client
            .update_item()
            .table_name(table)
            .key(UAID, text(self.key))
            .update_expression(self.expression)
            .set_condition_expression(self.condition)
            .set_expression_attribute_values(Some(self.values))
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(OnFailure::AllOld);
        let changed = link.call(UPDATE, table, request.send()).await?;
        Ok(changed.attributes.unwrap_or_default())
    }
}
