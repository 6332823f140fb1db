//! `tables copy`: gives a table another month's name, while no server is running (seed 002, "the
//! current table renamed").
//!
//! First all rows, then the records: until a record names the new table it is complete in the old
//! one, and after that in the new one. So it can break off anywhere and be run again.

use state_machine::Month;
use storage::upkeep::Table;

use super::{JobError, Report};
use crate::admin::request::Copy;
use crate::admin::site::{Servers, Site};

/// Copies the rows, then makes the records name the copy.
pub(super) async fn run(asked: &Copy, site: &Site, report: &mut Report) -> Result<(), JobError> {
    let (from, to) = (asked.from.0, asked.to.0);
    refuse(asked, site).map_or(Ok(()), |why| Err(JobError::Refused(why)))?;
    let tables = report.step(|| site.store.tables()).await?;
    let items = |table| tables.iter().find(|known| known.table == table).map(|known| known.items);
    let Some(rows) = items(Table::Messages(from)) else {
        return Err(JobError::Refused(format!("there is no table of {from}: nothing was copied")));
    };
    report.step(|| site.store.ensure_month(to)).await?;
    let rows = copy_rows((from, to), rows, site, report).await?;
    report.note(format!("copied {from} to {to}: {rows} rows")).await?;
    let records = move_records((from, to), items(Table::Router), site, report).await?;
    report.note(format!("{records} records name {to} instead of {from} now")).await?;
    report.note(format!("next: `kalends tables drop {from} --yes`, then start the server")).await
}

fn refuse(asked: &Copy, site: &Site) -> Option<String> {
    let (from, to) = (asked.from.0, asked.to.0);
    match site.servers {
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
        _ if to > site.this_month() => Some(format!(
            "{to} is yet to come: clients would not move on before it is over; copy to {} at most",
            site.this_month()
        )),
        _ => None,
    }
}

async fn copy_rows(
    (from, to): (Month, Month),
    of: u64,
    site: &Site,
    report: &mut Report,
) -> Result<u64, JobError> {
    let (mut seen, mut after) = (0, None);
    loop {
        report.progress("copying rows", seen, Some(of));
        let page = report.step(|| site.store.copy_rows(from, to, after.clone())).await?;
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
    site: &Site,
    report: &mut Report,
) -> Result<u64, JobError> {
    let (mut seen, mut moved, mut after) = (0, 0, None);
    loop {
        report.progress("moving records", seen, of);
        let page = report.step(|| site.store.move_records(from, to, after.clone())).await?;
        (seen, moved) = (seen + page.seen, moved + page.written);
        after = page.next;
        if after.is_none() {
            return Ok(moved);
        }
    }
}
