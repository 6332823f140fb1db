//! The state of one node: circuit breaker, requests in progress, pending notifications.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use actors::observe::{BreakerState, PeerStatus};
use hyper::StatusCode;
use parking_lot::Mutex;
use slog::{Logger, debug, info, o, warn};
use state_machine::breaker::{Breaker, Epoch};
use state_machine::delivery::NodeAnswer;
use state_machine::log_limiter::LogLimiter;
use state_machine::{NodeId, Time};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::limits::RemoteLimits;
use super::peer::{CallError, Peer};
use super::pending_notifications::PendingNotifications;
use crate::cluster::request::PeerRequest;

/// Notifications in progress to one node.
pub(super) const NOTIFICATIONS_AT_ONCE: usize = 16;

pub(super) struct PeerState {
    pub(super) peer: Peer,
    limits: RemoteLimits,
    log: Logger,
    /// Number of pushes in progress, at most `requests_max`.
    requests: AtomicUsize,
    /// Time of the last push or notification for the node, in milliseconds.
    used_at: AtomicU64,
    state: Mutex<State>,
    /// Wakes the worker when a request of an earlier epoch shows that the node answers. May wake it
    /// once too often.
    pub(super) recovered: Notify,
}

struct State {
    breaker: Breaker,
    notifications: PendingNotifications,
    /// Notifications wait until then after the node had no capacity for one.
    notify_from: Time,
    /// Present while the breaker is not closed.
    outage: Option<Outage>,
    advice_limiter: LogLimiter,
    /// Runs only while there is something to do.
    worker: Option<AbortHandle>,
    /// The table no longer has this entry, and may have a newer one for the node.
    is_closed: bool,
}

struct Outage {
    since: Time,
    logged_at: Time,
    last_error: String,
}

/// One of the pushes that may be in progress to a node; returned when dropped.
pub(super) struct RequestPermit {
    pub(super) peer: Arc<PeerState>,
    pub(super) epoch: Epoch,
}

/// What the worker of a node does next.
#[derive(Debug)]
pub(super) enum NextAction {
    /// End. The next notification or failure starts another worker.
    Idle,
    /// End, and remove the node from the table: it is unreachable and unused.
    Evict,
    Wait(Time),
    Probe(Epoch),
    /// Send these notifications. While the breaker is half-open, there is one, as the probe.
    Flush(Epoch, Vec<PeerRequest>),
}

impl PeerState {
    pub(super) fn new(peer: Peer, limits: RemoteLimits, log: &Logger, now: Time) -> Self {
        let state = State {
            breaker: Breaker::new(),
            notifications: PendingNotifications::up_to(limits.pending_notifications_max),
            notify_from: now,
            outage: None,
            advice_limiter: LogLimiter::new(limits.log_every),
            worker: None,
            is_closed: false,
        };
        Self {
            log: log.new(o!("node" => peer.address.to_string())),
            peer,
            limits,
            requests: AtomicUsize::new(0),
            used_at: AtomicU64::new(now.0),
            state: Mutex::new(state),
            recovered: Notify::new(),
        }
    }

    /// Begins a push, or gives its answer if the node must not be called now.
    pub(super) fn begin(self: &Arc<Self>, now: Time) -> Result<RequestPermit, NodeAnswer> {
        self.used_at.store(now.0, Ordering::Relaxed);
        let epoch = {
            let state = self.state.lock();
            if state.is_closed || !state.breaker.allow() {
                return Err(NodeAnswer::Unreachable);
            }
            state.breaker.epoch()
        };
        let before = self.requests.fetch_add(1, Ordering::Relaxed);
        let permit = RequestPermit { peer: Arc::clone(self), epoch };
        if before < self.limits.requests_max { Ok(permit) } else { Err(NodeAnswer::Busy) }
    }

