//! Counts the agents on each month.

use state_machine::Month;
use storage::maintenance::{RecordsByMonth, Table, TableStatus};

use crate::command::{Job, JobError};
use crate::push::app::AppState;
use crate::system::printable;

/// Counts all records. A server keeps the result for its status. A record never moves back to an older month, so a past
/// month that no record names here will not be named later.
pub async fn count<R>(tables: &[TableStatus], job: &Job<R>) -> Result<RecordsByMonth, JobError> {
    let (mut counted, mut done) = (RecordsByMonth::default(), 0);
    let of = tables.iter().find(|table| table.table == Table::Router).map(|router| router.items);
    loop {
        job.progress("counting agents", done, of);
        let page = job.step(|| job.context.store.records_by_month(counted.next.clone())).await?;
        done += page.curmonth.values().sum::<u64>();
        counted.unreadable += page.unreadable;
        counted.other_types += page.other_types;
        counted.bridged += page.bridged;
        counted.dropped += page.dropped;
        counted.latest = counted.latest.max(page.latest);
        for (month, count) in page.curmonth {
            *counted.curmonth.entry(month).or_default() += count;
        }
        for (month, count) in page.oldmonth {
            *counted.oldmonth.entry(month).or_default() += count;
        }
        for (node, count) in page.nodes {
            *counted.nodes.entry(node).or_default() += count;
        }
        counted.next = page.next;
        if counted.next.is_none() {
            if let Some(node) = job.context.part::<AppState>() {
                *node.common.records.lock() = Some((job.context.now(), counted.clone()));
            }
            return Ok(counted);
        }
    }
}

/// Number of records that name the month, as the one that the agent is on or as the one that it leaves.
pub fn naming(counted: &RecordsByMonth, month: Month) -> u64 {
    let count = |months: [Option<&u64>; 2]| months.into_iter().flatten().sum();
    count([counted.curmonth.get(&month), counted.oldmonth.get(&month)])
}

/// Such as `1 agent is` or `7 agents are`.
pub fn agents_are(count: u64) -> String {
    printable::count(count, "agent") + if count == 1 { " is" } else { " are" }
}
