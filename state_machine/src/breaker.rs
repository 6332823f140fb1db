//! The circuit breaker of a peer node.
//!
//! ```text
//!            a request fails           the backoff is over
//!   Closed ──────────────────► Open ────────────────────────► HalfOpen
//!     ▲                        │  ▲   the probe fails: a longer │ │
//!     │                        │  └───backoff───────────────────┘ │
//!     └──the node answered─────┴──────────────────────────────────┘
//! ```
//!
//! Pushes call the node only while the breaker is closed. In the other states the node gets one
//! probe at a time, so a node that hangs costs one request in each backoff, and no push waits for
//! it.

use crate::backoff::Backoff;
use crate::time::{Span, Time};

/// Whether requests may be sent to one peer node.
///
/// Requests overlap: when a node dies, hundreds are pending, and they fail one after the other,
/// some long after the first. So each request belongs to an [`Epoch`]. An epoch ends when the
/// breaker changes its state, and only a failure of the current epoch counts. An answer always
/// counts, because the node gave it now.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Breaker {
    epoch: Epoch,
    state: BreakerState,
}

/// A period between two changes of the breaker's state. Only failures of the current epoch count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(u64);

/// The limits of an open breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BreakerLimits {
    /// The wait before the first probe. It doubles with each probe that fails.
    pub backoff: Span,
    /// The maximum wait, however many probes fail.
    pub backoff_max: Span,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum BreakerState {
    Closed,
    Open {
        wait: Span,
        until: Time,
        next: Backoff,
    },
    /// A probe is pending. `next` is the backoff if it fails.
    HalfOpen {
        next: Backoff,
    },
}

impl Breaker {
    pub fn new() -> Self {
        Self { epoch: Epoch(0), state: BreakerState::Closed }
    }

    /// Whether a push may call the node.
    pub fn allow(&self) -> bool {
        self.state == BreakerState::Closed
    }

    /// The epoch of a request that begins now. The caller keeps it for [`Breaker::on_failure`].
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// A request of that epoch failed: the breaker opens at `now`.
    pub fn on_failure(&mut self, epoch: Epoch, now: Time, limits: &BreakerLimits) {
        if epoch != self.epoch {
            return;
        }
        let mut next = match self.state {
            BreakerState::Closed => Backoff::new(limits.backoff, limits.backoff_max),
            BreakerState::HalfOpen { next } => next,
            // No request begins in this epoch, so none can fail that belongs to it.
            BreakerState::Open { .. } => return,
        };
        let wait = next.next();
        self.enter(BreakerState::Open { wait, until: now + wait, next });
    }

    /// The node answered a request of any epoch: the breaker closes and forgets its failures.
    pub fn on_success(&mut self) {
        if self.state != BreakerState::Closed {
            self.enter(BreakerState::Closed);
        }
    }

    /// When the probe is due; none if the breaker is closed or a probe is pending.
    pub fn retry_at(&self) -> Option<Time> {
        match self.state {
            BreakerState::Open { until, .. } => Some(until),
            BreakerState::Closed | BreakerState::HalfOpen { .. } => None,
        }
    }

    /// Begins the probe if it is due, and returns its epoch. The caller must report the probe's
    /// success or failure: until then the breaker stays half-open.
    ///
    /// If the clock was set back, the probe is due at once, so a clock change never lengthens a
    /// backoff.
    pub fn try_half_open(&mut self, now: Time) -> Option<Epoch> {
        let BreakerState::Open { wait, until, next } = self.state else { return None };
        let was_set_back = now + wait < until;
        (now >= until || was_set_back).then(|| self.enter(BreakerState::HalfOpen { next }))
    }

    fn enter(&mut self, state: BreakerState) -> Epoch {
        self.epoch = Epoch(self.epoch.0.wrapping_add(1));
        self.state = state;
        self.epoch
    }
}

impl Default for Breaker {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
