//! `tables copy`: gives a table another month's name, while no server is running
//! (docs/sources.md#message-table-rotation).
//!
//! The job copies all rows, then moves the records. Until a record names the new table, its messages are complete in
//! the old one; after that, in the new one. So the job can be repeated after a failure, unless a server used the
//! store meanwhile. Once all records name the new table the job is refused: it would restore messages that
//! were delivered since.

use state_machine::Month;
use storage::maintenance::{CopyProgress, RecordsByMonth, Table};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::census::{self, agents_are, naming};
use crate::command::backend;
use crate::command::context::months_before;
use crate::command::{
    Backend, CommandError, Context, Job, JobError, NoReport, Servers, StoreCommand,
};
use crate::operate::exclusive::{SERVERS_UNKNOWN, all_pages};
use crate::operate::users::INACTIVE_MONTHS;
use crate::settings::Settings;
use crate::system::printable::count;

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Copy {
    /// The month to copy, such as 2026_09
    pub from: Month,
    /// The month to copy it to, such as 2026_11
    pub to: Month,
    /// Confirm that no server uses the tables, which DynamoDB does not show
    #[arg(long)]
    pub server_stopped: bool,
}

impl StoreCommand for Copy {
    const NAME: &'static str = "tables copy";
    const ABOUT: &'static str = "Copy a month's table to another month, while no server is running";
    const HELP: &'static str = "\
Gives the table of an installation with rotation = false another month's name: stop the server,
copy, drop the old table, start the server. If it fails, repeat it before a server starts: messages
delivered meanwhile would be delivered again.

Example:
  kalends tables copy 2026_03 2026_11 --data-dir /var/lib/kalends
  kalends tables drop 2026_03 --yes --rotation=false --data-dir /var/lib/kalends";
    type Report = NoReport;

    async fn reach(&self, settings: &Settings) -> Result<Backend, CommandError> {
        match settings.store {
            store if store.is_shared() && self.server_stopped => {
                // A mistyped prefix must not create tables.
                backend::open_shared(settings, false)?.store.close().await?;
                Ok(Backend::Own(backend::open_shared(settings, true)?))
            }
            _ => backend::reach(settings).await,
        }
    }

    async fn run(self, job: &Job) -> Result<(), JobError> {
        let (from, to) = (self.from, self.to);
        if let Some(why) = refusal(&self, &job.context) {
            return Err(JobError::Refused(why));
        }
        let tables = job.step(|| job.context.store.tables()).await?;
        let items =
            |table| tables.iter().find(|known| known.table == table).map(|known| known.items);
        let rows = items(Table::Messages(from));
        let agents = census::count(&tables, job).await?;
        if let Some(why) = is_done((from, to), rows.is_some(), &agents) {
            return Err(JobError::Refused(why));
        }
        let Some(rows) = rows else {
            return Err(JobError::Refused(format!(
                "there is no table of {from}: nothing was copied"
            )));
        };
        job.step(|| job.context.store.ensure_month(to)).await?;
        let copy_rows = |after| job.context.store.copy_rows(from, to, after);
        let CopyProgress { seen, .. } =
            all_pages("copying rows", Some(rows), copy_rows, job).await?;
        job.note(format!("copied {from} to {to}: {}", count(seen, "row"))).await?;
        let of = items(Table::Router);
        let move_records = |after| job.context.store.move_records(from, to, after);
        let CopyProgress { written, .. } =
            all_pages("moving records", of, move_records, job).await?;
        job.note(format!("moved from {from} to {to}: {}", count(written, "record"))).await?;
        job.note(format!("next: `kalends tables drop {from} --yes`, then start the server"))
            .await?;
        if from > months_before(job.context.this_month(), INACTIVE_MONTHS) {
            // `--since` does not accept this month yet, and the default is earlier.
            return Ok(());
        }
        let since = format!(
            "from now on: `kalends users drop-inactive --since {from}`, since the default is the month of the \
             oldest table, and three months at least"
        );
        job.note(since).await
    }
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

fn refusal(copy: &Copy, context: &Context) -> Option<String> {
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
