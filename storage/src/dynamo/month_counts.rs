//! Counts and changes the months that the router records name, and repairs records of the future.

use std::collections::BTreeMap;

use state_machine::{LastConnect, Month, Uaid};

use super::attributes::{UAID, number, number_of, text, text_of};
use super::client::DynamoClient;
use super::error::{CallError, Item, applied};
use super::messages::write_rows;
use super::router::{self, CURRENT_MONTH, ROUTER_TYPE, RecordUpdate};
use crate::maintenance::{CopyProgress, PREFLIGHT_UAID, RecordsByMonth, RepairClock};
use crate::store::Cursor;

/// Records in one page.
const RECORDS_MAX: i32 = 1000;

pub(super) async fn count(
    client: &DynamoClient,
    after: Option<Cursor>,
) -> Result<RecordsByMonth, CallError> {
    let (items, next) = scan(client, after).await?;
    let mut counts = RecordsByMonth { next, ..RecordsByMonth::default() };
    for item in items.iter().filter(|item| is_of_agent(item)) {
        let (curmonth, oldmonth) = (curmonth(client, item), month(client, item, OLDMONTH));
        let is_old_unreadable = oldmonth.is_none() && item.contains_key(OLDMONTH);
        let is_unreadable = curmonth.is_none() || is_old_unreadable;
        let is_served = router::router_type(item).is_some();
        counts.unreadable += u64::from(is_unreadable && is_served);
        if let Some(node) = router::node(item) {
            *counts.nodes.entry(node).or_default() += 1;
        }
        counts.latest = counts.latest.max(Some(router::connected_at(item)));
        counts.add_type(text_of(item, ROUTER_TYPE).unwrap_or_default(), is_served);
        add(&mut counts.curmonth, curmonth);
        add(&mut counts.oldmonth, oldmonth);
    }
    Ok(counts)
}

/// Not the items of health checks, key fingerprints and preflight checks.
fn is_of_agent(item: &Item) -> bool {
    let uaid = text_of(item, UAID).and_then(|uaid| Uaid::parse(uaid).ok());
    uaid.is_some_and(|uaid| uaid != PREFLIGHT_UAID)
}

/// Replaces `from` by `to` in a page of the records.
pub(super) async fn rename(
    client: &DynamoClient,
    from: Month,
    to: Month,
    after: Option<Cursor>,
) -> Result<CopyProgress, CallError> {
    let (items, next) = scan(client, after).await?;
    let names_it = |item: &&Item| {
        [curmonth(client, item), month(client, item, OLDMONTH)].contains(&Some(from))
    };
    let updates = items.iter().filter(names_it).map(|item| update(client, item, from, to));
    let (written, done) = write_rows(client, updates.collect()).await;
    done.map_err(|error| error.after_writes(written > 0))?;
    Ok(CopyProgress { seen: items.len() as u64, written: written as u64, next })
}

/// Repairs the records of a page that are of connections in the future.
pub(super) async fn repair(
    client: &DynamoClient,
    clock: RepairClock,
    after: Option<Cursor>,
) -> Result<CopyProgress, CallError> {
    let (items, next) = scan(client, after).await?;
    let of_agents: Vec<_> = items.iter().filter(|item| is_of_agent(item)).collect();
    let ahead = of_agents.iter().filter(|item| router::connected_at(item) > clock.latest);
    let updates = ahead.map(|item| repair_one(client, item, clock));
    let (written, done) = write_rows(client, updates.collect()).await;
    done.map_err(|error| error.after_writes(written > 0))?;
    Ok(CopyProgress { seen: of_agents.len() as u64, written: written as u64, next })
}

/// Changes a record if its `connected_at` is unchanged. Returns whether it was.
async fn repair_one(
    client: &DynamoClient,
    item: &Item,
    clock: RepairClock,
) -> Result<bool, CallError> {
    let key = text_of(item, UAID).unwrap_or_default();
    let change = RecordUpdate::of_key(key.to_owned());
    // A record of other software may have none, and is not in the index then.
    let there = number_of(item, LAST_CONNECT).map(LastConnect).zip(Uaid::parse(key).ok());
    let change = match there.map(|(there, uaid)| clock.last_connect(uaid, there)) {
        Some(last_connect) => change
            .expression("SET connected_at = :now, last_connect = :last_connect")
            .with(":last_connect", number(last_connect.0)),
        None => change.expression("SET connected_at = :now"),
    };
    let change = change
        .only_if("connected_at = :was")
        .with(":now", number(clock.now.0))
        .with(":was", number(router::connected_at(item).0));
    applied(change.send(client).await)
}

const LAST_CONNECT: &str = "last_connect";
const CURMONTH: &str = "curmonth";
const OLDMONTH: &str = "oldmonth";

async fn scan(
    client: &DynamoClient,
    after: Option<Cursor>,
) -> Result<(Vec<Item>, Option<Cursor>), CallError> {
    let start = after.map(|after| Item::from([(UAID.to_owned(), text(after.as_str()))]));
    let names = "uaid, curmonth, current_month, oldmonth, router_type, router_data, node_id, connected_at, \
                 last_connect";
    let names = Some(names);
    let (items, next) = client.scan(&client.names.router, names, start, Some(RECORDS_MAX)).await?;
    Ok((items, next.as_ref().and_then(|key| text_of(key, UAID)).map(Cursor::new)))
}

fn month(client: &DynamoClient, item: &Item, attribute: &str) -> Option<Month> {
    client.names.month_of_record(text_of(item, attribute)?)
}

fn curmonth(client: &DynamoClient, item: &Item) -> Option<Month> {
    let name = if item.contains_key(CURMONTH) { CURMONTH } else { CURRENT_MONTH };
    month(client, item, name)
}

fn add(counts: &mut BTreeMap<Month, u64>, month: Option<Month>) {
    if let Some(month) = month {
        *counts.entry(month).or_default() += 1;
    }
}

/// Changes a record if its months are unchanged. Returns whether they were.
async fn update(
    client: &DynamoClient,
    item: &Item,
    from: Month,
    to: Month,
) -> Result<bool, CallError> {
    let moved = |month: Month| if month == from { to } else { month };
    let oldmonth = month(client, item, OLDMONTH).map(moved);
    let Some(curmonth) = curmonth(client, item).map(moved) else { return Ok(false) };
    let stored = |name| text(text_of(item, name).unwrap_or_default());
    let change = RecordUpdate::of_key(text_of(item, UAID).unwrap_or_default().to_owned())
        .with(":curmonth", text(client.names.value(curmonth)));
    let change = match oldmonth.filter(|oldmonth| *oldmonth != curmonth) {
        Some(oldmonth) => change
            .expression("SET curmonth = :curmonth, oldmonth = :oldmonth")
            .with(":oldmonth", text(client.names.value(oldmonth))),
        None => change.expression("SET curmonth = :curmonth REMOVE oldmonth"),
    };
    let (change, current) = match item.contains_key(CURMONTH) {
        true => (change.with(":was", stored(CURMONTH)), "curmonth = :was"),
        false => (change, "attribute_not_exists(curmonth)"),
    };
    let (change, old) = match item.contains_key(OLDMONTH) {
        true => (change.with(":old_was", stored(OLDMONTH)), "oldmonth = :old_was"),
        false => (change, "attribute_not_exists(oldmonth)"),
    };
    let change = change.only_if(&format!("{current} AND {old}"));
    applied(change.send(client).await)
}
