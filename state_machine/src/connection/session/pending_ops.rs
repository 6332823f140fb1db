//! Operations that the store has not answered, and failed ones that are submitted again.

use crate::backoff::Backoff;
use crate::connection::effect::{Effect, Effects};
use crate::ids::OpId;
use crate::store::{StoreAnswer, StoreFailed, StoreOp};
use crate::time::{Span, Time};

/// The only place that knows which answers are awaited.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct PendingOps {
    submitted: u32,
    /// A handful at most: one fetch, one delete, one record of offers, one command, one step of a move.
    in_flight: Vec<InFlight>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct InFlight {
    op: OpId,
    operation: StoreOp,
    failures: u32,
    /// Whether the agent is answered if the store has no space for it. Any other operation is submitted again.
    is_command: bool,
    /// Whether its last answer was that the store has no space.
    lacks_space: bool,
    /// When to submit it again; none while its answer is awaited.
    retry_at: Option<Time>,
}

/// The longest wait, in multiples of `store_retry`.
const RETRY_FACTOR_MAX: u64 = 64;

impl PendingOps {
    /// Submits an operation, that of a command or another.
    pub(super) fn submit(&mut self, operation: StoreOp, is_command: bool, out: &mut Effects) {
        self.push(operation, 0, is_command, out);
    }

    /// The answer, if it is awaited. A failure is kept, and its operation submitted again after a back-off.
    pub(super) fn complete(
        &mut self,
        op: OpId,
        answer: Result<StoreAnswer, StoreFailed>,
        now: Time,
        retry: Span,
    ) -> Option<StoreAnswer> {
        let at = self.in_flight.iter().position(|in_flight| in_flight.op == op)?;
        let failed = &mut self.in_flight[at];
        if let Ok(answer) = &answer {
            debug_assert!(
                answer.fits(&failed.operation),
                "{answer:?} is no answer to {:?}",
                failed.operation
            );
        }
        match answer {
            Ok(answer) if answer != StoreAnswer::NoSpace || failed.is_command => {
                self.take(op).map(|_| answer)
            }
            Ok(_) | Err(StoreFailed) => {
                failed.lacks_space = answer.is_ok();
                let wait = Backoff::delay(retry, retry * RETRY_FACTOR_MAX, failed.failures);
                failed.failures = failed.failures.saturating_add(1);
                failed.retry_at = Some(now + wait);
                None
            }
        }
    }

    pub(super) fn is_recording_offers(&self) -> bool {
        let is_record =
            |in_flight: &InFlight| matches!(in_flight.operation, StoreOp::RecordOffers { .. });
        self.in_flight.iter().any(is_record)
    }

    /// Whether an operation is submitted again later because the store had no space.
    pub(super) fn lack_space(&self) -> bool {
        self.in_flight.iter().any(|in_flight| in_flight.lacks_space)
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.in_flight.iter().filter_map(|in_flight| in_flight.retry_at).min()
    }

    pub(super) fn resubmit_due(&mut self, now: Time, out: &mut Effects) {
        while let Some(failed) = self.due(now).and_then(|op| self.take(op)) {
            self.push(failed.operation, failed.failures, failed.is_command, out);
        }
    }

    fn due(&self, now: Time) -> Option<OpId> {
        let is_due = |in_flight: &&InFlight| in_flight.retry_at.is_some_and(|at| at <= now);
        self.in_flight.iter().find(is_due).map(|in_flight| in_flight.op)
    }

    /// Removes an operation. An idle connection holds no memory for operations.
    fn take(&mut self, op: OpId) -> Option<InFlight> {
        let at = self.in_flight.iter().position(|in_flight| in_flight.op == op)?;
        let in_flight = self.in_flight.remove(at);
        if self.in_flight.is_empty() {
            self.in_flight = Vec::new();
        }
        Some(in_flight)
    }

    fn push(&mut self, operation: StoreOp, failures: u32, is_command: bool, out: &mut Effects) {
        let op = OpId(self.submitted);
        self.submitted = self.submitted.wrapping_add(1);
        out.push(Effect::SubmitStoreOp { op, operation: operation.clone() });
        self.in_flight.push(InFlight {
            op,
            operation,
            failures,
            is_command,
            lacks_space: false,
            retry_at: None,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Uaid;

    fn answered(answer: StoreAnswer) -> Option<StoreAnswer> {
        let month = "2026_11".parse().expect("a month");
        let order = StoreOp::ReadChannels { uaid: Uaid([1; 16]), month };
        let mut pending = PendingOps::default();
        pending.submit(order, false, &mut Effects::default());
        pending.complete(OpId(0), Ok(answer), Time(0), Span(1))
    }

    #[test]
    fn an_answer_ends_its_operation() {
        let channels = StoreAnswer::Channels(None);
        assert_eq!(answered(channels.clone()), Some(channels));
    }

    #[test]
    #[should_panic(expected = "OverLimit is no answer to ReadChannels")]
    fn an_answer_to_another_operation_is_noticed() {
        answered(StoreAnswer::OverLimit);
    }
}
