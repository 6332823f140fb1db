//! Commands that change nothing: `preflight`, `tables list`, `tables status`.

use std::collections::{BTreeMap, BTreeSet};

use state_machine::Month;
use storage::upkeep::Check;

use super::advice::{Standing, advice};
use super::{JobError, Report, census};
use crate::admin::line::{CheckRow, End, Line, Status, TableRow};
use crate::admin::request::MonthName;
use crate::admin::site::Site;
use crate::serve::maintenance;

/// Tries out what a node does.
pub(super) async fn preflight(site: &Site, report: &Report) -> Result<End, JobError> {
    let there = report.step(|| site.store.months()).await?;
    let needed = maintenance::needed_months(&there, site.now(), site.rotation);
    let (usable, missing): (BTreeSet<_>, BTreeSet<_>) =
        needed.into_iter().partition(|month| there.contains(month));
    let mut checks = report.step(|| site.store.preflight(usable.clone())).await?;
    if !site.makes_tables {
        checks.extend(make_none(site, missing).await);
    }
    let is_well = checks.iter().all(|check| check.outcome.is_ok());
    for check in checks {
        let row = CheckRow { what: check.what, problem: check.outcome.err() };
        report.tell(Line::Check(row)).await?;
    }
    Ok(if is_well { End::Done } else { End::Unwell })
}

/// What a server would not start without, where it makes no tables: nor are any made here.
async fn make_none(site: &Site, missing: BTreeSet<Month>) -> Vec<Check> {
    let mut checks = Vec::new();
    for month in missing {
        let outcome = site.store.ensure_month(month).await.map_err(|error| error.to_string());
        checks.push(Check { what: format!("table of {month}"), outcome });
    }
    checks
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
    let (now, &Site { rotation, makes_tables, .. }) = (site.now(), site);
    let standing = Standing { now, rotation, makes_tables, tables: &tables, clients: &clients };
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
