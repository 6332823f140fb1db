//! Registers a connection with one UpdateItem, which returns the record before it, so that the
//! caller learns the former node in the same request.

use state_machine::{Month, RouterRecord};

use super::attributes::{number, text};
use super::client::DynamoClient;
use super::error::{CallError, Item};
use super::names::Names;
use super::router::{
    self, RecordUpdate, UPDATE, Updated, connected_at, is_of, months, place, without_month,
};
use crate::store::{RegisterResult, Registration};

/// The version of the record's format in autopush.
const RECORD_VERSION: u64 = 2;
/// Attempts of a registration whose record is created and dropped concurrently.
const REGISTER_ATTEMPTS_MAX: u32 = 3;

/// Registers a connection, unless the record's `connected_at` is as new.
pub(super) async fn register(
    client: &DynamoClient,
    registration: &Registration,
) -> Result<RegisterResult, CallError> {
    for _attempt in 0..REGISTER_ATTEMPTS_MAX {
        let (item, indeterminate) = match write(client, registration).try_send(client).await? {
            Updated::Done(before) => {
                let record = record_after(client, registration, &before)?;
                return Ok(RegisterResult::Registered(record, place(&before)));
            }
            Updated::Refused { item, indeterminate } => (item, indeterminate),
        };
        if let Some(answer) = why_refused(client, registration, item, indeterminate)? {
            return Ok(answer);
        }
    }
    let reason = "the record changes all the time";
    Err(CallError::unreadable(UPDATE, &client.names.router, reason))
}

fn write(client: &DynamoClient, registration: &Registration) -> RecordUpdate {
    let Registration { uaid, ref router_type, ref node, connected_at, last_connect, create_in } =
        *registration;
    let set = "SET router_type = :type, node_id = :node, connected_at = :at, \
               last_connect = :last_connect, record_version = :version";
    let older = "(attribute_not_exists(router_type) OR router_type = :type) \
                 AND (attribute_not_exists(connected_at) OR connected_at < :at)";
    let (curmonth, oldmonth) = (names_a_month("curmonth"), names_a_month("oldmonth"));
    let older = format!("{older} AND (attribute_not_exists(oldmonth) OR {oldmonth})");
    let change = match create_in {
        Some(month) => RecordUpdate::of(uaid)
            .expression(&format!("{set}, curmonth = if_not_exists(curmonth, :month)"))
            .only_if(&format!("{older} AND (attribute_not_exists(curmonth) OR {curmonth})"))
            .with(":month", text(client.names.value(month))),
        None => RecordUpdate::of(uaid).expression(set).only_if(&format!("{older} AND {curmonth}")),
    };
    let change = MONTH_BOUNDS
        .into_iter()
        .zip(month_bounds(&client.names))
        .fold(change, |change, (name, bound)| change.with(name, text(bound)));
    change
        .with(":type", text(router_type.as_str()))
        .with(":last_connect", number(last_connect.0))
        .with(":version", number(RECORD_VERSION))
        .mine(node, connected_at)
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

/// The record after `registration`, given the item before it.
fn record_after(
    client: &DynamoClient,
    registration: &Registration,
    before: &Item,
) -> Result<RouterRecord, CallError> {
    let Registration {
        uaid,
        router_type: ref wanted,
        ref node,
        connected_at,
        last_connect,
        create_in,
    } = *registration;
    let (curmonth, oldmonth) = months(client, before)?;
    Ok(RouterRecord {
        uaid,
        router_type: wanted.clone(),
        node: Some(node.clone()),
        connected_at,
        last_connect,
        curmonth: curmonth.or(create_in).ok_or_else(|| without_month(client))?,
        oldmonth,
    })
}

/// The result of a registration that was not written. None if it is to be tried again.
fn why_refused(
    client: &DynamoClient,
    registration: &Registration,
    item: Option<Item>,
    indeterminate: bool,
) -> Result<Option<RegisterResult>, CallError> {
    let Registration { uaid, ref router_type, ref node, connected_at: at, create_in, .. } =
        *registration;
    let Some(item) = item else {
        return Ok(create_in.is_none().then_some(RegisterResult::UnknownAgent));
    };
    if router::router_type(&item).as_ref() != Some(router_type) {
        return Ok(Some(RegisterResult::UnknownAgent));
    }
    // The first attempt wrote it and its reply was lost, with the former binding.
    if indeterminate && is_of(&item, node, at) {
        let record = router::decode(client, uaid, &item)?;
        return Ok(Some(RegisterResult::Registered(record, None)));
    }
    if connected_at(&item) >= at {
        return Ok(Some(RegisterResult::Superseded(connected_at(&item))));
    }
    record_after(client, registration, &item).map(|_record| None)
}
