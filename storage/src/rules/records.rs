//! The rules of router records ([`RouterTable`](crate::RouterTable), and those of maintenance). That of a registration is
//! [`NewRecord::over`](crate::registration::NewRecord::over).

use std::collections::BTreeMap;

use state_machine::{LastConnect, Month, NodeBinding, Uaid};

use super::record_rows::{Changed, GuardedChange, RecordChange, RecordGuard, RecordRows};
use crate::maintenance::{CopyProgress, MarkedUser, RecordsByMonth, RepairClock};
use crate::record_row::RecordRow;
use crate::store::{Cursor, MonthStep};

/// Begins a move. Calls `change_record`.
pub async fn update_message_month<R: RecordRows>(
    rows: &R,
    step: &MonthStep,
) -> Result<bool, R::Error> {
    let mut guards = mover(step);
    if step.node.is_none() {
        // Any node may move it, but only once.
        guards.extend([RecordGuard::Curmonth(step.from), RecordGuard::Oldmonth(None)]);
    }
    let (oldmonth, last_connect) = (Some(step.from), Some(step.last_connect));
    let change = RecordChange::Months { curmonth: step.to, oldmonth, last_connect };
    let change = GuardedChange { uaid: step.uaid, guards, change };
    Ok(rows.change_record(&change).await?.is_done())
}

/// Ends a move. Returns whether the record still is that of the step, also if its move has ended. Calls `change_record`, and
/// `record` if that is refused without the record.
pub async fn finish_month_move<R: RecordRows>(
    rows: &R,
    step: &MonthStep,
) -> Result<bool, R::Error> {
    let mut guards = mover(step);
    guards.push(RecordGuard::Oldmonth(Some(step.from)));
    let change = GuardedChange { uaid: step.uaid, guards, change: RecordChange::EndMove };
    let there = match rows.change_record(&change).await? {
        Changed::Done(_) => return Ok(true),
        Changed::Refused(None) => rows.record(step.uaid).await?,
        Changed::Refused(there) => there,
    };
    Ok(there.is_some_and(|there| mover(step).iter().all(|guard| guard.holds(&there))))
}

/// The record is that of the connection, or of the agent behind a bridge, that moves.
fn mover(step: &MonthStep) -> Vec<RecordGuard> {
    let node = step.node.clone().map_or(RecordGuard::Bridged, RecordGuard::Node);
    vec![node, RecordGuard::ConnectedAt(step.connected_at)]
}

/// Removes the node of a connection that has ended. Calls `change_record`.
pub async fn clear_node<R: RecordRows>(
    rows: &R,
    uaid: Uaid,
    binding: &NodeBinding,
) -> Result<bool, R::Error> {
    let NodeBinding { node, connected_at } = binding.clone();
    let guards = vec![RecordGuard::Node(node), RecordGuard::ConnectedAt(connected_at)];
    let change = GuardedChange { uaid, guards, change: RecordChange::ClearNode };
    Ok(rows.change_record(&change).await?.is_done())
}

/// Begins the drop of a user, also of one that is marked. Calls `change_record`.
pub async fn mark_dropped<R: RecordRows>(
    rows: &R,
    uaid: Uaid,
    seen: Option<LastConnect>,
) -> Result<Option<MarkedUser>, R::Error> {
    let guards = seen.map(RecordGuard::LastConnect).into_iter().collect();
    let change = GuardedChange { uaid, guards, change: RecordChange::MarkDropped };
    Ok(match rows.change_record(&change).await? {
        Changed::Done(before) => Some(MarkedUser { uaid, binding: before.binding() }),
        Changed::Refused(_) => None,
    })
}

/// Counts a page of records. Calls `records`.
pub async fn count<R: RecordRows>(
    rows: &R,
    after: Option<&Cursor>,
) -> Result<RecordsByMonth, R::Error> {
    fn add<K: Ord>(counts: &mut BTreeMap<K, u64>, key: Option<K>) {
        if let Some(key) = key {
            *counts.entry(key).or_default() += 1;
        }
    }
    let page = rows.records(after).await?;
    let (unreadable, next) = (page.unreadable, page.next);
    let mut counts = RecordsByMonth { unreadable, next, ..RecordsByMonth::default() };
    for row in page.rows {
        add(&mut counts.curmonth, row.curmonth);
        add(&mut counts.oldmonth, row.oldmonth);
        counts.latest = counts.latest.max(Some(row.connected_at));
        counts.add_type(&row);
        add(&mut counts.nodes, row.node);
    }
    Ok(counts)
}

/// Replaces a month in a page of records. Calls `records` and `change_records`.
pub async fn rename_month<R: RecordRows>(
    rows: &R,
    from: Month,
    to: Month,
    after: Option<&Cursor>,
) -> Result<CopyProgress, R::Error> {
    let renamed = |month: Month| if month == from { to } else { month };
    change_page(rows, after, |row| {
        let (there, oldmonth) = (row.curmonth?, row.oldmonth);
        if there != from && oldmonth != Some(from) {
            return None;
        }
        let guards = vec![RecordGuard::Curmonth(there), RecordGuard::Oldmonth(oldmonth)];
        let curmonth = renamed(there);
        let oldmonth = oldmonth.map(renamed).filter(|oldmonth| *oldmonth != curmonth);
        Some((guards, RecordChange::Months { curmonth, oldmonth, last_connect: None }))
    })
    .await
}

/// Repairs the records of a page that are of connections in the future. Calls `records` and `change_records`.
pub async fn repair<R: RecordRows>(
    rows: &R,
    clock: RepairClock,
    after: Option<&Cursor>,
) -> Result<CopyProgress, R::Error> {
    change_page(rows, after, |row| {
        let guards = vec![RecordGuard::ConnectedAt(row.connected_at)];
        let last_connect = Some(clock.last_connect(row.uaid, row.last_connect));
        let last_connect = last_connect.filter(|key| *key != row.last_connect);
        let change = RecordChange::Connected { at: clock.now, last_connect };
        (row.connected_at > clock.latest).then_some((guards, change))
    })
    .await
}

/// Changes those records of a page for which `change` is one.
async fn change_page<R: RecordRows>(
    rows: &R,
    after: Option<&Cursor>,
    change: impl Fn(&RecordRow) -> Option<(Vec<RecordGuard>, RecordChange)>,
) -> Result<CopyProgress, R::Error> {
    let page = rows.records(after).await?;
    let changes = page.rows.iter().filter_map(|row| {
        let (guards, change) = change(row)?;
        Some(GuardedChange { uaid: row.uaid, guards, change })
    });
    let written = rows.change_records(changes.collect()).await?;
    Ok(CopyProgress { seen: page.rows.len() as u64, written, next: page.next })
}
