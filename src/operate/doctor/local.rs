//! The files and limits of this machine.

use std::io;

use rustix::process::{Resource, getrlimit};
use state_machine::{Month, Time};
use storage::data_dir::{check_dir, free_bytes};
use storage::maintenance::{Table, TableStatus};
use tokio::runtime::Builder;

use super::findings::Findings;
use crate::command::CommandError;
use crate::command::backend::open_shared;
use crate::command::store_command::collect;
use crate::operate::tables::list::List;
use crate::settings::keys::Keys;
use crate::settings::store::message_tables;
use crate::settings::{Settings, StoreKind};
use crate::system::clock::unix_now;

/// Open files beside the connections, about as many as a server reserves.
const FILES_RESERVED: u64 = 512;

pub(super) fn check(settings: &Settings, findings: &mut Findings) -> io::Result<()> {
    let dir = &settings.data_dir;
    if !dir.exists() {
        let remedy = "start the server once, or name its directory with --data-dir or --config";
        return findings.fail("data directory", format!("there is no {}", dir.display()), remedy);
    }
    let private = check_dir(dir).map(|()| format!("{} is private", dir.display()));
    findings.result("data directory", private, "correct it: a server does not start")?;
    let remedy = "restore keys.toml from a backup: without it no endpoint works";
    findings.result("keys", Keys::load(dir).map(|_| "keys.toml can be used"), remedy)?;
    if settings.store == StoreKind::Embedded {
        disk(settings, findings)?;
    }
    open_files(settings, findings)?;
    tables(settings, findings)?;
    match settings.store.is_shared() {
        true => risks(settings, findings),
        false => Ok(()),
    }
}

fn disk(settings: &Settings, findings: &mut Findings) -> io::Result<()> {
    let (dir, min) = (&settings.data_dir, settings.disk_free_min);
    let free = match free_bytes(dir) {
        Ok(free) => free,
        Err(error) => {
            let found = format!("its space is unknown: {error}");
            return findings.warn("disk", found, "check it with df");
        }
    };
    let found = format!("{} MiB are free", free >> 20);
    let low = format!("{found}, and messages are refused below {} MiB", min >> 20);
    match free {
        _ if free < min => findings.fail("disk", low, "free some space, or lower disk_free_min"),
        _ if free < min.saturating_mul(4) => findings.warn("disk", low, "free some space soon"),
        _ => findings.ok("disk", found),
    }
}

fn open_files(settings: &Settings, findings: &mut Findings) -> io::Result<()> {
    let wanted = settings.connections_max as u64 + FILES_RESERVED;
    match getrlimit(Resource::Nofile).maximum {
        Some(limit) if limit < wanted => findings.warn(
            "open files",
            format!(
                "this user may open {limit}, and connections_max = {} needs {wanted}",
                settings.connections_max
            ),
            "raise LimitNOFILE of the unit or ulimit -n, or lower connections_max",
        ),
        Some(limit) => findings.ok("open files", format!("{limit} are allowed")),
        None => findings.ok("open files", "there is no limit"),
    }
}

/// The message tables that a server uses now, and that of next month where servers create none.
fn tables(settings: &Settings, findings: &mut Findings) -> io::Result<()> {
    let check = "message tables";
    let tables: Vec<_> = match collect(List::default(), settings) {
        Ok(reports) => reports.into_iter().flat_map(|report| report.tables).collect(),
        Err(error) => return findings.fail(check, error.to_string(), "as it says"),
    };
    let missing =
        if settings.rotation { missing(&tables, unix_now(), settings) } else { Vec::new() };
    if missing.is_empty() {
        return findings.ok(check, "this month's table and the next one's are as they should be");
    }
    let remedy =
        "`kalends tables create` creates it: without it agents cannot change to that month";
    findings.fail(check, format!("there is no table of {}", missing.join(", ")), remedy)
}

/// What settings of the database can lose. A database that does not answer is a finding about its tables.
fn risks(settings: &Settings, findings: &mut Findings) -> io::Result<()> {
    let read = async {
        let store = open_shared(settings, false)?.store;
        let risks = store.risks().await?;
        store.close().await?;
        Ok::<_, CommandError>(risks)
    };
    let check = "durability";
    match Builder::new_current_thread().enable_all().build()?.block_on(read) {
        Ok(risks) if risks.is_empty() => findings.ok(check, "the database keeps what was answered"),
        Ok(risks) => risks.into_iter().try_for_each(|risk| {
            findings.warn(check, risk, "change the setting of the database, or accept the loss")
        }),
        Err(_) => Ok(()),
    }
}

fn missing(tables: &[TableStatus], now: Time, settings: &Settings) -> Vec<String> {
    let mut needed = message_tables::needed_months(now, None);
    if settings.store.is_shared() && !settings.create_tables {
        needed.insert(Month::of(now).next());
    }
    needed.retain(|month| !tables.iter().any(|table| table.table == Table::Messages(*month)));
    needed.iter().map(Month::to_string).collect()
}

#[cfg(test)]
mod tests {
    use storage::maintenance::Capacity;

    use super::*;

    #[test]
    fn next_months_table_is_missed_at_once_where_servers_create_none() {
        let tables = ["2026_10", "2026_11"].map(|month| TableStatus {
            table: Table::Messages(month.parse().unwrap()),
            name: month.to_owned(),
            state: "active".to_owned(),
            items: 0,
            bytes: 0,
            capacity: Capacity::OnDemand,
        });
        let missing_at = |day: u64, create_tables| {
            let settings =
                Settings { store: StoreKind::DynamoDb, create_tables, ..Settings::default() };
            missing(&tables, Time(day * 24 * 60 * 60 * 1000), &settings)
        };
        // The 13th, the last day of November, and the first of December.
        assert!(missing_at(20_770, true).is_empty());
        assert_eq!(missing_at(20_770, false), ["2026_12"]);
        assert_eq!(missing_at(20_787, true), ["2026_12"]);
        assert_eq!(missing_at(20_788, true), ["2026_12"]);
    }
}
