//! `tables copy`: gives a table another month's name, while no server is running
//! (docs/sources.md#message-table-rotation).
//!
//! The job copies all rows, then moves the records. Until a record names the new table, its messages are complete in
//! the old one; after that, in the new one. So the job can be repeated after a failure, unless a server used the
//! store meanwhile. Once all records name the new table the job is refused: it would restore messages that
//! were delivered since.

use state_machine::Month;
use storage::maintenance::Table;

use super::census::{self, Clients};
use super::{JobError, Report};
use crate::admin::commands::{Copy, INACTIVE_MONTHS_MIN};
use crate::admin::job_context::{JobContext, Servers, months_before};

pub(super) async fn run(
    copy: &Copy,
    context: &JobContext,
    report: &mut Report,
) -> Result<(), JobError> {
    let (from, to) = (copy.from, copy.to);
    refuse(copy, context).map_or(Ok(()), |why| Err(JobError::Refused(why)))?;
    let tables = report.step(|| context.store.tables()).await?;
    let items = |table| tables.iter().find(|known| known.table == table).map(|known| known.items);
    let rows = items(Table::Messages(from));
    let clients = census::count(context, &tables, report).await?;
    if let Some(why) = is_done((from, to), rows.is_some(), &clients) {
        return Err(JobError::Refused(why));
    }
    let Some(rows) = rows else {
        return Err(JobError::Refused(format!("there is no table of {from}: nothing was copied")));
    };
    report.step(|| context.store.ensure_month(to)).await?;
    let rows = copy_rows((from, to), rows, context, report).await?;
    report.note(format!("copied {from} to {to}: {rows} rows")).await?;
    let records = move_records((from, to), items(Table::Router), context, report).await?;
    report.note(format!("{records} records name {to} instead of {from} now")).await?;
    note_next_steps(from, context, report).await
}

async fn note_next_steps(
    from: Month,
    context: &JobContext,
    report: &Report,
) -> Result<(), JobError> {
    report.note(format!("next: `kalends tables drop {from} --yes`, then start the server")).await?;
    if from > months_before(context.this_month(), INACTIVE_MONTHS_MIN) {
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
fn is_done((from, to): (Month, Month), is_from_there: bool, clients: &Clients) -> Option<String> {
    let on_copy = clients.naming(to);
    if clients.naming(from) > 0 || on_copy == 0 {
        return None;
    }
    let are = if on_copy == 1 { "1 is" } else { &format!("{on_copy} are") };
    let next = match is_from_there {
        true => format!("next is `kalends tables drop {from} --yes`"),
        false => format!("and there is no table of {from} any more"),
    };
    Some(format!(
        "no client is on {from} and {are} on {to}: there is nothing to copy, and messages delivered \
         since would be delivered again; {next}"
    ))
}

fn refuse(copy: &Copy, context: &JobContext) -> Option<String> {
    let (from, to) = (copy.from, copy.to);
    match context.servers {
        Servers::ThisOne => Some(
            "a server is running on this store: stop it first, or clients would write to the \
             table while it is copied"
                .into(),
        ),
        Servers::Unknown if !copy.server_stopped => Some(
            "this is safe only while no server uses the tables: stop all of them, then add \
             --server-stopped"
                .into(),
        ),
        _ if to <= from => Some(format!(
            "{to} is not later than {from}: records never move back, and with rotation off the \
             newest table is the one in use"
        )),
        _ if to > context.this_month() => Some(format!(
            "{to} has not begun: clients would not move on before it is over; copy to {} at most",
            context.this_month()
        )),
        _ => None,
    }
}

async fn copy_rows(
    (from, to): (Month, Month),
    of: u64,
    context: &JobContext,
    report: &mut Report,
) -> Result<u64, JobError> {
    let (mut seen, mut after) = (0, None);
    loop {
        report.progress("copying rows", seen, Some(of));
        let page = report.step(|| context.store.copy_rows(from, to, after.clone())).await?;
        seen += page.seen;
        after = page.next;
        if after.is_none() {
            return Ok(seen);
        }
    }
}

async fn move_records(
    (from, to): (Month, Month),
    of: Option<u64>,
    context: &JobContext,
    report: &mut Report,
) -> Result<u64, JobError> {
    let (mut seen, mut moved, mut after) = (0, 0, None);
    loop {
        report.progress("moving records", seen, of);
        let page = report.step(|| context.store.move_records(from, to, after.clone())).await?;
        (seen, moved) = (seen + page.seen, moved + page.written);
        after = page.next;
        if after.is_none() {
            return Ok(moved);
        }
    }
}
