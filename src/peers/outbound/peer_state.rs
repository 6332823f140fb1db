//! What is known of one other node: whether it answers, how much it is asked, what it is still to be told.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::StatusCode;
use slog::{Logger, debug, info, warn};
use state_machine::breaker::{Breaker, Epoch};
use state_machine::delivery::NodeAnswer;
use state_machine::{Span, Time};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::call::{CallError, Peer};
use super::limits::RemoteLimits;
use super::outage::Outage;
use super::pending_notifications::{Notification, PendingNotifications};

/// PendingNotifications that are under way to one node at once.
pub(super) const NOTIFICATIONS_AT_ONCE: usize = 16;

/// One other node.
pub(super) struct PeerState {
    /// Where it is.
    pub(super) peer: Peer,
    limits: RemoteLimits,
    log: Logger,
    /// Pushes under way.
    requests: AtomicUsize,
    /// When something was last wanted of it, in milliseconds.
    asked_at: AtomicU64,
    state: Mutex<State>,
    /// Wakes what attends to the node: it is back though nobody tried it.
    recovered: Notify,
}

struct State {
    breaker: Breaker,
    notifications: PendingNotifications,
    /// The node could not take notifications: they wait until then.
    notify_from: Time,
    /// While it is left alone.
    outage: Option<Outage>,
    /// When the log was last told that its answers are not understood.
    warned_at: Option<Time>,
    /// What attends to the node while there is something to do: at most one.
    task: Option<AbortHandle>,
    /// It is no longer among those that are known: there may be another for the same node.
    is_closed: bool,
}

/// A push that is under way, until this is dropped.
pub(super) struct RequestPermit {
    /// To which node.
    pub(super) peer_state: Arc<PeerState>,
    /// The epoch that it began in.
    pub(super) epoch: Epoch,
}

/// What there is to do for a node.
#[derive(Debug)]
pub(super) enum NextAction {
    /// Nothing, and what attended to it has ended.
    Idle,
    /// Nothing, and it is to be forgotten: it does not answer, and nobody asks for it.
    Evict,
    /// Nothing until then.
    Wait(Time),
    /// OutboundRequest it these. If there are none, ask it anything, to see whether it answers.
    ProbeOrFlush(Epoch, Vec<Notification>),
}

impl PeerState {
    pub(super) fn new(peer: Peer, limits: RemoteLimits, log: &Logger, now: Time) -> Self {
        let state = State {
            breaker: Breaker::new(),
            notifications: PendingNotifications::up_to(limits.pending_notifications_max),
            notify_from: now,
            outage: None,
            warned_at: None,
            task: None,
            is_closed: false,
        };
        let log = log.new(slog::o!("node" => peer.address.to_string()));
        let (requests, asked_at) = (AtomicUsize::new(0), AtomicU64::new(now.0));
        Self {
            peer,
            limits,
            log,
            requests,
            asked_at,
            state: Mutex::new(state),
            recovered: Notify::new(),
        }
    }

    /// Begins a push, or says why not.
    pub(super) fn begin(self: &Arc<Self>, now: Time) -> Result<RequestPermit, NodeAnswer> {
        self.asked_at.store(now.0, Ordering::Relaxed);
        let epoch = {
            let state = self.state();
            if state.is_closed || !state.breaker.allow() {
                return Err(NodeAnswer::Unreachable);
            }
            state.breaker.epoch()
        };
        let before = self.requests.fetch_add(1, Ordering::Relaxed);
        let permit = RequestPermit { peer_state: Arc::clone(self), epoch };
        if before < self.limits.requests_max { Ok(permit) } else { Err(NodeAnswer::Busy) }
    }

    /// Remembers an notification.
    pub(super) fn add(&self, notification: Notification, now: Time) {
        self.asked_at.store(now.0, Ordering::Relaxed);
        self.state().notifications.add(notification);
    }

    /// Takes in what became of something that was asked in that epoch.
    pub(super) fn ended(&self, epoch: Epoch, result: &Result<StatusCode, CallError>, now: Time) {
        let mut state = self.state();
        let was_left_alone = !state.breaker.allow();
        match result {
            Ok(_) => state.breaker.on_success(),
            Err(_) => state.breaker.on_failure(epoch, now, &self.limits.breaker),
        }
        match (result, was_left_alone) {
            (Ok(_), true) => {
                state.outage = None;
                info!(self.log, "a node is back");
                self.recovered.notify_one();
            }
            (Err(error), false) if !state.breaker.allow() => {
                state.outage = Some(Outage::begin(error, now, &self.log));
            }
            (Err(error), _) => {
                debug!(self.log, "a node failed"; "error" => %error);
                state.outage.iter_mut().for_each(|outage| outage.go_on(error));
            }
            (Ok(_), false) => {}
        }
        if let Some(advice) = advice(result)
            && state.may_warn(now, self.limits.tell_every)
        {
            warn!(self.log, "{advice}");
        }
    }

