//! `preflight`, `tables list` and `tables status`, which change nothing.

use std::collections::BTreeSet;

use storage::DiskSpace;
use storage::maintenance::PreflightCheck;

use super::advice::StoreState;
use super::{JobError, Report, census};
use crate::operate::admin::output::{Completion, Output, Status};
use crate::settings::store::message_tables;

/// Tries each operation of a server.
pub(super) async fn preflight(report: &Report) -> Result<Completion, JobError> {
    let there = report.step(|| report.context.store.months()).await?;
    let needed = message_tables::needed_months(report.context.now(), report.frozen_month().await?);
    let (usable, missing): (BTreeSet<_>, BTreeSet<_>) =
        needed.into_iter().partition(|month| there.contains(month));
    let mut checks = report.step(|| report.context.store.preflight(usable.clone())).await?;
    if !report.context.makes_tables {
        // They fail the start of a server that may not create them. The store here may not create them either.
        for month in missing {
            let made = report.context.store.ensure_month(month).await;
            let outcome = made.map_err(|error| error.to_string());
            checks.push(PreflightCheck { what: format!("table of {month}"), outcome });
        }
    }
    checks.extend(report.context.store.disk_space().map(compare_space));
    let is_well = checks.iter().all(|check| check.outcome.is_ok());
    for check in checks {
        report.emit(Output::Check(check)).await?;
    }
    Ok(if is_well { Completion::Done } else { Completion::Unwell })
}

/// A server on a disk with less free space starts, and refuses messages.
fn compare_space(disk: DiskSpace) -> PreflightCheck {
    let (free, min) = (disk.free_bytes, disk.free_bytes_min);
    let outcome = match disk.is_low() {
        false => Ok(()),
        true => Err(format!(
            "{free} bytes are free, and messages are refused with less than {min}: free some space, or lower \
             disk_free_min"
        )),
    };
    PreflightCheck { what: "room on the disk".to_owned(), outcome }
}

pub(super) async fn list(report: &Report) -> Result<(), JobError> {
    let tables = report.step(|| report.context.store.tables()).await?;
    report.emit(Output::Tables(tables)).await
}

pub(super) async fn status(report: &Report) -> Result<(), JobError> {
    let tables = report.step(|| report.context.store.tables()).await?;
    let agents = census::count(&tables, report).await?;
    let frozen_month = report.frozen_month().await?;
    let (now, makes_tables) = (report.context.now(), report.context.makes_tables);
    let state = StoreState { now, frozen_month, makes_tables, tables: &tables, agents: &agents };
    let status = Status {
        this_month: report.context.this_month(),
        rotation: frozen_month.is_none(),
        advice: state.advice(),
        droppable: state.droppable(),
        agents: agents.curmonth,
        unfinished_moves: agents.oldmonth,
        other_types: agents.other_types,
        unfinished_drops: agents.dropped,
        tables,
    };
    report.emit(Output::Status(Box::new(status))).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_nearly_full_is_reported_with_the_free_and_the_needed_space() {
        let disk = |free_bytes| DiskSpace {
            free_bytes,
            free_bytes_min: 32 << 20,
            messages_refused: 0,
            subscriptions_refused: 0,
        };
        assert_eq!(compare_space(disk(32 << 20)).outcome, Ok(()));
        let error = compare_space(disk((32 << 20) - 1)).outcome.unwrap_err();
        assert!(
            error.starts_with(
                "33554431 bytes are free, and messages are refused with less than 33554432:"
            ),
            "{error}"
        );
    }
}
