//! When another node that failed is tried again.
//!
//! ```text
//!            a request fails            the probe begins
//!   Closed ─────────────────► Open ────────────────────► HalfOpen
//!     ▲                        │   ▲   it fails: a longer backoff │ │
//!     │    the node answered   │   └───────────────────────────┘ │
//!     └────────────────────────┴─────────────────────────────────┘
//! ```
//!
//! Requests are made only while it is closed. Behind it nothing is asked but one probe at a time, so that a node
//! that hangs costs one request a backoff, and no push waits for it.

use crate::time::{Span, Time};

/// Whether one other node is asked.
///
/// Requests overlap: when a node dies, hundreds are under way, and they fail one after the other, some of them long
/// after the first. So each is made in a [`Epoch`], which ends when the breaker opens, when a probe begins and when it
/// closes. Only a failure of the epoch that is under way is news. An older one tells of a time that
/// the breaker has judged already: it opens nothing again and makes no backoff longer.
///
/// An answer is news whenever it was asked for, because it was given now.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Breaker {
    epoch: Epoch,
    state: BreakerState,
}

/// Which requests a failure is counted together with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(u64);

/// How long a node is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BreakerLimits {
    /// After the first failure. It doubles with each probe that fails.
    pub backoff: Span,
    /// The longest backoff.
    pub backoff_max: Span,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum BreakerState {
    Closed,
    Open {
        backoff: Span,
        until: Time,
    },
    /// A probe is under way, after this backoff.
    HalfOpen {
        backoff: Span,
    },
}

impl Breaker {
    /// Nothing failed so far.
    pub fn new() -> Self {
        Self { epoch: Epoch(0), state: BreakerState::Closed }
    }

    /// Whether a push may ask the node. While it may not, only the probe does.
    pub fn allow(&self) -> bool {
        self.state == BreakerState::Closed
    }

    /// The epoch of a request that begins now; its failure is told with it.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// A request of that epoch failed: the node is left alone from `now` on.
    pub fn on_failure(&mut self, epoch: Epoch, now: Time, limits: &BreakerLimits) {
        if epoch != self.epoch {
            return;
        }
        let backoff = match self.state {
            BreakerState::Closed => limits.backoff,
            BreakerState::HalfOpen { backoff } => Span(backoff.0.saturating_mul(2)),
            // No request begins in this epoch, so none can fail that belongs to it.
            BreakerState::Open { .. } => return,
        };
        let backoff = backoff.min(limits.backoff_max);
        self.enter(BreakerState::Open { backoff, until: now + backoff });
    }

    /// The node answered, whatever it was asked and whenever: what failed is forgotten.
    pub fn on_success(&mut self) {
        if self.state != BreakerState::Closed {
            self.enter(BreakerState::Closed);
        }
    }

    /// When the probe is due; none while the node may be asked anyway, or is being probed.
    pub fn retry_at(&self) -> Option<Time> {
        match self.state {
            BreakerState::Open { until, .. } => Some(until),
            BreakerState::Closed | BreakerState::HalfOpen { .. } => None,
        }
    }

    /// Begins the probe if it is due, in the epoch that is given back. Whoever begins one says what became of it:
    /// until then nobody asks the node.
    ///
    /// A clock that was set back makes no backoff longer than it is: the probe is then due at once.
    pub fn try_half_open(&mut self, now: Time) -> Option<Epoch> {
        let BreakerState::Open { backoff, until } = self.state else { return None };
        let was_set_back = now + backoff < until;
        (now >= until || was_set_back).then(|| self.enter(BreakerState::HalfOpen { backoff }))
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