    /// Keeps notifications for later: the node was not reached, or could not take them.
    pub(super) fn requeue(&self, notifications: impl IntoIterator<Item = Notification>, now: Time) {
        let mut state = self.state();
        for notification in notifications {
            state.notifications.add(notification);
            state.notify_from = now + self.limits.breaker.backoff;
        }
    }

    /// Says what there is to do. Only what attends to the node asks.
    pub(super) fn next(&self, now: Time) -> NextAction {
        let is_evictable = self.is_evictable(now);
        let mut state = self.state();
        // Now everything that it is still to be told is among the notifications.
        self.tell_of_outage(&mut state, now);
        let next = state.next(now, is_evictable);
        if matches!(next, NextAction::Idle | NextAction::Evict) {
            state.task = None;
        }
        state.is_closed |= matches!(next, NextAction::Evict);
        next
    }

    /// Comes when the node was left alone and is back. May come once too often.
    pub(super) async fn recovered(&self) {
        self.recovered.notified().await;
    }

    /// Begins to attend to the node, where there is something to do and nobody does it.
    pub(super) fn wake(&self, spawn: impl FnOnce() -> AbortHandle) {
        let mut state = self.state();
        let is_attended = state.task.as_ref().is_some_and(|task| !task.is_finished());
        let is_idle = state.breaker.allow() && state.notifications.is_empty();
        if !(is_attended || is_idle || state.is_closed) {
            state.task = Some(spawn());
        }
    }

    /// Ends it for good if nobody wanted anything of it for a while and nothing is to be done. Whether it did.
    pub(super) fn close_if_idle(&self, now: Time) -> bool {
        if !self.is_evictable(now) || self.requests.load(Ordering::Relaxed) > 0 {
            return false;
        }
        let mut state = self.state();
        state.is_closed |= state.task.is_none();
        state.is_closed
    }

    /// Ends it for good if it does not answer; what it was to be told is given up. Whether it did.
    pub(super) fn close_if_left_alone(&self) -> bool {
        let is_left_alone = !self.state().breaker.allow();
        if is_left_alone {
            self.close();
        }
        is_left_alone
    }

    /// Ends what attends to it, for good.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        if let Some(task) = state.task.take() {
            task.abort();
        }
    }

    fn tell_of_outage(&self, state: &mut State, now: Time) {
        let (every, waiting) = (self.limits.tell_every, state.notifications.len());
        if let Some(outage) = &mut state.outage {
            outage.tell(self.asked_at(), waiting, now, every, &self.log);
        }
    }

    fn is_evictable(&self, now: Time) -> bool {
        now.since(self.asked_at()) >= self.limits.forget_after
    }

    fn asked_at(&self) -> Time {
        Time(self.asked_at.load(Ordering::Relaxed))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing is left half-done where a thread could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next(&mut self, now: Time, is_evictable: bool) -> NextAction {
        if let Some(until) = self.breaker.retry_at() {
            return match self.breaker.try_half_open(now) {
                _ if is_evictable => NextAction::Evict,
                Some(epoch) => NextAction::ProbeOrFlush(epoch, self.notifications.take(1)),
                None => NextAction::Wait(until),
            };
        }
        if self.notifications.is_empty() || !self.breaker.allow() {
            return NextAction::Idle;
        }
        if now < self.notify_from {
            return NextAction::Wait(self.notify_from);
        }
        NextAction::ProbeOrFlush(
            self.breaker.epoch(),
            self.notifications.take(NOTIFICATIONS_AT_ONCE),
        )
    }

    fn may_warn(&mut self, now: Time, every: Span) -> bool {
        let may = self.warned_at.is_none_or(|warned_at| now.since(warned_at) >= every);
        if may {
            self.warned_at = Some(now);
        }
        may
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        self.peer_state.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What an operator should look at, where a node answers and does not understand us.
fn advice(result: &Result<StatusCode, CallError>) -> Option<&'static str> {
    match result {
        Ok(StatusCode::BAD_REQUEST) => Some(
            "a node does not understand what this one asks: see that all nodes run the same version",
        ),
        Err(CallError::NotSigned(StatusCode::PAYLOAD_TOO_LARGE)) => Some(
            "a node takes no messages as large as this one does: every node needs the same payload_bytes_max",
        ),
        Err(CallError::NotSigned(_)) => Some(
            "a node refuses what this one asks, or is none of ours: see that all nodes have the same cluster_keys and \
             the right time, and that its router_url is its own",
        ),
        Ok(_) | Err(CallError::Broken(_) | CallError::TimedOut(_)) => None,
    }
}
