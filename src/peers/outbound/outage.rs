//! A node that is not reached, as operators are told of it.

use slog::{Logger, warn};
use state_machine::{Span, Time};

use super::call::CallError;

/// From the failure that had the node left alone until it is back.
pub(super) struct Outage {
    since: Time,
    told_at: Time,
    /// What came of the last request.
    error: String,
}

impl Outage {
    /// It begins, and the log is told.
    pub(super) fn begin(error: &CallError, now: Time, log: &Logger) -> Self {
        warn!(log, "a node failed and is left alone"; "error" => %error);
        Self { since: now, told_at: now, error: error.to_string() }
    }

    /// Another request failed.
    pub(super) fn go_on(&mut self, error: &CallError) {
        self.error = error.to_string();
    }

    /// Tells the log again, once in `every`, where something was wanted of the node since it was last told.
    pub(super) fn tell(
        &mut self,
        asked_at: Time,
        waiting: usize,
        now: Time,
        every: Span,
        log: &Logger,
    ) {
        if asked_at <= self.told_at || now.since(self.told_at) < every {
            return;
        }
        self.told_at = now;
        let since_s = now.since(self.since).0 / 1000;
        warn!(log, "a node is still not reached";
            "since_s" => since_s, "agents_waiting" => waiting, "error" => &self.error);
    }
}
