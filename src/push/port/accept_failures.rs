//! Failures to accept a connection, for instance because the process has no file handle left.
//!
//! actix-server waits after such a failure and tries again. It reports it only through the `log`
//! crate, so this is the process's logger for that crate.

use std::sync::Arc;

use actors::{Clock, SharedLogLimiter};
use log::{Level, LevelFilter, Log, Metadata, Record};
use parking_lot::Mutex;
use slog::{Logger, error};
use state_machine::{Span, Time};

/// The module of actix-server that accepts connections.
const SOURCE: &str = "actix_server::accept";

/// Minimum time between two log lines.
const LOG_EVERY: Span = Span::from_secs(1);

/// Time after a failure in which the process is unhealthy. A monitor that asks twice a minute notices
/// a failure that has ended.
const UNHEALTHY: Span = Span::from_secs(30);

/// The failures of all ports of the process.
pub struct AcceptFailures {
    clock: Clock,
    log: Logger,
    log_limiter: SharedLogLimiter,
    last: Mutex<Option<Time>>,
}

/// Passes what actix-server reports to the failures.
struct Reports(Arc<AcceptFailures>);

impl AcceptFailures {
    /// Watches the ports of this process.
    pub fn watch(clock: Clock, log: Logger) -> Arc<Self> {
        let failures = Arc::new(Self::new(clock, log));
        // It lives as long as the process, which has one server.
        let reports = Box::leak(Box::new(Reports(Arc::clone(&failures))));
        if log::set_logger(reports).is_ok() {
            log::set_max_level(LevelFilter::Error);
        }
        failures
    }

    fn new(clock: Clock, log: Logger) -> Self {
        let log_limiter = SharedLogLimiter::new(LOG_EVERY);
        Self { clock, log, log_limiter, last: Mutex::default() }
    }

    /// Whether a port failed lately.
    pub fn are_recent(&self) -> bool {
        self.last.lock().is_some_and(|last| self.clock.now().since(last) < UNHEALTHY)
    }

    fn record(&self, report: &str) {
        let now = self.clock.now();
        *self.last.lock() = Some(now);
        if let Some(failures) = self.log_limiter.count(now) {
            error!(self.log, "cannot accept connections"; "error" => report, "failures" => failures);
        }
    }
}

impl Log for Reports {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() == Level::Error && metadata.target() == SOURCE
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            self.0.record(&record.args().to_string());
        }
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use slog::{Discard, o};

    use super::*;

    #[test]
    fn only_a_failure_to_accept_makes_the_process_unhealthy() {
        let clock = Clock::starting_at(Time(1_000_000));
        let failures = AcceptFailures::new(clock.clone(), Logger::root(Discard, o!()));
        let failures = Arc::new(failures);
        let reports = Reports(Arc::clone(&failures));
        for (level, target, is_failure) in [
            (Level::Error, "actix_server::worker", false),
            (Level::Warn, SOURCE, false),
            (Level::Error, SOURCE, true),
        ] {
            reports.log(&Record::builder().level(level).target(target).build());
            assert_eq!(failures.are_recent(), is_failure, "{level} {target}");
        }
        clock.set(clock.now() + UNHEALTHY);
        assert!(!failures.are_recent());
    }
}
