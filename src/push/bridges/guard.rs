//! What keeps one application at a bridge from delaying or flooding anything: a breaker, and a bound of pushes in
//! flight.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use slog::{Logger, info, warn};
use state_machine::breaker::{Breaker, BreakerLimits, Epoch};
use state_machine::log_limiter::LogLimiter;
use state_machine::{BridgeOutcome, Span, Time};

use super::platform::Verdict;
use crate::settings::Settings;

/// Failures in a row after which the breaker opens. A bridge may fail for one message alone.
const FAILURES_MAX: u32 = 5;

/// Minimum time between two log lines of the same kind on one application.
pub(super) const LOG_EVERY: Span = Span::from_secs(60);

/// The limits of each application.
#[derive(Debug, Clone, Copy)]
pub(super) struct GuardLimits {
    pub(super) in_flight_max: usize,
    /// Timeout of a push, with all that it needs.
    pub(super) timeout: Duration,
    pub(super) breaker: BreakerLimits,
}

/// Pushes of one application since the start, by the name of their outcome.
pub type OutcomeCounts = BTreeMap<&'static str, u64>;

/// The state of one application, for an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GuardState {
    pub in_flight: usize,
    /// Whether pushes are sent; false while the breaker is open.
    #[serde(rename = "available")]
    pub is_available: bool,
    pub outcomes: OutcomeCounts,
}

/// The guard of one application.
pub(super) struct Guard {
    limits: GuardLimits,
    state: Mutex<State>,
    log: Logger,
}

struct State {
    breaker: Breaker,
    in_flight: usize,
    failures: u32,
    /// The answer to pushes while the breaker is open.
    last_failure: BridgeOutcome,
    outcomes: OutcomeCounts,
    bound_limiter: LogLimiter,
    failure_limiter: LogLimiter,
    outage_limiter: LogLimiter,
    refusal_limiter: LogLimiter,
}

/// One of the pushes in flight. If it is dropped unfinished, the push has failed.
pub(super) struct Permit {
    guard: Arc<Guard>,
    epoch: Epoch,
    entered_at: Time,
    is_finished: bool,
}

impl From<&Settings> for GuardLimits {
    fn from(settings: &Settings) -> Self {
        Self {
            in_flight_max: settings.bridge_pushes_in_flight_max,
            timeout: Duration::from_millis(settings.bridge_timeout_ms),
            breaker: BreakerLimits {
                backoff: Span(settings.bridge_backoff_ms),
                backoff_max: Span(settings.bridge_backoff_max_ms),
            },
        }
    }
}

impl Guard {
    pub(super) fn new(limits: GuardLimits, log: Logger) -> Self {
        let limiter = || LogLimiter::new(LOG_EVERY);
        let state = State {
            breaker: Breaker::new(),
            in_flight: 0,
            failures: 0,
            last_failure: BridgeOutcome::Unavailable,
            outcomes: OutcomeCounts::new(),
            bound_limiter: limiter(),
            failure_limiter: limiter(),
            outage_limiter: limiter(),
            refusal_limiter: limiter(),
        };
        Self { limits, state: Mutex::new(state), log }
    }

    /// Begins a push, or gives its outcome if it is not sent. When the backoff is over, one push is the probe.
    pub(super) fn enter(self: &Arc<Self>, now: Time) -> Result<Permit, BridgeOutcome> {
        let mut state = self.state.lock();
        if state.in_flight >= self.limits.in_flight_max {
            let outcome = BridgeOutcome::Busy { retry_after: None };
            state.count(outcome);
            if let Some(more) = state.bound_limiter.allow(now) {
                warn!(self.log, "too many pushes wait for a bridge, further ones get 429";
                    "bridge_pushes_in_flight_max" => self.limits.in_flight_max, "more" => more);
            }
            return Err(outcome);
        }
        let epoch = match state.breaker.allow() {
            true => Some(state.breaker.epoch()),
            false => state.breaker.try_half_open(now),
        };
        let Some(epoch) = epoch else {
            let outcome = state.last_failure;
            state.count(outcome);
            return Err(outcome);
        };
        state.in_flight += 1;
        Ok(Permit { guard: Arc::clone(self), epoch, entered_at: now, is_finished: false })
    }