    /// The epoch of its breaker, if pushes are sent to it.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        let state = self.state.lock();
        state.breaker.allow().then(|| state.breaker.epoch())
    }

    /// Its state, for an operator.
    pub(super) fn observe(&self, node: &NodeId, now: Time) -> PeerStatus {
        let state = self.state.lock();
        PeerStatus {
            node: node.clone(),
            breaker: match (state.breaker.allow(), state.breaker.retry_at()) {
                (true, _) => BreakerState::Closed,
                (false, Some(at)) => BreakerState::Open { probe_in: at.since(now) },
                (false, None) => BreakerState::HalfOpen,
            },
            pushes_in_flight: self.requests.load(Ordering::Relaxed),
            notifications_pending: state.notifications.len(),
        }
    }

    /// Queues a notification; the caller wakes the worker.
    pub(super) fn add(&self, notification: PeerRequest, now: Time) {
        self.used_at.store(now.0, Ordering::Relaxed);
        self.state.lock().notifications.add(notification);
    }

    /// Updates the breaker with the result of a request that began in `epoch`, and logs a change.
    pub(super) fn finished(&self, epoch: Epoch, result: &Result<StatusCode, CallError>, now: Time) {
        let mut state = self.state.lock();
        let was_closed = state.breaker.allow();
        match result {
            Ok(_) => {
                state.breaker.on_success();
                if !was_closed {
                    state.outage = None;
                    info!(self.log, "a node is reachable again");
                    self.recovered.notify_one();
                }
            }
            Err(error) => {
                state.breaker.on_failure(epoch, now, &self.limits.breaker);
                let last_error = error.to_string();
                if was_closed && !state.breaker.allow() {
                    warn!(self.log, "a node is unreachable, its messages are stored"; "error" => &last_error);
                    state.outage = Some(Outage { since: now, logged_at: now, last_error });
                } else {
                    debug!(self.log, "a request to a node failed"; "error" => &last_error);
                    if let Some(outage) = &mut state.outage {
                        outage.last_error = last_error;
                    }
                }
            }
        }
        if let Some(advice) = advice(result)
            && state.advice_limiter.allow(now).is_some()
        {
            warn!(self.log, "{advice}");
        }
    }

    /// Queues notifications again that the node did not receive.
    pub(super) fn requeue(&self, failed: impl IntoIterator<Item = PeerRequest>, now: Time) {
        let mut state = self.state.lock();
        for notification in failed {
            state.notifications.add(notification);
            state.notify_from = now + self.limits.breaker.backoff;
        }
    }

    /// The next action. Only the worker calls this, when none of its requests are in progress.
    pub(super) fn next(&self, now: Time) -> NextAction {
        let mut state = self.state.lock();
        self.log_outage(&mut state, now);
        // A node that is down stays listed for that time, although it is unused: a finding names it.
        let began = state.outage.as_ref().map_or(Time(0), |outage| outage.since);
        let is_evictable = self.is_evictable(now) && now.since(began) >= self.limits.evict_after;
        let next = state.next(now, is_evictable);
        if matches!(next, NextAction::Idle | NextAction::Evict) {
            state.worker = None;
        }
        state.is_closed |= matches!(next, NextAction::Evict);
        next
    }

    /// Starts the worker if there is something to do and none is running.
    pub(super) fn wake(&self, spawn: impl FnOnce() -> AbortHandle) {
        let mut state = self.state.lock();
        let is_running = state.worker.as_ref().is_some_and(|worker| !worker.is_finished());
        let is_idle = state.breaker.allow() && state.notifications.is_empty();
        if !(is_running || is_idle || state.is_closed) {
            state.worker = Some(spawn());
        }
    }

    /// Closes the entry if the node is unused and has nothing pending; whether it is closed.
    pub(super) fn close_if_idle(&self, now: Time) -> bool {
        if !self.is_evictable(now) || self.requests.load(Ordering::Relaxed) > 0 {
            return false;
        }
        let mut state = self.state.lock();
        state.is_closed |= state.worker.is_none();
        state.is_closed
    }

    /// Closes the entry if the breaker is not closed, and drops its notifications; whether it did.
    pub(super) fn close_if_unreachable(&self) -> bool {
        let is_unreachable = self.epoch().is_none();
        if is_unreachable {
            self.close();
        }
        is_unreachable
    }

    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        if let Some(worker) = state.worker.take() {
            worker.abort();
        }
    }

    /// Logs an outage again every `log_every` while there are requests for the node.
    fn log_outage(&self, state: &mut State, now: Time) {
        let waiting = state.notifications.len();
        let Some(outage) = &mut state.outage else { return };
        let is_due = now.since(outage.logged_at) >= self.limits.log_every;
        if is_due && self.used_at() > outage.logged_at {
            outage.logged_at = now;
            let since_s = now.since(outage.since).0 / 1000;
            warn!(self.log, "a node is still unreachable";
                "since_s" => since_s, "agents_waiting" => waiting, "error" => &outage.last_error);
        }
    }

    fn is_evictable(&self, now: Time) -> bool {
        now.since(self.used_at()) >= self.limits.evict_after
    }

    fn used_at(&self) -> Time {
        Time(self.used_at.load(Ordering::Relaxed))
    }
}

impl State {
    fn next(&mut self, now: Time, is_evictable: bool) -> NextAction {
        if let Some(until) = self.breaker.retry_at() {
            let epoch = self.breaker.try_half_open(now);
            return match epoch {
                _ if is_evictable => NextAction::Evict,
                Some(epoch) if self.notifications.is_empty() => NextAction::Probe(epoch),
                Some(epoch) => NextAction::Flush(epoch, self.notifications.take(1)),
                None => NextAction::Wait(until),
            };
        }
        if self.notifications.is_empty() || !self.breaker.allow() {
            return NextAction::Idle;
        }
        if now < self.notify_from {
            return NextAction::Wait(self.notify_from);
        }
        NextAction::Flush(self.breaker.epoch(), self.notifications.take(NOTIFICATIONS_AT_ONCE))
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        self.peer.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The log line for an operator when a node answers but rejects the requests of this one.
fn advice(result: &Result<StatusCode, CallError>) -> Option<&'static str> {
    match result {
        Ok(StatusCode::BAD_REQUEST) => {
            Some("a node does not understand a request: check that all nodes run the same version")
        }
        Err(CallError::NotSigned(StatusCode::PAYLOAD_TOO_LARGE)) => Some(
            "a node rejects a message as too large: check that all nodes have the same payload_bytes_max",
        ),
        Err(CallError::NotSigned(_)) => Some(
            "a node rejects a signature, or is not of this cluster: check that all nodes have the same cluster_keys \
             and the right time, and that its router_url is its own",
        ),
        Ok(_)
        | Err(
            CallError::NotConnected(_)
            | CallError::Broken(_)
            | CallError::TimedOut(_)
            | CallError::OtherTime(_),
        ) => None,
    }
}
