//! When another node that failed is tried again.
//!
//! ```text
//!            a request fails            the probe begins
//!   Closed ─────────────────► Resting ────────────────────► Probing
//!     ▲                        │   ▲   it fails: a longer rest │ │
//!     │    the node answered   │   └───────────────────────────┘ │
//!     └────────────────────────┴─────────────────────────────────┘
//! ```
//!
//! Requests are made only while it is closed. Behind it nothing is asked but one probe at a time, so that a node
//! that hangs costs one request a rest, and no push waits for it.

use crate::time::{Span, Time};

/// Whether one other node is asked.
///
/// Requests overlap: when a node dies, hundreds are under way, and they fail one after the other, some of them long
/// after the first. So each is made in a [`Round`], which ends when the breaker opens, when a probe begins and when it
/// closes. Only a failure of the round that is under way is news. An older one tells of a time that
/// the breaker has judged already: it opens nothing again and makes no rest longer.
///
/// An answer is news whenever it was asked for, because it was given now.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Breaker {
    round: Round,
    state: State,
}

/// Which requests a failure is counted together with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Round(u64);

/// How long a node is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BreakerLimits {
    /// After the first failure. It doubles with each probe that fails.
    pub rest: Span,
    /// The longest rest.
    pub rest_max: Span,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum State {
    Closed,
    Resting {
        rest: Span,
        until: Time,
    },
    /// A probe is under way, after this rest.
    Probing {
        rest: Span,
    },
}

impl Breaker {
    /// Nothing failed so far.
    pub fn new() -> Self {
        Self { round: Round(0), state: State::Closed }
    }

    /// Whether a push may ask the node. While it may not, only the probe does.
    pub fn may_try(&self) -> bool {
        self.state == State::Closed
    }

    /// The round of a request that begins now; its failure is told with it.
    pub fn round(&self) -> Round {
        self.round
    }

    /// A request of that round failed: the node is left alone from `now` on.
    pub fn failed(&mut self, round: Round, now: Time, limits: &BreakerLimits) {
        if round != self.round {
            return;
        }
        let rest = match self.state {
            State::Closed => limits.rest,
            State::Probing { rest } => Span(rest.0.saturating_mul(2)),
            // No request begins in this round, so none can fail that belongs to it.
            State::Resting { .. } => return,
        };
        let rest = rest.min(limits.rest_max);
        self.enter(State::Resting { rest, until: now + rest });
    }

    /// The node answered, whatever it was asked and whenever: what failed is forgotten.
    pub fn worked(&mut self) {
        if self.state != State::Closed {
            self.enter(State::Closed);
        }
    }

    /// When the probe is due; none while the node may be asked anyway, or is being probed.
    pub fn retry_at(&self) -> Option<Time> {
        match self.state {
            State::Resting { until, .. } => Some(until),
            State::Closed | State::Probing { .. } => None,
        }
    }

    /// Begins the probe if it is due, in the round that is given back. Whoever begins one says what became of it:
    /// until then nobody asks the node.
    ///
    /// A clock that was set back makes no rest longer than it is: the probe is then due at once.
    pub fn probe_begins(&mut self, now: Time) -> Option<Round> {
        let State::Resting { rest, until } = self.state else { return None };
        let was_set_back = now + rest < until;
        (now >= until || was_set_back).then(|| self.enter(State::Probing { rest }))
    }

    fn enter(&mut self, state: State) -> Round {
        self.round = Round(self.round.0.wrapping_add(1));
        self.state = state;
        self.round
    }
}

impl Default for Breaker {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
