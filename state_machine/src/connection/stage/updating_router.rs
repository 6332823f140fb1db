//! The router record moves to the new month, in five stages.
//!
//! ```text
//!   WritingRecord ──all acked before──► DrainingAgain ──all acked──► ClearingOldMonth ──► Ready
//!        │                                   │ time is up                     ▲
//!        │ messages are left                 ▼                                │ moved
//!        └─────────────────────────► AwaitingDeletes ──deleted──► MovingMessages
//! ```
//!
//! From `DrainingAgain` on the record has `curmonth = to` and `oldmonth = from`. If the connection ends there, the next
//! one resumes with `DrainingAgain`.

use super::draining_old_month::{Drain, Drained};
use super::{Next, Stage, StageRules, enter_month};
use crate::connection::effect::CloseReason;
use crate::connection::session::Session;
use crate::connection::{StepContext, Wait};
use crate::month::{Month, MonthMove};
use crate::store::{StoreAnswer, StoreOp};
use crate::time::Time;

/// The record is written with `curmonth` and `oldmonth`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::connection) struct WritingRecord {
    pub(super) months: MonthMove,
    /// Whether messages are left that must be moved.
    has_leftovers: bool,
}

/// Messages that endpoints stored in the old month meanwhile are delivered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::connection) struct DrainingAgain {
    pub(super) months: MonthMove,
    drain: Drain,
}

/// Messages are left. The deletes under way finish first: none may run while rows move between the tables.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::connection) struct AwaitingDeletes {
    pub(super) months: MonthMove,
}

/// The store moves what is left to the new month.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::connection) struct MovingMessages {
    pub(super) months: MonthMove,
}

/// The store removes `oldmonth` from the record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::connection) struct ClearingOldMonth {
    pub(super) months: MonthMove,
}

impl WritingRecord {
    pub(super) fn begin(
        session: &mut Session,
        months: MonthMove,
        has_leftovers: bool,
        cx: &mut StepContext<'_>,
    ) -> Stage {
        let step = session.month_step(months.from, months.to, cx);
        session.submit(StoreOp::UpdateMonth(step), cx);
        Stage::WritingRecord(Self { months, has_leftovers })
    }
}

impl StageRules for WritingRecord {
    fn on_store_answer(
        &mut self,
        session: &mut Session,
        answer: StoreAnswer,
        cx: &mut StepContext<'_>,
    ) -> Next {
        let StoreAnswer::MonthUpdated(is_ours) = answer else { return Next::Stay };
        if !is_ours {
            // Another connection has written the record since.
            return Next::Close(CloseReason::Replaced);
        }
        Next::Enter(match self.has_leftovers {
            true => AwaitingDeletes::begin(session, self.months),
            false => DrainingAgain::begin(session, self.months, cx),
        })
    }
}

impl DrainingAgain {
    pub(super) fn begin(
        session: &mut Session,
        months: MonthMove,
        cx: &mut StepContext<'_>,
    ) -> Stage {
        Stage::DrainingAgain(Self { months, drain: Drain::begin(session, cx) })
    }
}

impl StageRules for DrainingAgain {
    fn deadline(&self, session: &Session) -> Option<(Time, Wait)> {
        self.drain.deadline(session)
    }

    fn advance(
        &mut self,
        session: &mut Session,
        months: &[Month],
        cx: &mut StepContext<'_>,
    ) -> Next {
        match self.drain.advance(session, months, cx) {
            None => Next::Stay,
            Some(Drained::Empty) => Next::Enter(ClearingOldMonth::begin(session, self.months, cx)),
            Some(Drained::TimeUp) => Next::Enter(AwaitingDeletes::begin(session, self.months)),
        }
    }
}

impl AwaitingDeletes {
    fn begin(session: &mut Session, months: MonthMove) -> Stage {
        session.stop_scan();
        Stage::AwaitingDeletes(Self { months })
    }
}

impl StageRules for AwaitingDeletes {
    fn advance(&mut self, session: &mut Session, _: &[Month], cx: &mut StepContext<'_>) -> Next {
        if session.is_deleting() {
            return Next::Stay;
        }
        let MonthMove { from, to } = self.months;
        session.submit(StoreOp::MoveMessages { uaid: session.uaid, from, to }, cx);
        Next::Enter(Stage::MovingMessages(MovingMessages { months: self.months }))
    }
}

impl StageRules for MovingMessages {
    fn on_store_answer(
        &mut self,
        session: &mut Session,
        answer: StoreAnswer,
        cx: &mut StepContext<'_>,
    ) -> Next {
        if answer != StoreAnswer::Moved {
            return Next::Stay;
        }
        Next::Enter(ClearingOldMonth::begin(session, self.months, cx))
    }

    /// Acks wait: no row may be deleted while it moves.
    fn advance(&mut self, _: &mut Session, _: &[Month], _: &mut StepContext<'_>) -> Next {
        Next::Stay
    }
}

impl ClearingOldMonth {
    fn begin(session: &mut Session, months: MonthMove, cx: &mut StepContext<'_>) -> Stage {
        let step = session.month_step(months.from, months.to, cx);
        session.submit(StoreOp::FinishMove(step), cx);
        Stage::ClearingOldMonth(Self { months })
    }
}

impl StageRules for ClearingOldMonth {
    fn on_store_answer(
        &mut self,
        session: &mut Session,
        answer: StoreAnswer,
        cx: &mut StepContext<'_>,
    ) -> Next {
        let StoreAnswer::MoveFinished(is_ours) = answer else { return Next::Stay };
        if !is_ours {
            // Another connection has written the record since.
            return Next::Close(CloseReason::Replaced);
        }
        Next::Enter(enter_month(session, self.months.to, None, cx))
    }
}
