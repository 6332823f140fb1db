//! What is wrong with a server and since when, in one list: for `/health`, the metrics, both pages, the doctor, the log
//! and `kalends status`.
//!
//! - [`checks`]: the list, with what each finding does to people and what to do.
//! - [`clocks`]: the nodes whose clocks are wrong, for an operator; [`maintenance`]: what a server does by itself.

mod checks;
pub mod clocks;
mod maintenance;

use std::array;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use state_machine::{Month, Span, Time};

pub use checks::{CHECKS, Check, SEVERITIES, Severity};
pub use maintenance::{MAINTENANCE, MaintenanceCounts};

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
    /// When it was first noticed, in milliseconds since 1970.
    pub since_ms: u64,
}

/// Since when each finding is there, and the facts that other parts of the server report.
pub struct Judge {
    since: Mutex<[Option<Time>; Check::ALL.len()]>,
    /// Why the store failed, the last time that it was checked.
    pub store_failure: Mutex<Option<String>>,
    /// What settings of the store can lose, in clauses.
    pub risks: Mutex<Vec<String>>,
    /// The months without a table.
    pub missing_months: Mutex<BTreeSet<Month>>,
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
    /// The last backup, in milliseconds since 1970; 0 if none is known.
    backed_up: AtomicU64,
    reminds_of_backup: bool,
}

impl Judge {
    pub fn new(settings: &Settings, now: Time) -> Self {
        Self {
            since: Mutex::default(),
            store_failure: Mutex::default(),
            risks: Mutex::default(),
            missing_months: Mutex::default(),
            source_failure: Mutex::default(),
            started: now,
            operator_page: OnceLock::new(),
            socket: OnceLock::new(),
            metrics_port_taken: OnceLock::new(),
            maintenance: MaintenanceCounts::default(),
            backed_up: AtomicU64::new(0),
            // Another database has backups of its own.
            reminds_of_backup: settings.store == StoreKind::Embedded && settings.backup_reminder,
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

pub struct Findings<'a> {
    judge: &'a Judge,
    pub now: Time,
    found: [Option<(String, Option<String>)>; Check::ALL.len()],
}

impl<'a> Findings<'a> {
    pub fn new(judge: &'a Judge, now: Time) -> Self {
        Self { judge, now, found: array::from_fn(|_| None) }
    }

    pub fn add(&mut self, check: Check, found: impl Into<String>) {
        self.found[check as usize] = Some((found.into(), None));
    }

    pub fn add_with_reason(&mut self, check: Check, found: impl Into<String>, why: String) {
        self.found[check as usize] = Some((found.into(), Some(why)));
    }

    pub fn add_if(&mut self, is_wrong: bool, check: Check, found: &'static str) {
        if is_wrong {
            self.add(check, found);
        }
    }

    /// With the times at which they began.
    pub fn end(self) -> Vec<Finding> {
        let mut since = self.judge.since.lock();
        let each = Check::ALL.into_iter().zip(self.found).zip(&mut *since);
        let each = each.filter_map(|((check, found), since)| {
            let Some((found, why)) = found else {
                *since = None;
                return None;
            };
            Some(Finding {
                check,
                severity: check.severity(),
                found,
                why,
                effect: check.effect().into(),
                remedy: check.remedy().into(),
                since_ms: since.get_or_insert(self.now).0,
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

    pub fn finds(&self, check: Check) -> bool {
        self.findings.iter().any(|finding| finding.check == check)
    }
}
