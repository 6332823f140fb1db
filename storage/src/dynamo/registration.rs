//! Registers a connection, or an agent behind a bridge, with one UpdateItem, which returns the record before it, so that the
//! caller learns the former node in the same request.

use state_machine::{Month, NodeBinding, RouterRecord};

use super::attributes::{UAID, map_of_texts, number, text};
use super::client::DynamoClient;
use super::error::{CallError, Item};
use super::messages::{self, Replaces};
use super::names::Names;
use super::router::{
    self, ROUTER_DATA, ROUTER_TYPE, RecordUpdate, UPDATE, Updated, connected_at, is_of, months,
    place, router_type, without_month,
};
use crate::registration::{self, NewRecord};
use crate::rows::RecordRow;
use crate::store::RegisterResult;

/// The version of the record's format in autopush.
const RECORD_VERSION: u64 = 2;
/// Attempts of a registration whose record is created and dropped concurrently.
const REGISTER_ATTEMPTS_MAX: u32 = 3;

/// Registers an agent, unless the record's `connected_at` is as new.
pub(super) async fn register(
    client: &DynamoClient,
    new: &NewRecord,
) -> Result<RegisterResult, CallError> {
    for _attempt in 0..REGISTER_ATTEMPTS_MAX {
        let (item, indeterminate) = match write(client, new).try_send(client).await? {
            Updated::Done(before) => {
                let record = record_after(client, new, &before)?;
                return Ok(RegisterResult::Registered(record, former(new, &before)));
            }
            Updated::Refused { item, indeterminate } => (item, indeterminate),
        };
        if let Some(item) = &item {
            router::adopt_month(client, new.uaid, item).await?;
        }
        if let Some(answer) = why_refused(client, new, item, indeterminate)? {
            return Ok(answer);
        }
    }
    let reason = "the record changes all the time";
    Err(CallError::unreadable(UPDATE, &client.names.router, reason))
}

/// Creates a record, unless there is an item with its key. Returns whether it did.
pub(super) async fn create(client: &DynamoClient, record: RouterRecord) -> Result<bool, CallError> {
    let node = record.node.clone().map(|node| ("node_id".to_owned(), text(node.as_str())));
    let mut item = item(client, &record.into());
    item.extend(node);
    messages::put(client, client.names.router.clone(), item, &Replaces::Nothing).await
}

/// The item of a record without a node.
pub(super) fn item(client: &DynamoClient, record: &RecordRow) -> Item {
    let mut item = Item::from([
        (UAID.to_owned(), text(record.uaid.to_string())),
        (ROUTER_TYPE.to_owned(), text(&record.router_type)),
        ("connected_at".to_owned(), number(record.connected_at.0)),
        ("last_connect".to_owned(), number(record.last_connect.0)),
        ("curmonth".to_owned(), text(client.names.value(record.curmonth))),
        ("record_version".to_owned(), number(RECORD_VERSION)),
    ]);
    if let Some(recipient) = &record.recipient {
        item.insert(ROUTER_DATA.to_owned(), map_of_texts(&registration::encode(recipient)));
    }
    let oldmonth = record.oldmonth.map(|month| text(client.names.value(month)));
    item.extend(oldmonth.map(|month| ("oldmonth".to_owned(), month)));
    item
}

