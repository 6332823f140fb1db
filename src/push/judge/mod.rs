//! What is wrong with a server and since when, in one list: for `/health`, the metrics, both pages, the doctor, the log
//! and `kalends status`.
//!
//! - [`checks`]: the list, with what each finding does to people and what to do.
//! - [`clocks`]: the nodes whose clocks are wrong, and [`disk`] its free space, for an operator.
//! - [`maintenance`]: what a server does by itself.

mod checks;
pub mod clocks;
pub mod disk;
mod maintenance;

use std::array;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use state_machine::{ClockDifference, Month, Span, Time};
use storage::StoreError;

pub use checks::{CHECKS, Check, SEVERITIES, Severity};
pub use maintenance::{MAINTENANCE, MaintenanceCounts};

use crate::settings::store::place;
use crate::settings::{Settings, StoreKind};
use crate::system::unix_socket::SocketPlace;

/// A week, and a day in which the next backup is made.
const BACKUP_AGE_MAX: Span = Span::from_secs(8 * 24 * 60 * 60);

/// What is wrong, the worst first.
pub struct Judgement {
    pub findings: Vec<Finding>,
    /// The user agents that are connected, if the registry answered.
    pub connections: Option<usize>,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    pub check: Check,
    pub severity: Severity,
    /// A clause of what was found.
    pub found: String,
    /// Details of an outage, which strangers do not see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Sentences of what it does to people, and of what to do.
    pub effect: Cow<'static, str>,
    pub remedy: Cow<'static, str>,
    /// When it was first noticed, in milliseconds since 1970. It is the start of the server if the first judgement found it.
    pub since_ms: u64,
}

/// Since when each finding is there, and the facts that other parts of the server report.
pub struct Judge {
    since: Mutex<[Option<Time>; Check::ALL.len()]>,
    /// Whether there was a judgement already. What the first one finds may be as old as the server.
    was_asked: AtomicBool,
    /// Why the store failed, the last time that it was checked.
    pub store_failure: Mutex<Option<StoreError>>,
    /// What settings of the store can lose, in clauses.
    pub risks: Mutex<Vec<String>>,
    /// The months without a table.
    pub missing_months: Mutex<BTreeSet<Month>>,
    /// A call of a node that was refused, because its clock is more than a day from this one.
    pub refused_call: Mutex<Option<RefusedCall>>,
    /// Why the source of broadcasts gave none, the last time that it was asked.
    pub source_failure: Mutex<Option<String>>,
    pub started: Time,
    /// Where the operator's page is, if it is.
    pub operator_page: OnceLock<SocketAddr>,
    /// Of a public port that is a Unix socket.
    pub socket: OnceLock<SocketPlace>,
    /// The default of `metrics_listen`, if the server cannot listen there.
    pub metrics_port_taken: OnceLock<SocketAddr>,
    pub maintenance: MaintenanceCounts,
    /// The database and the directory, for an operator.
    pub database: String,
    pub data_dir: String,
    /// The setting that the certificate is of, with its value.
    pub certificate_of: String,
    /// The last backup, in milliseconds since 1970; 0 if none is known.
    backed_up: AtomicU64,
    is_embedded: bool,
    reminds_of_backup: bool,
    pub remedies: Remedies,
    /// `connections_max` as an operator set it, which the limit of open files may lower.
    pub connections_wanted: OnceLock<usize>,
}

/// What to do that depends on the settings.
pub struct Remedies {
    pub store: &'static str,
    /// If it ends, has ended, or is not there yet.
    pub certificate: &'static str,
}

/// Its signature was not verified: anything on this network may have sent it.
#[derive(Debug, Clone, Copy)]
pub struct RefusedCall {
    pub at: Time,
    pub from: IpAddr,
    /// How far the clock of the caller is ahead.
    pub ahead: ClockDifference,
}

impl Judge {
    pub fn new(settings: &Settings, now: Time) -> Self {
        let is_embedded = settings.store == StoreKind::Embedded;
        Self {
            since: Mutex::default(),
            was_asked: AtomicBool::new(false),
            store_failure: Mutex::default(),
            risks: Mutex::default(),
            missing_months: Mutex::default(),
            refused_call: Mutex::default(),
            source_failure: Mutex::default(),
            started: now,
            operator_page: OnceLock::new(),
            socket: OnceLock::new(),
            metrics_port_taken: OnceLock::new(),
            maintenance: MaintenanceCounts::default(),
            database: place(settings),
            data_dir: settings.data_dir.display().to_string(),
            certificate_of: match (settings.acme_domain(), settings.certificate_files()) {
                (Some(domain), _) => format!("domain = {domain}"),
                (None, Some(files)) => format!("tls_certificate = {}", files.certificate.display()),
                (None, None) => String::new(),
            },
            backed_up: AtomicU64::new(0),
            // Another database has backups of its own.
            is_embedded,
            reminds_of_backup: is_embedded && settings.backup_reminder,
            remedies: Remedies {
                store: match is_embedded {
                    true => "Mend the disk of that directory. The log has the reason.",
                    false => Check::Store.remedy(),
                },
                certificate: match settings.acme_domain() {
                    Some(_) => "The log has why the order failed. It is repeated by itself.",
                    None => Check::Certificate.remedy(),
                },
            },
            connections_wanted: OnceLock::new(),
        }
    }

