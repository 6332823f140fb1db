//! The router record moves to the new month, the old one is looked at once more, and the move is over.

use super::check::StorageCheck;
use super::draining_old_month::Drain;
use super::effect::CloseReason;
use super::event::Event;
use super::identified::enter_month;
use super::phase::Phase;
use super::session::{Session, Then};
use super::{Cx, Wait};
use crate::month::Month;
use crate::record::LastConnect;
use crate::store::{MonthStep, StoreAnswer, StoreOrder};
use crate::time::Time;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct UpdatingRouter {
    pub(super) session: Box<Session>,
    pub(super) from: Month,
    pub(super) to: Month,
    step: Step,
}

/// What remains to be done. From `Looking` on the record says `curmonth = to, oldmonth = from`, so
/// that a connection that ends here is gone on with by the next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Step {
    /// `curmonth` and `oldmonth` are being written.
    Writing { carry: bool },
    /// What an endpoint stored in the old table meanwhile is delivered.
    Looking { drain: Drain },
    /// What was not acked in time is to be carried over, once the deletes under way are done.
    BeforeCarrying,
    /// It is being carried over.
    Carrying,
    /// `oldmonth` is being removed.
    Finishing,
}

impl UpdatingRouter {
    pub(super) fn enter(
        mut session: Box<Session>,
        from: Month,
        to: Month,
        carry: bool,
        cx: &mut Cx<'_>,
    ) -> Phase {
        let order = StoreOrder::UpdateMonth(session.month_step(from, to, cx));
        session.orders.give(order, cx.out);
        Phase::UpdatingRouter(Self { session, from, to, step: Step::Writing { carry } })
    }

    /// An earlier connection wrote the record and did not come to the end.
    pub(super) fn look_again(
        session: Box<Session>,
        from: Month,
        to: Month,
        cx: &mut Cx<'_>,
    ) -> Phase {
        let step = Step::BeforeCarrying;
        Phase::UpdatingRouter(Self { session, from, to, step }.looking(cx))
    }

    pub(super) fn happened(mut self, event: Event, cx: &mut Cx<'_>) -> Phase {
        match self.session.happened(event, cx) {
            Then::Stay => {}
            Then::Push(push, message) => self.session.busy(push, &message, cx),
            Then::Close(reason) => {
                return self.session.close(reason, &[self.from, self.to], cx);
            }
        }
        Phase::UpdatingRouter(self)
    }

    pub(super) fn answered(mut self, answer: StoreAnswer, cx: &mut Cx<'_>) -> Phase {
        match answer {
            StoreAnswer::MonthUpdated(true) => {
                let is_carry = self.step == Step::Writing { carry: true };
                let next = if is_carry { self.carrying() } else { self.looking(cx) };
                Phase::UpdatingRouter(next)
            }
            StoreAnswer::Carried => self.finishing(cx),
            StoreAnswer::MoveFinished(true) => enter_month(self.session, self.to, None, cx),
            // The record is another connection's by now.
            StoreAnswer::MonthUpdated(false) | StoreAnswer::MoveFinished(false) => {
                self.session.close(CloseReason::Replaced, &[self.from, self.to], cx)
            }
            other => {
                self.session.drained(other, self.from, cx);
                Phase::UpdatingRouter(self)
            }
        }
    }

    pub(super) fn proceed(mut self, cx: &mut Cx<'_>) -> Phase {
        match &self.step {
            Step::Looking { drain } => {
                self.session.flush_acks(&[self.from, self.to], cx);
                if !drain.is_past(cx.now) {
                    self.session.check_storage(self.from, cx);
                }
                if self.session.is_drained() {
                    return self.finishing(cx);
                }
                if drain.is_over(&self.session, cx.now) {
                    return self.carrying().proceed(cx);
                }
            }
            Step::BeforeCarrying if !self.session.settling.is_deleting() => {
                let Self { from, to, .. } = self;
                let order = StoreOrder::CarryMessages { uaid: self.session.uaid, from, to };
                self.session.orders.give(order, cx.out);
                self.step = Step::Carrying;
            }
            // Deletes wait while rows are on their way from one table to the other.
            Step::BeforeCarrying | Step::Carrying => {}
            Step::Writing { .. } | Step::Finishing => {
                self.session.flush_acks(&[self.from, self.to], cx);
            }
        }
        Phase::UpdatingRouter(self)
    }

    pub(super) fn deadline(&self) -> Option<(Time, Wait)> {
        match &self.step {
            Step::Looking { drain } => drain.deadline(&self.session),
            Step::Writing { .. } | Step::BeforeCarrying | Step::Carrying | Step::Finishing => None,
        }
    }

    fn looking(mut self, cx: &mut Cx<'_>) -> Self {
        self.session.check.want();
        Self { step: Step::Looking { drain: Drain::begin(cx) }, ..self }
    }

    fn carrying(mut self) -> Self {
        self.session.check = StorageCheck::default();
        Self { step: Step::BeforeCarrying, ..self }
    }

    fn finishing(mut self, cx: &mut Cx<'_>) -> Phase {
        let order = StoreOrder::FinishMove(self.session.month_step(self.from, self.to, cx));
        self.session.orders.give(order, cx.out);
        Phase::UpdatingRouter(Self { step: Step::Finishing, ..self })
    }
}

impl Session {
    fn month_step(&self, from: Month, to: Month, cx: &Cx<'_>) -> MonthStep {
        MonthStep {
            uaid: self.uaid,
            node: cx.config.node.clone(),
            connected_at: self.connected_at,
            from,
            to,
            last_connect: LastConnect::of(cx.now, self.uaid, cx.config.limits.last_connect_spread),
        }
    }
}