fn write(client: &DynamoClient, new: &NewRecord) -> RecordUpdate {
    let NewRecord { uaid, ref router_type, connected_at, last_connect, create_in, .. } = *new;
    let (set, same) = match new.router_type.recipient() {
        None => ("node_id = :node", "attribute_not_exists(router_type) OR router_type = :type"),
        Some(_) => ("router_data = :data", NONE_OR_BRIDGE),
    };
    let set = format!(
        "SET {set}, router_type = :type, connected_at = :at, last_connect = :last_connect, \
         record_version = :version"
    );
    let older = format!("({same}) AND (attribute_not_exists(connected_at) OR connected_at < :at)");
    let (curmonth, oldmonth) = (names_a_month("curmonth"), names_a_month("oldmonth"));
    let older = format!("{older} AND (attribute_not_exists(oldmonth) OR {oldmonth})");
    let change = match create_in {
        Some(month) => RecordUpdate::of(uaid)
            .expression(&format!("{set}, curmonth = if_not_exists(curmonth, :month)"))
            .only_if(&format!("{older} AND (attribute_not_exists(curmonth) AND attribute_not_exists(current_month) OR {curmonth})"))
            .with(":month", text(client.names.value(month))),
        None => RecordUpdate::of(uaid).expression(&set).only_if(&format!("{older} AND {curmonth}")),
    };
    let change = MONTH_BOUNDS
        .into_iter()
        .zip(month_bounds(&client.names))
        .fold(change, |change, (name, bound)| change.with(name, text(bound)));
    let change = change
        .with(":type", text(router_type.as_str()))
        .with(":at", number(connected_at.0))
        .with(":last_connect", number(last_connect.0))
        .with(":version", number(RECORD_VERSION));
    match (&new.node, new.router_type.recipient()) {
        (Some(node), _) => change.with(":node", text(node.as_str())),
        (None, Some(recipient)) => {
            let data = map_of_texts(&registration::encode(recipient));
            change.with(":data", data).with_bridges()
        }
        (None, None) => change,
    }
}

/// A record of a bridge, or none at all: one of Web Push may have no type.
const NONE_OR_BRIDGE: &str = "attribute_not_exists(uaid) OR router_type IN (:fcm, :apns)";

/// The binding before. None for a bridge, whose record may have a node of other software.
fn former(new: &NewRecord, before: &Item) -> Option<NodeBinding> {
    place(before).filter(|_| new.node.is_some())
}

/// The names of [`month_bounds`] in [`names_a_month`].
const MONTH_BOUNDS: [&str; 6] =
    [":from", ":full_from", ":bare_from", ":to", ":full_to", ":bare_to"];

/// A condition for every month in each of its forms, so that an unreadable record is rejected
/// before it is written. A value between two months, such as `message_2026_13`, passes and is
/// rejected afterwards.
fn names_a_month(attribute: &str) -> String {
    format!(
        "({attribute} BETWEEN :from AND :to OR {attribute} BETWEEN :full_from AND :full_to \
         OR {attribute} BETWEEN :bare_from AND :bare_to)"
    )
}

/// The forms of the first and of the last month.
fn month_bounds(names: &Names) -> impl Iterator<Item = String> {
    let ends = [(1970, 1), (9999, 12)];
    let months = ends.map(|(year, month)| Month::new(year, month).expect("both are months"));
    months.into_iter().flat_map(|month| names.record_forms(month))
}

/// The record after the registration, given the item before it.
fn record_after(
    client: &DynamoClient,
    new: &NewRecord,
    before: &Item,
) -> Result<RouterRecord, CallError> {
    let (curmonth, oldmonth) = months(client, before)?;
    let curmonth = curmonth.or(new.create_in).ok_or_else(|| without_month(client))?;
    Ok(new.record(curmonth, oldmonth))
}

/// The result of a registration that was not written. None if it is to be tried again.
fn why_refused(
    client: &DynamoClient,
    new: &NewRecord,
    item: Option<Item>,
    indeterminate: bool,
) -> Result<Option<RegisterResult>, CallError> {
    let Some(item) = item else {
        return Ok(new.create_in.is_none().then_some(RegisterResult::UnknownAgent));
    };
    let Some(there) = router_type(&item).filter(|there| new.may_replace(there)) else {
        return Ok(Some(RegisterResult::UnknownAgent));
    };
    let is_ours = connected_at(&item) == new.connected_at
        && match &new.node {
            Some(node) => is_of(&item, node, new.connected_at),
            None => there == new.router_type,
        };
    // The first attempt wrote it and its reply was lost, with the former binding.
    if indeterminate && is_ours {
        let record = router::decode(client, new.uaid, &item)?;
        return Ok(record.map(|record| RegisterResult::Registered(record, None)));
    }
    if connected_at(&item) >= new.connected_at {
        return Ok(Some(RegisterResult::Superseded(connected_at(&item))));
    }
    record_after(client, new, &item).map(|_record| None)
}
