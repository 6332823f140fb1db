//! Counts the agents on each month.

use std::collections::BTreeMap;

use state_machine::Month;
use storage::maintenance::{Table, TableStatus};

use super::{JobError, Report};
use crate::admin::job_context::JobContext;

/// The router records, counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Clients {
    /// Number of records by the month that the agent is on.
    pub(super) on: BTreeMap<Month, u64>,
    /// Number of records with an unfinished move, by the month that it leaves.
    pub(super) moving_from: BTreeMap<Month, u64>,
    /// Number of records whose months cannot be read.
    pub(super) unreadable: u64,
}

impl Clients {
    /// Number of records that name the month either way.
    pub(super) fn naming(&self, month: Month) -> u64 {
        let count = |months: &BTreeMap<Month, u64>| months.get(&month).copied().unwrap_or(0);
        count(&self.on).saturating_add(count(&self.moving_from))
    }
}

/// Counts all records. A record never moves back to an older month, so a past month that no record names here will
/// not be named later.
pub(super) async fn count(
    context: &JobContext,
    tables: &[TableStatus],
    report: &mut Report,
) -> Result<Clients, JobError> {
    let (mut clients, mut after, mut done) = (Clients::default(), None, 0);
    let of = tables.iter().find(|table| table.table == Table::Router).map(|router| router.items);
    loop {
        report.progress("counting clients", done, of);
        let page = report.step(|| context.store.records_by_month(after.clone())).await?;
        done += page.curmonth.values().sum::<u64>();
        clients.unreadable += page.unreadable;
        add(&mut clients.on, page.curmonth);
        add(&mut clients.moving_from, page.oldmonth);
        after = page.next;
        if after.is_none() {
            return Ok(clients);
        }
    }
}

fn add(to: &mut BTreeMap<Month, u64>, counts: BTreeMap<Month, u64>) {
    for (month, count) in counts {
        *to.entry(month).or_default() += count;
    }
}