    pub(super) fn observe(&self) -> GuardState {
        let state = self.state.lock();
        GuardState {
            in_flight: state.in_flight,
            is_available: state.breaker.allow(),
            outcomes: state.outcomes.clone(),
        }
    }

    fn finished(&self, epoch: Epoch, verdict: &Verdict, now: Time) {
        let mut state = self.state.lock();
        state.count(verdict.outcome);
        match verdict.outcome {
            BridgeOutcome::Unavailable | BridgeOutcome::TimedOut | BridgeOutcome::Unauthorized => {
                return self.failed(&mut state, epoch, verdict, now);
            }
            BridgeOutcome::Misconfigured => {
                if let Some(more) = state.refusal_limiter.allow(now) {
                    warn!(self.log, "a bridge refuses messages, check the application in bridges_file";
                        "reason" => verdict.reason.as_ref(), "more" => more);
                }
            }
            BridgeOutcome::Accepted
            | BridgeOutcome::UnknownApp
            | BridgeOutcome::RecipientGone
            | BridgeOutcome::TooLarge { .. }
            | BridgeOutcome::Busy { .. } => {}
        }
        state.failures = 0;
        if !state.breaker.allow() {
            info!(self.log, "a bridge is available again");
        }
        state.breaker.on_success();
    }

    fn failed(&self, state: &mut State, epoch: Epoch, verdict: &Verdict, now: Time) {
        state.failures = state.failures.saturating_add(1);
        let is_outage = !state.breaker.allow()
            || state.failures >= FAILURES_MAX
            // A bridge that names a time does not want to be asked before.
            || verdict.retry_after.is_some();
        if is_outage {
            let BreakerLimits { backoff, backoff_max } = self.limits.breaker;
            let backoff =
                verdict.retry_after.map_or(backoff, |span| span.max(backoff).min(backoff_max));
            state.breaker.on_failure(epoch, now, &BreakerLimits { backoff, backoff_max });
            state.last_failure = match verdict.outcome {
                BridgeOutcome::Unauthorized => BridgeOutcome::Unauthorized,
                // This push waited in vain; the next ones do not wait.
                _ => BridgeOutcome::Unavailable,
            };
            if state.breaker.allow() {
                return;
            }
        }
        let limiter =
            if is_outage { &mut state.outage_limiter } else { &mut state.failure_limiter };
        let Some(more) = limiter.allow(now) else { return };
        let reason = verdict.reason.as_ref();
        // Refused credentials have a line of their own, as only the operator can replace them.
        if verdict.outcome == BridgeOutcome::Unauthorized {
            warn!(self.log, "a bridge refuses the credentials of an application, check them and the clock";
                "reason" => reason, "more" => more);
        } else if is_outage {
            warn!(self.log, "a bridge is unavailable, pushes through it get 502"; "reason" => reason, "more" => more);
        } else {
            warn!(self.log, "a push through a bridge failed"; "reason" => reason, "more" => more);
        }
    }
}

impl State {
    fn count(&mut self, outcome: BridgeOutcome) {
        let name = match outcome {
            BridgeOutcome::Accepted => "accepted",
            BridgeOutcome::RecipientGone => "recipient_gone",
            BridgeOutcome::TooLarge { .. } => "too_large",
            BridgeOutcome::Busy { .. } => "busy",
            BridgeOutcome::Misconfigured | BridgeOutcome::UnknownApp => "misconfigured",
            BridgeOutcome::Unauthorized => "unauthorized",
            BridgeOutcome::Unavailable => "unavailable",
            BridgeOutcome::TimedOut => "timed_out",
        };
        *self.outcomes.entry(name).or_default() += 1;
    }
}

impl Permit {
    /// Reports the verdict of the bridge.
    pub(super) fn finish(mut self, verdict: &Verdict, now: Time) {
        self.is_finished = true;
        self.guard.finished(self.epoch, verdict, now);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.guard.state.lock().in_flight -= 1;
        if !self.is_finished {
            let verdict = Verdict::new(BridgeOutcome::TimedOut, "the push was abandoned");
            self.guard.finished(self.epoch, &verdict, self.entered_at);
        }
    }
}