    /// Why the store fails: of another database, which is named beside it, the last cause. The log has the whole.
    pub fn store_reason(&self) -> Option<String> {
        let whole = self.store_failure.lock().as_ref()?.to_string();
        Some(if self.is_embedded { whole } else { last_cause(&whole) })
    }

    /// The reason of a finding, for the log.
    pub fn whole_reason(&self, finding: &Finding) -> Option<String> {
        match &*self.store_failure.lock() {
            Some(whole) if finding.check == Check::Store => Some(whole.to_string()),
            _ => finding.why.clone(),
        }
    }

    /// A backup was made at this time.
    pub fn backed_up(&self, at: Time) {
        self.backed_up.fetch_max(at.0, Ordering::Relaxed);
    }

    pub fn last_backup(&self) -> Option<Time> {
        let at = self.backed_up.load(Ordering::Relaxed);
        (at > 0).then_some(Time(at))
    }

    /// The time without a backup, if it is too long.
    pub fn without_backup(&self, now: Time) -> Option<Span> {
        let age = now.since(self.last_backup().unwrap_or(self.started));
        (self.reminds_of_backup && age > BACKUP_AGE_MAX).then_some(age)
    }
}

/// That of a connection, without the number of the error. Of any other failure each part counts.
fn last_cause(why: &str) -> String {
    let last = why.rsplit(": ").next().unwrap_or(why);
    match last.split_once(" (os error ") {
        Some((cause, _)) => cause.to_lowercase(),
        None if last.starts_with("no answer ") => last.to_owned(),
        None => why.to_owned(),
    }
}

pub struct Findings<'a> {
    pub judge: &'a Judge,
    pub now: Time,
    found: [Option<Found>; Check::ALL.len()],
}

/// What was found, with the words of its check unless others are set.
pub struct Found {
    found: String,
    pub why: Option<String>,
    pub effect: Cow<'static, str>,
    pub remedy: Cow<'static, str>,
}

impl<'a> Findings<'a> {
    pub fn new(judge: &'a Judge, now: Time) -> Self {
        Self { judge, now, found: array::from_fn(|_| None) }
    }

    pub fn add(&mut self, check: Check, found: impl Into<String>) -> &mut Found {
        self.found[check as usize].insert(Found {
            found: found.into(),
            why: None,
            effect: check.effect().into(),
            remedy: check.remedy().into(),
        })
    }

    pub fn add_if(&mut self, is_wrong: bool, check: Check, found: &'static str) {
        if is_wrong {
            self.add(check, found);
        }
    }

    /// With the times at which they began.
    pub fn end(self) -> Vec<Finding> {
        let is_first = !self.judge.was_asked.swap(true, Ordering::Relaxed);
        let noticed = if is_first { self.judge.started } else { self.now };
        let mut since = self.judge.since.lock();
        let each = Check::ALL.into_iter().zip(self.found).zip(&mut *since);
        let each = each.filter_map(|((check, found), since)| {
            let Some(Found { found, why, effect, remedy }) = found else {
                *since = None;
                return None;
            };
            Some(Finding {
                check,
                severity: check.severity(),
                found,
                why,
                effect,
                remedy,
                since_ms: since.get_or_insert(noticed).0,
            })
        });
        each.collect()
    }
}

impl Judgement {
    pub fn is_healthy(&self) -> bool {
        self.outages().next().is_none()
    }

    pub fn outages(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.severity == Severity::Outage)
    }

    /// Of the worst finding of these checks.
    pub fn severity_of(&self, checks: &[Check]) -> Option<Severity> {
        let found = self.findings.iter().find(|finding| checks.contains(&finding.check));
        found.map(|finding| finding.severity)
    }

    pub fn finds(&self, check: Check) -> bool {
        self.findings.iter().any(|finding| finding.check == check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_first_judgement_finds_is_there_since_the_start() {
        let judge = Judge::new(&Settings::default(), Time(1));
        let since = |check, now| {
            let mut findings = Findings::new(&judge, Time(now));
            findings.add(check, "x");
            findings.end()[0].since_ms
        };
        assert_eq!([since(Check::Log, 5), since(Check::Log, 6), since(Check::Disk, 7)], [1, 1, 7]);
        assert_eq!(since(Check::Log, 8), 8, "it was well meanwhile");
    }

    #[test]
    fn a_database_that_is_away_has_the_last_cause_only() {
        for (why, cause) in [
            (
                "UpdateItem on table router: the server cannot be reached: io error: client error (Connect): tcp \
                 connect error: 127.0.0.1:8000: Connection refused (os error 111)",
                "connection refused",
            ),
            ("UpdateItem on table router: no answer in time", "no answer in time"),
            ("no answer within 2 s", "no answer within 2 s"),
            ("PostgreSQL: the table is corrupt: x", "PostgreSQL: the table is corrupt: x"),
        ] {
            assert_eq!(last_cause(why), cause);
            let settings = Settings { store: StoreKind::DynamoDb, ..Settings::default() };
            let judge = Judge::new(&settings, Time(0));
            *judge.store_failure.lock() = Some(StoreError::Failed(why.to_owned()));
            assert_eq!(judge.store_reason().as_deref(), Some(cause));
        }
        let judge = Judge::new(&Settings::default(), Time(0));
        let whole = "cannot write /a/b: No space left on device (os error 28)";
        *judge.store_failure.lock() = Some(StoreError::Failed(whole.to_owned()));
        assert_eq!(judge.store_reason().as_deref(), Some(whole), "it names the file");
    }
}
