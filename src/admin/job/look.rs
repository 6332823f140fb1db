//! Commands that change nothing: `preflight`, `tables list`, `tables status`.

use std::collections::{BTreeMap, BTreeSet};

use state_machine::Month;
use storage::maintenance::PreflightCheck;

use super::advice::{Standing, advice};
use super::{JobError, Report, census};
use crate::admin::job_context::JobContext;
use crate::admin::output::{CheckRow, Completion, Output, Status, TableRow};
use crate::admin::request::MonthName;
use crate::server::maintenance;

/// Tries out what a node does.
pub(super) async fn preflight(
    context: &JobContext,
    report: &Report,
) -> Result<Completion, JobError> {
    let there = report.step(|| context.store.months()).await?;
    let needed = maintenance::needed_months(&there, context.now(), context.rotation);
    let (usable, missing): (BTreeSet<_>, BTreeSet<_>) =
        needed.into_iter().partition(|month| there.contains(month));
    let mut checks = report.step(|| context.store.preflight(usable.clone())).await?;
    if !context.makes_tables {
        checks.extend(make_none(context, missing).await);
    }
    let is_well = checks.iter().all(|check| check.outcome.is_ok());
    for check in checks {
        let row = CheckRow { what: check.what, problem: check.outcome.err() };
        report.emit(Output::Check(row)).await?;
    }
    Ok(if is_well { Completion::Done } else { Completion::Unwell })
}

/// What a server would not start without, where it makes no tables: nor are any made here.
async fn make_none(context: &JobContext, missing: BTreeSet<Month>) -> Vec<PreflightCheck> {
    let mut checks = Vec::new();
    for month in missing {
        let outcome = context.store.ensure_month(month).await.map_err(|error| error.to_string());
        checks.push(PreflightCheck { what: format!("table of {month}"), outcome });
    }
    checks
}

/// Says which tables there are.
pub(super) async fn list(context: &JobContext, report: &Report) -> Result<(), JobError> {
    let tables = report.step(|| context.store.tables()).await?;
    report.emit(Output::Tables(tables.into_iter().map(TableRow::from).collect())).await
}

/// Says how the store stands.
pub(super) async fn status(context: &JobContext, report: &mut Report) -> Result<(), JobError> {
    let tables = report.step(|| context.store.tables()).await?;
    let clients = census::count(context, &tables, report).await?;
    let (now, &JobContext { rotation, makes_tables, .. }) = (context.now(), context);
    let standing = Standing { now, rotation, makes_tables, tables: &tables, clients: &clients };
    let status = Status {
        this_month: MonthName(context.this_month()),
        rotation,
        advice: advice(&standing),
        droppable: standing.droppable().into_iter().map(MonthName).collect(),
        clients: named(&clients.on),
        unfinished_moves: named(&clients.moving_from),
        tables: tables.into_iter().map(TableRow::from).collect(),
    };
    report.emit(Output::Status(Box::new(status))).await
}

fn named(counts: &BTreeMap<Month, u64>) -> BTreeMap<MonthName, u64> {
    counts.iter().map(|(month, count)| (MonthName(*month), *count)).collect()
}
