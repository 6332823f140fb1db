//! `users repair`: sets records of connections in the future to the present, while no server is running
//! (docs/decisions/0044-repair-of-records-in-the-future.md).

use state_machine::{Span, Time};
use storage::maintenance::{CopyProgress, RepairClock, Table};

use super::copy::{SERVERS_UNKNOWN, all_pages};
use super::{JobError, Report};
use crate::operate::admin::commands::RepairUsers;
use crate::operate::admin::job_context::Servers;

/// The difference of clocks up to which a record is one of the present.
pub(super) const CLOCK_SKEW: Span = Span::from_secs(60);

pub(super) async fn run(repair: &RepairUsers, report: &Report) -> Result<(), JobError> {
    refuse_servers(report, repair.server_stopped)?;
    let tables = report.step(|| report.context.store.tables()).await?;
    let of = tables.iter().find(|known| known.table == Table::Router).map(|router| router.items);
    let now = report.context.now();
    let RepairUsers { last_connect_shards, .. } = *repair;
    let clock = RepairClock { now, latest: latest(now), last_connect_shards };
    let step = |after| report.context.store.repair_records(clock, after);
    let CopyProgress { seen, written, .. } = all_pages("reading records", of, step, report).await?;
    report.note(format!("{written} of {seen} records were in the future and are set to now")).await
}

/// Refuses a repair beside a server.
pub(super) fn refuse_servers(report: &Report, server_stopped: bool) -> Result<(), JobError> {
    match report.context.servers {
        Servers::ThisOne => Err(JobError::Refused(SERVER_RUNS.to_owned())),
        Servers::Unknown if !server_stopped => Err(JobError::Refused(SERVERS_UNKNOWN.to_owned())),
        Servers::Unknown | Servers::Stopped => Ok(()),
    }
}

/// The latest `connected_at` that is not in the future.
pub(super) fn latest(now: Time) -> Time {
    now + CLOCK_SKEW
}

const SERVER_RUNS: &str = "a server is running on this store: stop it first, because its connections rely on its \
                           rows";
