//! The files and limits of this machine.

use std::io;
use std::path::Path;

use rustix::process::{Resource, getrlimit};
use state_machine::{Month, Time};
use storage::data_dir::{check_dir, free_bytes};
use storage::maintenance::TableStatus;
use tokio::runtime::Builder;

use super::findings::{Findings, Level, Verdict};
use super::reach;
use crate::command::CommandError;
use crate::command::backend::{connect, open_shared};
use crate::command::store_command::collect;
use crate::operate::status::Screen;
use crate::operate::tables::list::List;
use crate::push::judge::{Check, Finding, Severity, disk};
use crate::settings::keys::Keys;
use crate::settings::store::message_tables::missing_months;
use crate::settings::{Settings, StoreKind, is_missed};
use crate::system::clock::{SystemClock, unix_now};

/// Open files beside the connections, about as many as a server reserves.
const FILES_RESERVED: u64 = 512;

/// The remedy of a certificate that a server does not read.
const UNUSABLE: &str = "correct tls_certificate and tls_key: a server does not start with them, and one that runs keeps \
                        those that it has";

/// `server` is what a running server shows of itself.
pub(super) fn check(
    settings: &Settings,
    server: Option<Screen>,
    findings: &mut Findings,
) -> io::Result<()> {
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
    match server {
        Some(screen) => running(screen, findings)?,
        None if is_idle(dir) => {
            let remedy = "start it: `journalctl -u kalends` says why it ended, and `kalends preflight` what stops a start";
            findings.fail("server", format!("no server runs on {}", dir.display()), remedy)?;
        }
        // It does not answer, or not to this user.
        None => {}
    }
    if let Some(files) = settings.certificate_files() {
        let check = "certificate file";
        let now = SystemClock::shifted(0).now();
        match files.read(now) {
            Ok(certificate) => findings.verdict(check, reach::ends(certificate.valid, now))?,
            Err(error) => findings.fail(check, error.to_string(), UNUSABLE)?,
        }
    }
    let limit = getrlimit(Resource::Nofile).maximum;
    findings.verdict("open files", open_files(limit, settings.connections_max))?;
    tables(settings, findings)?;
    match settings.store.is_shared() {
        true => risks(settings, findings),
        false => Ok(()),
    }
}

/// Whether it is known that no server runs on the data directory.
fn is_idle(dir: &Path) -> bool {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.is_ok_and(|runtime| matches!(runtime.block_on(connect(dir)), Ok(None)))
}

/// What the server finds wrong with itself beside what is examined here.
fn running(screen: Screen, findings: &mut Findings) -> io::Result<()> {
    if screen.findings.is_empty() {
        findings.ok("server", "it finds nothing wrong with itself")?;
    }
    // A disk that nothing can be written to may have enough free space here.
    let is_here = |finding: &Finding| match finding.check {
        Check::Space => finding.why.is_none(),
        check => matches!(check, Check::Disk | Check::Durability),
    };
    let found = screen.findings.into_iter().filter(|finding| !is_here(finding));
    for Finding { check, severity, found, why, effect, remedy, .. } in found {
        let (name, remedy) = (check.name(), format!("{effect} {remedy}"));
        let found = why.map_or(found.clone(), |why| format!("{found}: {why}"));
        match severity {
            Severity::Outage => findings.fail(name, found, &remedy)?,
            Severity::Warning => findings.warn(name, found, &remedy)?,
        }
    }
    Ok(())
}

fn disk(settings: &Settings, findings: &mut Findings) -> io::Result<()> {
    match free_bytes(&settings.data_dir) {
        Ok(free) => findings.verdict("disk", space(free, settings.disk_free_min)),
        Err(error) => {
            let found = format!("its space is unknown: {error}");
            findings.warn("disk", found, "check it with df")
        }
    }
}

/// Of bytes that are free, and of those below which messages are refused.
fn space(free: u64, min: u64) -> Verdict {
    let low = disk::low(free, min);
    match free {
        _ if free < min => (Level::Fail, low, "free some space, or lower disk_free_min"),
        _ if disk::is_low(free, min) => (Level::Warn, low, "free some space soon"),
        _ => (Level::Ok, disk::free(free), ""),
    }
}

/// Of the limit that the user may set, if there is one.
fn open_files(limit: Option<u64>, connections_max: usize) -> Verdict {
    let wanted = connections_max as u64 + FILES_RESERVED;
    let remedy = "raise LimitNOFILE of the unit or ulimit -n, or lower connections_max";
    let is_few = |limit: u64| {
        let free = usize::try_from(limit.saturating_sub(FILES_RESERVED)).unwrap_or(usize::MAX);
        is_missed(free, connections_max, Settings::default().connections_max)
    };
    match limit {
        Some(limit) if is_few(limit) => {
            let needs = format!("and connections_max = {connections_max} needs {wanted}");
            (Level::Warn, format!("this user may open {limit}, {needs}"), remedy)
        }
        Some(limit) => (Level::Ok, format!("{limit} are allowed"), remedy),
        None => (Level::Ok, "there is no limit".to_owned(), remedy),
    }
}

