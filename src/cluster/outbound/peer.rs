//! A node that may be called, how far its clock is ahead of this one, and why a call of it fails.

use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use hyper::StatusCode;
use state_machine::{ClockDifference, NodeId, Span};

use crate::system::https_client::with_causes;
use crate::system::node_address::{AllowedNodes, NodeAddress};

/// No signed answer was received.
const UNKNOWN: i64 = i64::MIN;

/// A node that may be called.
pub(super) struct Peer {
    pub(super) address: NodeAddress,
    pub(super) clock: PeerClock,
}

/// Why it is unknown whether the node processed the request.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("cannot connect: {0}")]
    NotConnected(io::Error),
    #[error("{}", with_causes(.0))]
    Broken(#[from] hyper::Error),
    #[error("no answer in {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The node refused the time of the request, also when that was its own.
    #[error("the node refuses the time of a request, its clock is {0}")]
    OtherTime(ClockDifference),
    /// The answer is of a program without the cluster keys, or refuses a wrong signature.
    #[error("an answer with status {} that is not signed", .0.as_u16())]
    NotSigned(StatusCode),
}

/// Zero as long as the node accepts the time of this one.
#[derive(Debug)]
pub(super) struct PeerClock {
    ahead_ms: AtomicI64,
}

impl Peer {
    /// The node of that name, if it may be called.
    pub(super) fn allowed(node: &NodeId, allowed: &AllowedNodes) -> Option<Self> {
        let address = NodeAddress::parse(node).ok().filter(|address| allowed.allows(address))?;
        Some(Self { address, clock: PeerClock::unknown() })
    }
}

impl PeerClock {
    pub(super) fn unknown() -> Self {
        Self { ahead_ms: AtomicI64::new(UNKNOWN) }
    }

    /// None until the node has answered.
    pub(super) fn ahead(&self) -> Option<ClockDifference> {
        let ahead_ms = self.ahead_ms.load(Ordering::Relaxed);
        (ahead_ms != UNKNOWN).then_some(ClockDifference(ahead_ms))
    }

    /// The node accepted the time of a request. Returns whether this is its first answer.
    pub(super) fn accepted(&self) -> bool {
        let is_first = self.ahead().is_none();
        if is_first {
            self.set(ClockDifference::ZERO);
        }
        is_first
    }

    /// The node refused the time of a request that was signed with the difference `used`, and gave its own. A request is
    /// signed with this clock again once the difference is within `skew`. Returns whether it changed by more than that.
    pub(super) fn refused(
        &self,
        used: ClockDifference,
        ahead: ClockDifference,
        skew: Span,
    ) -> bool {
        let before = self.ahead();
        let is_right_again = used != ClockDifference::ZERO && ahead.span() <= skew;
        let ahead = if is_right_again { ClockDifference::ZERO } else { ahead };
        self.set(ahead);
        let changed = before.map(|before| ClockDifference(ahead.0.saturating_sub(before.0)));
        changed.is_none_or(|changed| changed.span() > skew)
    }

    /// The node refused a request without its time, so a difference is of no use.
    pub(super) fn forget(&self) {
        self.ahead_ms.store(UNKNOWN, Ordering::Relaxed);
    }

    fn set(&self, ahead: ClockDifference) {
        self.ahead_ms.store(ahead.0.max(UNKNOWN + 1), Ordering::Relaxed);
    }
}
