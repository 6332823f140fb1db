//! PendingOps the store has not answered, and those that failed and will be given again.

use super::effect::{Effect, Effects};
use crate::backoff::Backoff;
use crate::ids::OpId;
use crate::store::{StoreAnswer, StoreFailed, StoreOp};
use crate::time::{Span, Time};

/// The one place that knows which answers are still waited for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct PendingOps {
    submitted: u32,
    /// A handful at most: one fetch, one delete, one command, one step of a move.
    in_flight: Vec<InFlight>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct InFlight {
    op: OpId,
    order: StoreOp,
    failures: u32,
    /// When to give it again; none while an answer is on its way.
    again_at: Option<Time>,
}

/// The longest wait, in multiples of `store_retry`.
const RETRY_FACTOR_MAX: u64 = 64;

impl PendingOps {
    /// Gives an order.
    pub(super) fn submit(&mut self, order: StoreOp, out: &mut Effects) {
        self.resubmit(order, 0, out);
    }

    /// Takes an answer in: none where nobody waits for it, or where the order will be given again.
    pub(super) fn complete(
        &mut self,
        op: OpId,
        answer: Result<StoreAnswer, StoreFailed>,
        now: Time,
        retry: Span,
    ) -> Option<StoreAnswer> {
        match answer {
            Ok(answer) => self.take(op).map(|_| answer),
            Err(StoreFailed) => {
                let in_flight = self.in_flight.iter_mut().find(|in_flight| in_flight.op == op)?;
                let wait = Backoff::delay(retry, retry * RETRY_FACTOR_MAX, in_flight.failures);
                in_flight.failures = in_flight.failures.saturating_add(1);
                in_flight.again_at = Some(now + wait);
                None
            }
        }
    }

    /// When an order is to be given again.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.in_flight.iter().filter_map(|in_flight| in_flight.again_at).min()
    }

    /// Gives the ops again whose time has come.
    pub(super) fn resubmit_due(&mut self, now: Time, out: &mut Effects) {
        while let Some(in_flight) = self.due(now).and_then(|op| self.take(op)) {
            self.resubmit(in_flight.order, in_flight.failures, out);
        }
    }

    fn due(&self, now: Time) -> Option<OpId> {
        let is_due = |in_flight: &&InFlight| in_flight.again_at.is_some_and(|at| at <= now);
        self.in_flight.iter().find(is_due).map(|in_flight| in_flight.op)
    }

    /// An idle connection holds no memory for ops.
    fn take(&mut self, op: OpId) -> Option<InFlight> {
        let at = self.in_flight.iter().position(|in_flight| in_flight.op == op)?;
        let in_flight = self.in_flight.remove(at);
        if self.in_flight.is_empty() {
            self.in_flight = Vec::new();
        }
        Some(in_flight)
    }

    fn resubmit(&mut self, order: StoreOp, failures: u32, out: &mut Effects) {
        let op = OpId(self.submitted);
        self.submitted = self.submitted.wrapping_add(1);
        out.push(Effect::SubmitStoreOp { op, order: order.clone() });
        self.in_flight.push(InFlight { op, order, failures, again_at: None });
    }
}
