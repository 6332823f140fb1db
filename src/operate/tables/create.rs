//! `tables create`: creates the tables of last, this and next month, with the throughput they need.

use state_machine::month::CivilHour;
use state_machine::{Month, Time};
use storage::maintenance::{Capacity, Table, TableStatus, Throughput};

use std::io::{Write as _, stdout};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::command::{
    Backend, CommandError, Failure, Job, JobError, NoReport, StoreCommand, backend, run_and_print,
};
use crate::settings::{Settings, StoreKind, store};
use crate::system::clock::unix_now;

#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Create {
    /// Lower last month's table to this many reads and writes a second, from the fourth of a month on
    #[arg(long, value_name = "READ:WRITE", value_parser = throughput)]
    pub lower_prior: Option<Throughput>,
    /// Print the SQL that makes the tables in PostgreSQL, and make none
    #[arg(long)]
    #[serde(skip)]
    pub print: bool,
}

fn throughput(text: &str) -> Result<Throughput, String> {
    let units = |text: &str| text.parse().ok().filter(|units: &u32| *units > 0);
    let parsed = text.split_once(':').and_then(|(read, write)| units(read).zip(units(write)));
    let (read, write) = parsed.ok_or("expected READ:WRITE, such as 5:5")?;
    Ok(Throughput { read, write })
}

impl StoreCommand for Create {
    const NAME: &'static str = "tables create";
    const ABOUT: &'static str = "Create the tables of last, this and next month";
    const HELP: &'static str = "\
If tables have a throughput, next month's gets that of this month's; --lower-prior lowers last
month's and never raises it. With --print, an operator of PostgreSQL makes the tables for a server
without that right: create_tables = false. Each month needs its tables before it begins.

Examples:
  kalends tables create --data-dir /var/lib/kalends
  kalends tables create --lower-prior 5:5 --config /etc/kalends/kalends.toml
  kalends tables create --print --store postgresql | psql push";
    type Report = NoReport;

    fn is_within_bounds(&self) -> bool {
        self.lower_prior.is_none_or(|units| units.read > 0 && units.write > 0)
    }

    fn main(self, settings: &Settings) -> Result<(), Failure> {
        if !self.print {
            return Ok(run_and_print(self, settings)?);
        }
        let this = Month::of(unix_now());
        let statements = store::statements(settings, &[this.previous(), this, this.next()]);
        let statements = statements.ok_or_else(|| CommandError::Job(NO_SQL.to_owned()))?;
        Ok(write!(stdout(), "{statements}")
            .map_err(|error| CommandError::Job(error.to_string()))?)
    }

    async fn reach(&self, settings: &Settings) -> Result<Backend, CommandError> {
        match settings.store {
            StoreKind::Embedded => backend::reach(settings).await,
            StoreKind::DynamoDb | StoreKind::PostgreSql => {
                Ok(Backend::Own(backend::open_shared(settings, true)?))
            }
        }
    }

    /// Creates missing tables, gives next month's table the throughput of this month's, and lowers that of last
    /// month's with `--lower-prior`.
    async fn run(self, job: &Job) -> Result<(), JobError> {
        let this = job.context.this_month();
        make_other_tables(job).await?;
        let months = job.step(|| job.context.store.months()).await?;
        if let Some(month) = job.frozen_month().await? {
            if !months.contains(&month) {
                return make(month, false, job).await;
            }
            let note = format!("rotation is off: {month} stays in use, no other is needed");
            return job.note(note).await;
        }
        for month in [this.previous(), this, this.next()] {
            make(month, months.contains(&month), job).await?;
        }
        let tables = job.step(|| job.context.store.tables()).await?;
        let of = |month| capacity(&tables, month);
        if let Some(change) = copied(of(this), of(this.next()), this) {
            apply(this.next(), change, job).await?;
        }
        if let Some(lower) = self.lower_prior {
            let change = lowered(of(this.previous()), lower, job.context.now());
            apply(this.previous(), change, job).await?;
        }
        Ok(())
    }
}

const NO_SQL: &str = "only tables in PostgreSQL are made by SQL: add --store postgresql";

/// Days of a month in which last month's table keeps its throughput: agents are still moving.
const MOVING_DAYS: u8 = 3;

/// The table of SimplePush, which a server creates at its first write, and those of feeds. The embedded store keeps
/// feeds in the router's file and lists no table of them.
async fn make_other_tables(job: &Job) -> Result<(), JobError> {
    let before = job.step(|| job.context.store.tables()).await?;
    job.step(|| job.context.store.ensure_notifications()).await?;
    job.step(|| job.context.store.ensure_feeds()).await?;
    let after = job.step(|| job.context.store.tables()).await?;
    let has = |tables: &[TableStatus], table| tables.iter().any(|known| known.table == table);
    let is_new = |table| has(&after, table) && !has(&before, table);
    if is_new(Table::Notifications) {
        job.note("the table of notifications is made").await?;
    }
    if is_new(Table::Sequences) || is_new(Table::Feeds) {
        job.note("the tables of feeds are made").await?;
    }
    Ok(())
}