/// The message tables that a server uses now, and that of next month where servers create none.
fn tables(settings: &Settings, findings: &mut Findings) -> io::Result<()> {
    let check = "message tables";
    let tables: Vec<_> = match collect(List::default(), settings) {
        Ok(reports) => reports.into_iter().flat_map(|report| report.tables).collect(),
        Err(error) => return findings.fail(check, error.to_string(), "as it says"),
    };
    let missing = missing(&tables, unix_now(), settings);
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
    if !settings.rotation {
        return Vec::new();
    }
    let there: Vec<_> = tables.iter().filter_map(|table| table.table.month()).collect();
    let missing = missing_months(&there, now, None, settings.makes_tables());
    missing.iter().map(Month::to_string).collect()
}

#[cfg(test)]
mod tests {
    use storage::maintenance::{Capacity, Table};

    use super::*;

    #[test]
    fn of_a_server_that_does_not_run_the_certificate_is_examined() {
        let home = tempfile::tempdir().unwrap();
        let certificate = home.path().join("cert.pem");
        std::fs::write(&certificate, "").unwrap();
        let settings = Settings {
            data_dir: home.path().to_owned(),
            tls_key: Some(certificate.clone()),
            tls_certificate: Some(certificate),
            ..Settings::default()
        };
        let mut findings = Findings { printed: None, all: Vec::new() };
        check(&settings, None, &mut findings).unwrap();
        for (check, words) in [("server", "no server runs on"), ("certificate file", "has no")] {
            let found = findings.all.iter().find(|found| found.check == check).unwrap();
            assert_eq!(found.level, Level::Fail);
            assert!(found.found.contains(words), "{found:?}");
        }
    }

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
        let missing_with = |settings: Settings, day: u64| {
            missing(&tables, Time(day * 24 * 60 * 60 * 1000), &settings)
        };
        let missing_at = |day, create_tables| {
            let store = StoreKind::DynamoDb;
            missing_with(Settings { store, create_tables, ..Settings::default() }, day)
        };
        // The 13th, the last day of November, and the first of December.
        assert!(missing_at(20_770, true).is_empty());
        assert_eq!(missing_at(20_770, false), ["2026_12"]);
        assert_eq!(missing_at(20_787, true), ["2026_12"]);
        assert_eq!(missing_at(20_788, true), ["2026_12"]);
        // A server with files creates its tables.
        let embedded = Settings { create_tables: false, ..Settings::default() };
        assert!(missing_with(embedded, 20_770).is_empty());
        let frozen = Settings { rotation: false, ..Settings::default() };
        assert!(missing_with(frozen, 20_788).is_empty());
    }

    #[test]
    fn a_disk_is_short_below_the_minimum_and_low_below_four_times_that() {
        const MIN: u64 = 5 << 20;
        for (free, min, level, words) in [
            (MIN - 1, MIN, Level::Fail, "4.9 MiB free, and messages are refused below 5 MiB"),
            (MIN, MIN, Level::Warn, "5 MiB free, and messages are refused below 5 MiB"),
            (4 * MIN - 1, MIN, Level::Warn, "19.9 MiB free, and messages are refused below 5 MiB"),
            (4 * MIN, MIN, Level::Ok, "20 MiB free"),
            (0, 0, Level::Ok, "0 B free"),
            (u64::MAX - 1, u64::MAX / 2, Level::Warn, "15.9 EiB free"),
            (u64::MAX, u64::MAX / 2, Level::Ok, "15.9 EiB free"),
        ] {
            let (found_level, found, remedy) = space(free, min);
            assert_eq!(found_level, level, "{free} of {min}");
            assert!(found.starts_with(words), "{found}");
            assert_eq!(remedy.ends_with("lower disk_free_min"), level == Level::Fail);
            assert_eq!(remedy.ends_with("soon"), level == Level::Warn);
        }
    }

    #[test]
    fn a_server_opens_a_file_for_each_connection_and_some_more() {
        let level_at = |limit| open_files(limit, 100).0;
        assert_eq!([Some(611), Some(612), None].map(level_at), [Level::Warn, Level::Ok, Level::Ok]);
        let (_, found, _) = open_files(Some(611), 100);
        assert_eq!(found, "this user may open 611, and connections_max = 100 needs 612");
    }
}
