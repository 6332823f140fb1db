//! `tables copy`: gives a table another month's name, while no server is running (seed 002, "the
//! current table renamed").
//!
//! First all rows, then the records: until a record names the new table it is complete in the old
//! one, and after that in the new one. So it can break off anywhere and be run again, as long as no
//! server worked on the store meanwhile. When all records name the new table it is refused: rows
//! that are gone from there since, because they were delivered, would come back.

use state_machine::Month;
use storage::maintenance::Table;

use super::census::{self, Clients};
use super::{JobError, Report};
use crate::admin::job_context::{JobContext, Servers, months_before};
use crate::admin::request::{Copy, INACTIVE_MONTHS_MIN};

/// Copies the rows, then makes the records name the copy.
pub(super) async fn run(
    asked: &Copy,
    context: &JobContext,
    report: &mut Report,
) -> Result<(), JobError> {
    let (from, to) = (asked.from.0, asked.to.0);
    refuse(asked, context).map_or(Ok(()), |why| Err(JobError::Refused(why)))?;
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
        // A search could not begin there yet, and by itself it begins before.
        return Ok(());
    }
    let since = format!(
        "from now on: `kalends users drop-inactive --since {from}`, for by itself it looks back no \
         further than the oldest table and three months"
    );
    report.note(since).await
}

/// What is left to do where everybody is on the copy already.
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
        "no client is on {from} and {are} on {to}: there is nothing to copy, and what was delivered \
         since would be delivered again; {next}"
    ))
}

fn refuse(asked: &Copy, context: &JobContext) -> Option<String> {
    let (from, to) = (asked.from.0, asked.to.0);
    match context.servers {
        Servers::ThisOne => Some(
            "a server is running on this store: stop it first, or clients would go on writing to \
             the table that is copied"
                .into(),
        ),
        Servers::Unknown if !asked.server_stopped => Some(
            "this is safe only while no server uses the tables: stop all of them, then say \
             --server-stopped"
                .into(),
        ),
        _ if to <= from => Some(format!(
            "{to} is not later than {from}: records never move back, and with rotation off the \
             newest table is the one in use"
        )),
        _ if to > context.this_month() => Some(format!(
            "{to} is yet to come: clients would not move on before it is over; copy to {} at most",
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
