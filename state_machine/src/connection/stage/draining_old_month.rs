//! The record names an earlier month: its messages are delivered before anything moves.

use super::copying_chids::CopyingChids;
use super::{Next, Stage, StageRules};
use crate::connection::session::Session;
use crate::connection::{StepContext, Wait};
use crate::month::{Month, MonthMove};
use crate::time::{Span, Time};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::connection) struct DrainingOldMonth {
    pub(super) months: MonthMove,
    drain: Drain,
}

/// The delivery of a month's messages, for a limited time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Drain {
    /// None is no limit.
    until: Option<Time>,
}

/// How a drain ends.
pub(super) enum Drained {
    /// Every message was acked and deleted.
    Empty,
    /// The time is up: messages are left that must be moved.
    TimeUp,
}

impl DrainingOldMonth {
    pub(super) fn begin(
        session: &mut Session,
        months: MonthMove,
        cx: &mut StepContext<'_>,
    ) -> Stage {
        Stage::DrainingOldMonth(Self { months, drain: Drain::begin(session, cx) })
    }
}

impl StageRules for DrainingOldMonth {
    fn deadline(&self, session: &Session) -> Option<(Time, Wait)> {
        self.drain.deadline(session)
    }

    fn advance(
        &mut self,
        session: &mut Session,
        months: &[Month],
        cx: &mut StepContext<'_>,
    ) -> Next {
        let has_leftovers = match self.drain.advance(session, months, cx) {
            None => return Next::Stay,
            Some(Drained::Empty) => false,
            Some(Drained::TimeUp) => true,
        };
        Next::Enter(CopyingChids::begin(session, self.months, has_leftovers, cx))
    }
}

impl Drain {
    pub(super) fn begin(session: &mut Session, cx: &StepContext<'_>) -> Self {
        session.request_scan();
        let wait = cx.config.limits.drain_wait;
        Self { until: (wait != Span::ZERO).then(|| cx.now + wait) }
    }

    pub(super) fn advance(
        &self,
        session: &mut Session,
        months: &[Month],
        cx: &mut StepContext<'_>,
    ) -> Option<Drained> {
        session.flush_acks(months, cx);
        // No scan begins after the deadline: steady pushes would make each scan be followed by another.
        if self.until.is_none_or(|until| until > cx.now) {
            session.scan_storage(months[0], cx);
        }
        if session.is_drained() {
            return Some(Drained::Empty);
        }
        let is_over = self.deadline(session).is_some_and(|(until, _)| until <= cx.now);
        is_over.then_some(Drained::TimeUp)
    }

    /// The drain does not end while the store has an operation of it.
    pub(super) fn deadline(&self, session: &Session) -> Option<(Time, Wait)> {
        let until = self.until.filter(|_| !session.awaits_store());
        until.map(|until| (until, Wait::Drain))
    }
}
