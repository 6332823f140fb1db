//! The router record moves to the new month, the old one is looked at once more, and the move is over.

use super::draining_old_month::Drain;
use super::effect::CloseReason;
use super::event::Event;
use super::identified::enter_month;
use super::phase::Phase;
use super::session::{Session, SessionOutcome};
use super::storage_scan::StorageScan;
use super::{StepContext, Wait};
use crate::month::Month;
use crate::record::LastConnect;
use crate::store::{MonthStep, StoreAnswer, StoreOp};
use crate::time::Time;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct UpdatingRouter {
    pub(super) session: Box<Session>,
    pub(super) from: Month,
    pub(super) to: Month,
    stage: RouterStage,
}

/// What remains to be done. From `DrainingAgain` on the record says `curmonth = to, oldmonth = from`, so
/// that a connection that ends here is gone on with by the next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum RouterStage {
    /// `curmonth` and `oldmonth` are being written.
    WritingRecord { carry: bool },
    /// What an endpoint stored in the old table meanwhile is delivered.
    DrainingAgain { drain: Drain },
    /// What was not acked in time is to be carried over, once the deletes under way are done.
    AwaitingDeletes,
    /// It is being carried over.
    MovingMessages,
    /// `oldmonth` is being removed.
    ClearingOldMonth,
}

impl UpdatingRouter {
    pub(super) fn enter(
        mut session: Box<Session>,
        from: Month,
        to: Month,
        carry: bool,
        cx: &mut StepContext<'_>,
    ) -> Phase {
        let order = StoreOp::UpdateMonth(session.month_step(from, to, cx));
        session.ops.submit(order, cx.out);
        Phase::UpdatingRouter(Self {
            session,
            from,
            to,
            stage: RouterStage::WritingRecord { carry },
        })
    }

    /// An earlier connection wrote the record and did not come to the end.
    pub(super) fn resume(
        session: Box<Session>,
        from: Month,
        to: Month,
        cx: &mut StepContext<'_>,
    ) -> Phase {
        let stage = RouterStage::AwaitingDeletes;
        Phase::UpdatingRouter(Self { session, from, to, stage }.drain_again(cx))
    }

    pub(super) fn on_event(mut self, event: Event, cx: &mut StepContext<'_>) -> Phase {
        match self.session.on_event(event, cx) {
            SessionOutcome::Stay => {}
            SessionOutcome::Push(push, message) => self.session.reject_to_store(push, &message, cx),
            SessionOutcome::Close(reason) => {
                return self.session.close(reason, &[self.from, self.to], cx);
            }
        }
        Phase::UpdatingRouter(self)
    }

    pub(super) fn on_store_answer(
        mut self,
        answer: StoreAnswer,
        cx: &mut StepContext<'_>,
    ) -> Phase {
        match answer {
            StoreAnswer::MonthUpdated(true) => {
                let is_carry = self.stage == RouterStage::WritingRecord { carry: true };
                let next = if is_carry { self.move_messages() } else { self.drain_again(cx) };
                Phase::UpdatingRouter(next)
            }
            StoreAnswer::Moved => self.clear_old_month(cx),
            StoreAnswer::MoveFinished(true) => enter_month(self.session, self.to, None, cx),
            // The record is another connection's by now.
            StoreAnswer::MonthUpdated(false) | StoreAnswer::MoveFinished(false) => {
                self.session.close(CloseReason::Replaced, &[self.from, self.to], cx)
            }
            other => {
                self.session.on_drain_answer(other, self.from, cx);
                Phase::UpdatingRouter(self)
            }
        }
    }

    pub(super) fn advance(mut self, cx: &mut StepContext<'_>) -> Phase {
        match &self.stage {
            RouterStage::DrainingAgain { drain } => {
                self.session.flush_acks(&[self.from, self.to], cx);
                if !drain.is_past(cx.now) {
                    self.session.scan_storage(self.from, cx);
                }
                if self.session.is_drained() {
                    return self.clear_old_month(cx);
                }
                if drain.is_over(&self.session, cx.now) {
                    return self.move_messages().advance(cx);
                }
            }
            RouterStage::AwaitingDeletes if !self.session.deletes.is_deleting() => {
                let Self { from, to, .. } = self;
                let order = StoreOp::MoveMessages { uaid: self.session.uaid, from, to };
                self.session.ops.submit(order, cx.out);
                self.stage = RouterStage::MovingMessages;
            }
            // Deletes wait while rows are on their way from one table to the other.
            RouterStage::AwaitingDeletes | RouterStage::MovingMessages => {}
            RouterStage::WritingRecord { .. } | RouterStage::ClearingOldMonth => {
                self.session.flush_acks(&[self.from, self.to], cx);
            }
        }
        Phase::UpdatingRouter(self)
    }

    pub(super) fn deadline(&self) -> Option<(Time, Wait)> {
        match &self.stage {
            RouterStage::DrainingAgain { drain } => drain.deadline(&self.session),
            RouterStage::WritingRecord { .. }
            | RouterStage::AwaitingDeletes
            | RouterStage::MovingMessages
            | RouterStage::ClearingOldMonth => None,
        }
    }

    fn drain_again(mut self, cx: &mut StepContext<'_>) -> Self {
        self.session.scan.request();
        Self { stage: RouterStage::DrainingAgain { drain: Drain::begin(cx) }, ..self }
    }

    fn move_messages(mut self) -> Self {
        self.session.scan = StorageScan::default();
        Self { stage: RouterStage::AwaitingDeletes, ..self }
    }

    fn clear_old_month(mut self, cx: &mut StepContext<'_>) -> Phase {
        let order = StoreOp::FinishMove(self.session.month_step(self.from, self.to, cx));
        self.session.ops.submit(order, cx.out);
        Phase::UpdatingRouter(Self { stage: RouterStage::ClearingOldMonth, ..self })
    }
}

impl Session {
    fn month_step(&self, from: Month, to: Month, cx: &StepContext<'_>) -> MonthStep {
        MonthStep {
            uaid: self.uaid,
            node: cx.config.node.clone(),
            connected_at: self.connected_at,
            from,
            to,
            last_connect: LastConnect::of(cx.now, self.uaid, cx.config.limits.last_connect_shards),
        }
    }
}
