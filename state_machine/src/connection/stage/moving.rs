//! The record names an earlier month, or an unfinished move: the agent moves to the new month, in seven steps.
//!
//! ```text
//!   DrainingOldMonth ──all acked, or time is up──► CopyingChids
//!                                                       │
//!   ┌───────────────────────────────────────────────────┘
//!   ▼
//!   WritingRecord ──all acked before──► DrainingAgain ──all acked──► ClearingOldMonth ──► Ready
//!        │                                   │ time is up                     ▲
//!        │ messages are left                 ▼                                │ moved
//!        └─────────────────────────► AwaitingDeletes ──deleted──► MovingMessages
//! ```
//!
//! From `DrainingAgain` on the record has `curmonth = to` and `oldmonth = from`. If the connection ends there, the next
//! one resumes with `DrainingAgain`.

use super::rules::{Next, StageRules};
use crate::connection::effect::CloseReason;
use crate::connection::phase_name::PhaseName;
use crate::connection::session::Session;
use crate::connection::step::{StepContext, Wait};
use crate::month::{Month, MonthMove};
use crate::store::{StoreAnswer, StoreOp};
use crate::time::{Span, Time};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::connection) struct Moving {
    pub(super) months: MonthMove,
    step: Step,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Step {
    /// The messages of the old month are delivered before anything moves.
    DrainingOldMonth(Drain),
    /// The channels are added to the new month's table.
    CopyingChids {
        /// Whether messages are left that must be moved.
        has_leftovers: bool,
    },
    /// The record is written with `curmonth` and `oldmonth`.
    WritingRecord { has_leftovers: bool },
    /// Messages that endpoints stored in the old month meanwhile are delivered.
    DrainingAgain(Drain),
    /// Messages are left. The deletes under way finish first: none may run while rows move between the tables.
    AwaitingDeletes,
    /// The store moves what is left to the new month.
    MovingMessages,
    /// The store removes `oldmonth` from the record.
    ClearingOldMonth,
}

/// The delivery of a month's messages, for a limited time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Drain {
    /// None is no limit.
    until: Option<Time>,
}

impl Moving {
    /// Begins a move: the record names an earlier month.
    pub(super) fn begin(session: &mut Session, months: MonthMove, cx: &StepContext<'_>) -> Self {
        Self { months, step: Step::DrainingOldMonth(Drain::begin(session, cx)) }
    }

    /// Goes on with a move whose record is written.
    pub(super) fn resume(session: &mut Session, months: MonthMove, cx: &StepContext<'_>) -> Self {
        Self { months, step: Step::DrainingAgain(Drain::begin(session, cx)) }
    }

    pub(super) fn name(&self) -> PhaseName {
        match self.step {
            Step::DrainingOldMonth(_) => PhaseName::DrainingOldMonth,
            Step::CopyingChids { .. } => PhaseName::CopyingChids,
            Step::WritingRecord { .. } => PhaseName::WritingRecord,
            Step::DrainingAgain(_) => PhaseName::DrainingAgain,
            Step::AwaitingDeletes => PhaseName::AwaitingDeletes,
            Step::MovingMessages => PhaseName::MovingMessages,
            Step::ClearingOldMonth => PhaseName::ClearingOldMonth,
        }
    }

    fn enter(&mut self, step: Step) -> Next {
        self.step = step;
        Next::Step
    }

    fn copy_chids(
        &mut self,
        has_leftovers: bool,
        session: &mut Session,
        cx: &mut StepContext<'_>,
    ) -> Next {
        let (uaid, channels) = (session.uaid, (&session.channels).into());
        session.submit(StoreOp::AddChannels { uaid, month: self.months.to, channels }, cx);
        self.enter(Step::CopyingChids { has_leftovers })
    }

    fn await_deletes(&mut self, session: &mut Session) -> Next {
        session.stop_scan();
        self.enter(Step::AwaitingDeletes)
    }

    fn clear_old_month(&mut self, session: &mut Session, cx: &mut StepContext<'_>) -> Next {
        session.submit(StoreOp::FinishMove(session.month_step(self.months, cx)), cx);
        self.enter(Step::ClearingOldMonth)
    }
}