async fn make(month: Month, is_there: bool, job: &Job) -> Result<(), JobError> {
    // A table that exists may still be in creation.
    job.step(|| job.context.store.ensure_month(month)).await?;
    job.note(format!("{month} {}", if is_there { "was there" } else { "is made" })).await
}

/// The throughput that a table gets, or why it keeps its own.
type Change = Result<Throughput, String>;

async fn apply(month: Month, change: Change, job: &Job) -> Result<(), JobError> {
    match change {
        Err(why) => job.note(why).await,
        Ok(throughput @ Throughput { read, write }) => {
            job.step(|| job.context.store.set_throughput(month, throughput)).await?;
            job.note(format!("{month} has {read} reads and {write} writes a second now")).await
        }
    }
}

/// The change of next month's table; none if the tables have no throughput or the same.
fn copied(this: Option<Capacity>, next: Option<Capacity>, month: Month) -> Option<Change> {
    match (this?, next?) {
        (Capacity::Provisioned(this), Capacity::Provisioned(next)) if this == next => None,
        (Capacity::Provisioned(this), Capacity::Provisioned(_)) => Some(Ok(this)),
        (this, next) if this == next => None,
        _ => Some(Err(format!(
            "{month} and {} are paid for in different ways: make them alike by hand",
            month.next()
        ))),
    }
}

/// The change of last month's table, which is never raised.
fn lowered(prior: Option<Capacity>, to: Throughput, now: Time) -> Change {
    let CivilHour { day, .. } = CivilHour::of(now);
    let month = Month::of(now).previous();
    let Some(Capacity::Provisioned(has)) = prior else {
        return Err(format!("{month} has no throughput that could be lowered"));
    };
    let lower = Throughput { read: has.read.min(to.read), write: has.write.min(to.write) };
    if lower == has {
        Err(format!("{month} has no more throughput than that"))
    } else if day <= MOVING_DAYS {
        Err(format!(
            "{month} keeps its throughput for the first {MOVING_DAYS} days of a month: agents are \
             still moving"
        ))
    } else {
        Ok(lower)
    }
}

fn capacity(tables: &[TableStatus], month: Month) -> Option<Capacity> {
    let table = tables.iter().find(|table| table.table == Table::Messages(month));
    table.map(|table| table.capacity)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 24 * 60 * 60 * 1000;

    /// The first millisecond of 2026_12.
    const DECEMBER: Time = Time(20_788 * DAY_MS);

    fn provisioned(read: u32, write: u32) -> Option<Capacity> {
        Some(Capacity::Provisioned(Throughput { read, write }))
    }

    #[test]
    fn next_month_gets_the_throughput_of_this_month() {
        let month = Month::of(DECEMBER);
        let set = |read, write| Some(Ok(Throughput { read, write }));
        assert_eq!(copied(provisioned(9, 8), provisioned(1, 2), month), set(9, 8));
        assert_eq!(copied(provisioned(9, 8), provisioned(9, 8), month), None);
        let (unmetered, on_demand) = (Some(Capacity::Unmetered), Some(Capacity::OnDemand));
        assert_eq!(copied(unmetered, unmetered, month), None);
        assert_eq!(copied(on_demand, on_demand, month), None);
        let unlike = copied(on_demand, provisioned(1, 2), month);
        assert!(matches!(unlike, Some(Err(why)) if why.contains("2026_12 and 2027_01")));
    }

    #[test]
    fn last_month_is_lowered_and_never_raised() {
        let mid = Time(DECEMBER.0 + 15 * DAY_MS);
        let to = Throughput { read: 5, write: 5 };
        let set = |read, write| Ok(Throughput { read, write });
        assert_eq!(lowered(provisioned(100, 50), to, mid), set(5, 5));
        assert_eq!(lowered(provisioned(100, 2), to, mid), set(5, 2));
        assert!(lowered(provisioned(5, 2), to, mid).is_err());
        assert!(lowered(Some(Capacity::OnDemand), to, mid).is_err());
        assert!(matches!(lowered(None, to, mid), Err(why) if why.contains("2026_11")));
    }

    #[test]
    fn last_month_keeps_its_throughput_while_agents_are_moving() {
        let to = Throughput { read: 5, write: 5 };
        let on_day =
            |day: u64| lowered(provisioned(9, 9), to, Time(DECEMBER.0 + (day - 1) * DAY_MS));
        assert!(matches!(on_day(1), Err(why) if why.contains("first 3 days")));
        assert!(on_day(3).is_err());
        assert_eq!(on_day(4), Ok(to));
    }
}
