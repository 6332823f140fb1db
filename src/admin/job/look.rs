//! `preflight`, `tables list` and `tables status`, which change nothing.

use std::collections::BTreeSet;

use state_machine::Month;
use storage::maintenance::PreflightCheck;

use super::advice::StoreState;
use super::{JobError, Report, census};
use crate::admin::job_context::JobContext;
use crate::admin::output::{Completion, Output, Status};
use crate::store::message_tables;

/// Tries each operation of a server.
pub(super) async fn preflight(
    context: &JobContext,
    report: &Report,
) -> Result<Completion, JobError> {
    let there = report.step(|| context.store.months()).await?;
    let needed = message_tables::needed_months(&there, context.now(), context.rotation);
    let (usable, missing): (BTreeSet<_>, BTreeSet<_>) =
        needed.into_iter().partition(|month| there.contains(month));
    let mut checks = report.step(|| context.store.preflight(usable.clone())).await?;
    if !context.makes_tables {
        checks.extend(check_missing(context, missing).await);
    }
    let is_well = checks.iter().all(|check| check.outcome.is_ok());
    for check in checks {
        report.emit(Output::Check(check)).await?;
    }
    Ok(if is_well { Completion::Done } else { Completion::Unwell })
}

/// Missing tables fail the start of a server that may not create them. The store here may not create them either.
async fn check_missing(context: &JobContext, missing: BTreeSet<Month>) -> Vec<PreflightCheck> {
    let mut checks = Vec::new();
    for month in missing {
        let outcome = context.store.ensure_month(month).await.map_err(|error| error.to_string());
        checks.push(PreflightCheck { what: format!("table of {month}"), outcome });
    }
    checks
}

pub(super) async fn list(context: &JobContext, report: &Report) -> Result<(), JobError> {
    let tables = report.step(|| context.store.tables()).await?;
    report.emit(Output::Tables(tables)).await
}

pub(super) async fn status(context: &JobContext, report: &mut Report) -> Result<(), JobError> {
    let tables = report.step(|| context.store.tables()).await?;
    let agents = census::count(context, &tables, report).await?;
    let (now, &JobContext { rotation, makes_tables, .. }) = (context.now(), context);
    let state = StoreState { now, rotation, makes_tables, tables: &tables, agents: &agents };
    let status = Status {
        this_month: context.this_month(),
        rotation,
        advice: state.advice(),
        droppable: state.droppable(),
        agents: agents.curmonth,
        unfinished_moves: agents.oldmonth,
        tables,
    };
    report.emit(Output::Status(Box::new(status))).await
}