impl StageRules for Moving {
    fn deadline(&self, session: &Session) -> Option<(Time, Wait)> {
        match &self.step {
            Step::DrainingOldMonth(drain) | Step::DrainingAgain(drain) => drain.deadline(session),
            _ => None,
        }
    }

    fn on_store_answer(
        &mut self,
        session: &mut Session,
        answer: StoreAnswer,
        cx: &mut StepContext<'_>,
    ) -> Next {
        match (&self.step, answer) {
            (Step::CopyingChids { has_leftovers }, StoreAnswer::ChannelsAdded) => {
                let has_leftovers = *has_leftovers;
                session.submit(StoreOp::UpdateMonth(session.month_step(self.months, cx)), cx);
                self.enter(Step::WritingRecord { has_leftovers })
            }
            (Step::WritingRecord { has_leftovers: true }, StoreAnswer::MonthUpdated(true)) => {
                self.await_deletes(session)
            }
            (Step::WritingRecord { has_leftovers: false }, StoreAnswer::MonthUpdated(true)) => {
                self.enter(Step::DrainingAgain(Drain::begin(session, cx)))
            }
            (Step::MovingMessages, StoreAnswer::Moved) => self.clear_old_month(session, cx),
            (Step::ClearingOldMonth, StoreAnswer::MoveFinished(true)) => {
                Next::Month(self.months.to, None)
            }
            // Another connection has written the record since.
            (Step::WritingRecord { .. }, StoreAnswer::MonthUpdated(false))
            | (Step::ClearingOldMonth, StoreAnswer::MoveFinished(false)) => {
                Next::Close(CloseReason::Replaced)
            }
            // No other answer belongs to the operation of a step.
            _ => Next::Stay,
        }
    }

    fn advance(
        &mut self,
        session: &mut Session,
        months: &[Month],
        cx: &mut StepContext<'_>,
    ) -> Next {
        match &self.step {
            Step::DrainingOldMonth(drain) => match drain.advance(session, months, cx) {
                None => Next::Stay,
                Some(has_leftovers) => self.copy_chids(has_leftovers, session, cx),
            },
            Step::DrainingAgain(drain) => match drain.advance(session, months, cx) {
                None => Next::Stay,
                Some(false) => self.clear_old_month(session, cx),
                Some(true) => self.await_deletes(session),
            },
            Step::AwaitingDeletes if session.is_deleting() => Next::Stay,
            Step::AwaitingDeletes => {
                let MonthMove { from, to } = self.months;
                session.submit(StoreOp::MoveMessages { uaid: session.uaid, from, to }, cx);
                self.enter(Step::MovingMessages)
            }
            // Acks wait: no row may be deleted while it moves.
            Step::MovingMessages => Next::Stay,
            Step::CopyingChids { .. } | Step::WritingRecord { .. } | Step::ClearingOldMonth => {
                session.flush_acks(months, cx);
                Next::Stay
            }
        }
    }
}

impl Drain {
    fn begin(session: &mut Session, cx: &StepContext<'_>) -> Self {
        session.request_scan();
        let wait = cx.config.limits.drain_wait;
        Self { until: (wait != Span::ZERO).then(|| cx.now + wait) }
    }

    /// Whether messages are left, once the drain ends: every message was acked and deleted, or the time is up.
    fn advance(
        &self,
        session: &mut Session,
        months: &[Month],
        cx: &mut StepContext<'_>,
    ) -> Option<bool> {
        session.flush_acks(months, cx);
        // No scan begins after the deadline: steady pushes would make each scan be followed by another.
        if self.until.is_none_or(|until| until > cx.now) {
            session.scan_storage(months[0], cx);
        }
        if session.is_drained() {
            return Some(false);
        }
        let is_over = self.deadline(session).is_some_and(|(until, _)| until <= cx.now);
        is_over.then_some(true)
    }

    /// The drain does not end while the store has an operation of it.
    fn deadline(&self, session: &Session) -> Option<(Time, Wait)> {
        let until = self.until.filter(|_| !session.awaits_store());
        until.map(|until| (until, Wait::Drain))
    }
}
