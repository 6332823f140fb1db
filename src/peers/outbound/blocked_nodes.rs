//! Nodes that records name and that may not be called, as operators are told of them: each once in a while, and only a
//! few, because records may name whatever somebody wrote into them.

use std::sync::{Mutex, PoisonError};

use slog::{Logger, warn};
use state_machine::{NodeId, Span, Time};

/// Names that are remembered, and lines of the log in `every`.
pub(super) const NAMES_MAX: usize = 8;

/// How much of a name is logged and remembered: all that a URL of a node can have.
pub(super) const NAME_CHARS_MAX: usize = 300;

/// Those that the log was told of.
pub(super) struct BlockedNodes {
    every: Span,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    names: Vec<(String, Time)>,
    /// How often one was met since the last line.
    untold: u64,
}

impl BlockedNodes {
    /// None was met. The log is told of each at most once in `every`.
    pub(super) fn new(every: Span) -> Self {
        Self { every, told: Mutex::default() }
    }

    /// One was met.
    pub(super) fn record(&self, node: &NodeId, now: Time, log: &Logger) {
        let name = readable(node);
        // Nothing is left half-done where a thread could panic.
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut told.untold);
        if told.is_news(&name, now, self.every) {
            drop(told);
            warn!(log, "a record names a node that nodes_allowed does not have, so it is not called";
                "node" => name, "more" => before);
        } else {
            told.untold = before.saturating_add(1);
        }
    }
}

impl Told {
    /// Whether the log is to be told of a name, which is remembered then.
    fn is_news(&mut self, name: &str, now: Time, every: Span) -> bool {
        self.names.retain(|(_, told_at)| now.since(*told_at) < every);
        let is_known = self.names.iter().any(|(known, _)| known == name);
        if is_known || self.names.len() >= NAMES_MAX {
            return false;
        }
        self.names.push((name.to_owned(), now));
        true
    }
}

/// A name that does not change a terminal, and does not fill a log.
fn readable(node: &NodeId) -> String {
    let signs = node.as_str().chars().take(NAME_CHARS_MAX);
    signs.flat_map(char::escape_default).collect()
}
