//! Commands that change nothing: `preflight`, `tables list`, `tables status`.

use std::collections::BTreeMap;

use state_machine::Month;

use super::advice::{Standing, advice};
use super::{JobError, Report, census};
use crate::admin::line::{CheckRow, End, Line, Status, TableRow};
use crate::admin::request::MonthName;
use crate::admin::site::Site;

/// Tries out what a node does.
pub(super) async fn preflight(site: &Site, report: &Report) -> Result<End, JobError> {
    let checks = report.step(|| site.store.preflight()).await?;
    let is_well = checks.iter().all(|check| check.outcome.is_ok());
    for check in checks {
        let row = CheckRow { what: check.what, problem: check.outcome.err() };
        report.tell(Line::Check(row)).await?;
    }
    Ok(if is_well { End::Done } else { End::Unwell })
}

/// Says which tables there are.
pub(super) async fn list(site: &Site, report: &Report) -> Result<(), JobError> {
    let tables = report.step(|| site.store.tables()).await?;
    report.tell(Line::Tables(tables.into_iter().map(TableRow::from).collect())).await
}

/// Says how the store stands.
pub(super) async fn status(site: &Site, report: &mut Report) -> Result<(), JobError> {
    let tables = report.step(|| site.store.tables()).await?;
    let clients = census::count(site, &tables, report).await?;
    let (now, rotation) = (site.now(), site.rotation);
    let standing = Standing { now, rotation, tables: &tables, clients: &clients };
    let status = Status {
        this_month: MonthName(site.this_month()),
        rotation,
        advice: advice(&standing),
        droppable: standing.droppable().into_iter().map(MonthName).collect(),
        clients: named(&clients.on),
        unfinished_moves: named(&clients.moving_from),
        tables: tables.into_iter().map(TableRow::from).collect(),
    };
    report.tell(Line::Status(Box::new(status))).await
}

fn named(counts: &BTreeMap<Month, u64>) -> BTreeMap<MonthName, u64> {
    counts.iter().map(|(month, count)| (MonthName(*month), *count)).collect()
}
