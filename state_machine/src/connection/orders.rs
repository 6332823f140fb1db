//! Orders the store has not answered, and those that failed and will be given again.

use super::effect::{Effect, Effects};
use crate::ids::OpId;
use crate::store::{StoreAnswer, StoreFailed, StoreOrder};
use crate::time::{Span, Time};

/// The one place that knows which answers are still waited for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Orders {
    given: u32,
    /// A handful at most: one fetch, one delete, one command, one step of a move.
    open: Vec<Open>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Open {
    op: OpId,
    order: StoreOrder,
    failures: u32,
    /// When to give it again; none while an answer is on its way.
    again_at: Option<Time>,
}

/// Doublings of `store_retry` at most.
const BACKOFF_DOUBLINGS_MAX: u32 = 6;

impl Orders {
    /// Gives an order.
    pub(super) fn give(&mut self, order: StoreOrder, out: &mut Effects) {
        self.given_again(order, 0, out);
    }

    /// Takes an answer in: none where nobody waits for it, or where the order will be given again.
    pub(super) fn answered(
        &mut self,
        op: OpId,
        answer: Result<StoreAnswer, StoreFailed>,
        now: Time,
        retry: Span,
    ) -> Option<StoreAnswer> {
        match answer {
            Ok(answer) => self.take(op).map(|_| answer),
            Err(StoreFailed) => {
                let open = self.open.iter_mut().find(|open| open.op == op)?;
                let wait = retry.0 << open.failures.min(BACKOFF_DOUBLINGS_MAX);
                open.failures = open.failures.saturating_add(1);
                open.again_at = Some(now + Span(wait));
                None
            }
        }
    }

    /// When an order is to be given again.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.open.iter().filter_map(|open| open.again_at).min()
    }

    /// Gives the orders again whose time has come.
    pub(super) fn time_passed(&mut self, now: Time, out: &mut Effects) {
        while let Some(open) = self.due(now).and_then(|op| self.take(op)) {
            self.given_again(open.order, open.failures, out);
        }
    }

    fn due(&self, now: Time) -> Option<OpId> {
        let is_due = |open: &&Open| open.again_at.is_some_and(|at| at <= now);
        self.open.iter().find(is_due).map(|open| open.op)
    }

    /// An idle connection holds no memory for orders.
    fn take(&mut self, op: OpId) -> Option<Open> {
        let at = self.open.iter().position(|open| open.op == op)?;
        let open = self.open.remove(at);
        if self.open.is_empty() {
            self.open = Vec::new();
        }
        Some(open)
    }

    fn given_again(&mut self, order: StoreOrder, failures: u32, out: &mut Effects) {
        let op = OpId(self.given);
        self.given = self.given.wrapping_add(1);
        out.push(Effect::Ask { op, order: order.clone() });
        self.open.push(Open { op, order, failures, again_at: None });
    }
}
