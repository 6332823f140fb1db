//! `tables copy`: gives a table another month's name, while no server is running
//! (docs/sources.md#message-table-rotation).
//!
//! The job copies all rows, then moves the records. Until a record names the new table, its messages are complete in
//! the old one; after that, in the new one. So the job can be repeated after a failure, unless a server used the
//! store meanwhile. Once all records name the new table the job is refused: it would restore messages that
//! were delivered since.

use state_machine::Month;
use storage::StoreFuture;
use storage::maintenance::{CopyProgress, Cursor, RecordsByMonth, Table};

use super::census::{self, agents_are, naming};
use super::{JobError, Report};
use crate::operate::admin::commands::{Copy, INACTIVE_MONTHS};
use crate::operate::admin::job_context::{JobContext, Servers, months_before};

pub(super) async fn run(copy: &Copy, report: &Report) -> Result<(), JobError> {
    let (from, to) = (copy.from, copy.to);
    if let Some(why) = refusal(copy, &report.context) {
        return Err(JobError::Refused(why));
    }
    let tables = report.step(|| report.context.store.tables()).await?;
    let items = |table| tables.iter().find(|known| known.table == table).map(|known| known.items);
    let rows = items(Table::Messages(from));
    let agents = census::count(&tables, report).await?;
    if let Some(why) = is_done((from, to), rows.is_some(), &agents) {
        return Err(JobError::Refused(why));
    }
    let Some(rows) = rows else {
        return Err(JobError::Refused(format!("there is no table of {from}: nothing was copied")));
    };
    report.step(|| report.context.store.ensure_month(to)).await?;
    let copy_rows = |after| report.context.store.copy_rows(from, to, after);
    let CopyProgress { seen, .. } =
        all_pages("copying rows", Some(rows), copy_rows, report).await?;
    report.note(format!("copied {from} to {to}: {seen} rows")).await?;
    let of = items(Table::Router);
    let move_records = |after| report.context.store.move_records(from, to, after);
    let CopyProgress { written, .. } =
        all_pages("moving records", of, move_records, report).await?;
    report.note(format!("{written} records name {to} instead of {from} now")).await?;
    report.note(format!("next: `kalends tables drop {from} --yes`, then start the server")).await?;
    if from > months_before(report.context.this_month(), INACTIVE_MONTHS) {
        // `--since` does not accept this month yet, and the default is earlier.
        return Ok(());
    }
    let since = format!(
        "from now on: `kalends users drop-inactive --since {from}`, since the default is the month of the \
         oldest table, and three months at least"
    );
    report.note(since).await
}

/// The refusal of a copy that all agents are on already, with the next step.
fn is_done(
    (from, to): (Month, Month),
    is_from_there: bool,
    agents: &RecordsByMonth,
) -> Option<String> {
    let on_copy = naming(agents, to);
    if naming(agents, from) > 0 || on_copy == 0 {
        return None;
    }
    let are = agents_are(on_copy);
    let next = match is_from_there {
        true => format!("next is `kalends tables drop {from} --yes`"),
        false => format!("and there is no table of {from} any more"),
    };
    Some(format!(
        "no agent is on {from} and {are} on {to}: there is nothing to copy, and messages delivered \
         since would be delivered again; {next}"
    ))
}

/// The refusal of a command that no server may run beside, on DynamoDB.
pub(super) const SERVERS_UNKNOWN: &str = "this is safe only while no server uses the tables: stop all of them, then add --server-stopped";

fn refusal(copy: &Copy, context: &JobContext) -> Option<String> {
    let (from, to) = (copy.from, copy.to);
    match context.servers {
        Servers::ThisOne => Some(
            "a server is running on this store: stop it first, or agents would write to the \
             table while it is copied"
                .into(),
        ),
        Servers::Unknown if !copy.server_stopped => Some(SERVERS_UNKNOWN.into()),
        _ if to <= from => Some(format!(
            "{to} is not later than {from}: records never move back, and with rotation off the \
             newest table with agents is the one in use"
        )),
        _ if to > context.this_month() => Some(format!(
            "{to} has not begun: agents would not move on before it is over; copy to {} at most",
            context.this_month()
        )),
        _ => None,
    }
}

/// Runs a step for each page. Returns what all of them have seen and written.
pub(super) async fn all_pages(
    what: &str,
    of: Option<u64>,
    step: impl Fn(Option<Cursor>) -> StoreFuture<CopyProgress>,
    report: &Report,
) -> Result<CopyProgress, JobError> {
    let mut all = CopyProgress::default();
    loop {
        report.progress(what, all.seen, of);
        let page = report.step(|| step(all.next.clone())).await?;
        all.seen += page.seen;
        all.written += page.written;
        all.next = page.next;
        if all.next.is_none() {
            return Ok(all);
        }
    }
}
