//! Registers a connection, or an agent behind a bridge, with one UpdateItem, which returns the record before it, so that the
//! caller learns the former node in the same request.

use state_machine::{Month, NodeId, RouterRecord, Uaid};
use storage::record_row::RecordRow;
use storage::registration::{self, NewRecord};
use storage::store::RegisterResult;

use crate::attributes::{UAID, map_of_texts, number, text};
use crate::client::DynamoClient;
use crate::error::{CallError, Item, applied};
use crate::messages::{self, Replaces};
use crate::record_update::{RecordUpdate, UPDATE, Updated};
use crate::router::{self, readable_row};

/// The version of the record's format in autopush.
const RECORD_VERSION: u64 = 2;
/// Attempts of a registration whose record is created and dropped concurrently.
const REGISTER_ATTEMPTS_MAX: u32 = 3;

/// Registers an agent, unless the record's `connected_at` is as new.
pub(crate) async fn register(
    client: &DynamoClient,
    new: &NewRecord,
) -> Result<RegisterResult, CallError> {
    let row = |item: &Item| readable_row(client, new.uaid, item, new.create_in);
    for _attempt in 0..REGISTER_ATTEMPTS_MAX {
        let (item, indeterminate) = match write(client, new).try_send(client).await? {
            Updated::Done(before) => return Ok(new.registered(Some(&row(&before)?))),
            Updated::Refused { item, indeterminate } => (item, indeterminate),
        };
        let there = match item.as_ref().map(row).transpose() {
            Ok(there) => there,
            // It may refuse the agent, whatever its months are.
            Err(error) => {
                let known = item.as_ref().map(|item| router::row(client, new.uaid, item));
                return known.and_then(|known| new.refusal(&known)).ok_or(error);
            }
        };
        match (new.over(there.as_ref()), there) {
            // The first attempt wrote it and its reply was lost, with the former binding.
            (RegisterResult::Superseded(_), Some(there)) if indeterminate && new.is_in(&there) => {
                return Ok(new.registered(Some(&RecordRow { node: None, ..there })));
            }
            // Its obstacle went away, or is the name of its month.
            (RegisterResult::Registered(..), there) => {
                let has_curmonth = item.is_some_and(|item| item.contains_key("curmonth"));
                if let Some(month) = there.and_then(|there| there.curmonth)
                    && !has_curmonth
                {
                    adopt_month(client, new.uaid, month).await?;
                }
            }
            (refused, _) => return Ok(refused),
        }
    }
    let reason = "the record changes all the time";
    Err(CallError::unreadable(UPDATE, &client.names.router, reason))
}

/// Gives a record its `curmonth` if only the last versions of the Python autopush wrote it.
async fn adopt_month(client: &DynamoClient, uaid: Uaid, month: Month) -> Result<(), CallError> {
    let change = RecordUpdate::of(uaid)
        .set("curmonth", text(client.names.value(month)))
        .only_if("attribute_exists(uaid) AND attribute_not_exists(curmonth)");
    applied(change.send(client).await).map(|_is_changed| ())
}

/// Creates a record, unless there is an item with its key. Returns whether it did.
pub(crate) async fn create(client: &DynamoClient, record: RouterRecord) -> Result<bool, CallError> {
    let item = item(client, &record.into());
    messages::put(client, &client.names.router, &item, &Replaces::Nothing).await
}

/// The item of a record.
pub(crate) fn item(client: &DynamoClient, record: &RecordRow) -> Item {
    let month = |month| text(client.names.value(month));
    let recipient = record.recipient.as_ref().map(registration::encode);
    let attributes = [
        (UAID, Some(text(record.uaid.to_string()))),
        ("router_type", Some(text(&record.router_type))),
        ("router_data", recipient.as_ref().map(map_of_texts)),
        ("node_id", record.node.as_ref().map(|node| text(node.as_str()))),
        ("connected_at", Some(number(record.connected_at.0))),
        ("last_connect", Some(number(record.last_connect.0))),
        ("curmonth", record.curmonth.map(month)),
        ("oldmonth", record.oldmonth.map(month)),
        ("record_version", Some(number(RECORD_VERSION))),
    ];
    attributes.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Writes the record if it is none or older, of the same kind, and names its months.
fn write(client: &DynamoClient, new: &NewRecord) -> RecordUpdate {
    let update = RecordUpdate::of(new.uaid)
        .set("router_type", text(new.router_type.as_str()))
        .set("connected_at", number(new.connected_at.0))
        .set("last_connect", number(new.last_connect.0))
        .set("record_version", number(RECORD_VERSION));
    let update = match new.router_type.recipient() {
        // One of Web Push may have no type.
        Some(recipient) => update
            .set("router_data", map_of_texts(&registration::encode(recipient)))
            .of_bridge("(attribute_not_exists(uaid) OR router_type IN (:fcm, :apns))"),
        None => update
            .set("node_id", text(new.node.as_ref().map_or("", NodeId::as_str)))
            .only_if("(attribute_not_exists(router_type) OR router_type = :router_type)"),
    };
    let (curmonth, oldmonth) = (names_a_month("curmonth"), names_a_month("oldmonth"));
    let update = match new.create_in {
        Some(month) => update
            .set_to("curmonth", "if_not_exists(curmonth, :month)")
            .with(":month", text(client.names.value(month)))
            .only_if(&format!("(attribute_not_exists(curmonth) AND attribute_not_exists(current_month) OR {curmonth})")),
        None => update.only_if(&curmonth),
    };
    let [first, last] = [(1970, 1), (9999, 12)]
        .map(|(year, month)| Month::new(year, month).expect("both are months"));
    update
        .only_if("(attribute_not_exists(connected_at) OR connected_at < :connected_at)")
        .only_if(&format!("(attribute_not_exists(oldmonth) OR {oldmonth})"))
        .with_forms([":from", ":full_from", ":bare_from"], client, first)
        .with_forms([":to", ":full_to", ":bare_to"], client, last)
}

/// A condition for every month in each of its forms, so that an unreadable record is rejected
/// before it is written. A value between two months, such as `message_2026_13`, passes and is
/// rejected afterwards.
fn names_a_month(attribute: &str) -> String {
    format!(
        "({attribute} BETWEEN :from AND :to OR {attribute} BETWEEN :full_from AND :full_to \
         OR {attribute} BETWEEN :bare_from AND :bare_to)"
    )
}
