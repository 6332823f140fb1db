//! The log of nodes in records that `nodes_allowed` does not allow.
//!
//! Only a few names are logged in an interval: an attacker may write any name into a record.

use std::sync::{Mutex, PoisonError};

use slog::{Logger, warn};
use state_machine::{NodeId, Span, Time};

/// Maximum number of names, and so of log lines, in one interval.
pub(super) const NAMES_MAX: usize = 8;

/// Length to which a logged name is truncated. The URL of a node is never longer.
pub(super) const NAME_CHARS_MAX: usize = 300;

pub(super) struct BlockedNodes {
    /// Minimum time between two lines with the same name.
    interval: Span,
    logged: Mutex<Logged>,
}

#[derive(Default)]
struct Logged {
    names: Vec<(String, Time)>,
    /// Requests since the last line.
    suppressed: u64,
}

impl BlockedNodes {
    pub(super) fn new(interval: Span) -> Self {
        Self { interval, logged: Mutex::default() }
    }

    /// Logs a request for this node, or counts it.
    pub(super) fn record(&self, node: &NodeId, now: Time, log: &Logger) {
        // A hostile name must neither control a terminal nor fill the log.
        let name = node.as_str().chars().take(NAME_CHARS_MAX);
        let name: String = name.flat_map(char::escape_default).collect();
        // A panic cannot leave the names half-updated.
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        logged.names.retain(|(_, at)| now.since(*at) < self.interval);
        if logged.names.len() >= NAMES_MAX || logged.names.iter().any(|(known, _)| *known == name) {
            logged.suppressed = logged.suppressed.saturating_add(1);
            return;
        }
        logged.names.push((name.clone(), now));
        let suppressed = std::mem::take(&mut logged.suppressed);
        drop(logged);
        warn!(log, "a record names a node that nodes_allowed does not allow, so it is not called";
            "node" => name, "more" => suppressed);
    }
}
