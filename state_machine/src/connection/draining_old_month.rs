//! The record is of an older month: its messages are delivered from there before anything moves.

use super::copying_chids::CopyingChids;
use super::event::Event;
use super::phase::Phase;
use super::session::{Session, SessionOutcome};
use super::{StepContext, Wait};
use crate::month::Month;
use crate::store::StoreAnswer;
use crate::time::{Span, Time};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct DrainingOldMonth {
    pub(super) session: Box<Session>,
    pub(super) from: Month,
    to: Month,
    drain: Drain,
}

/// How long acks of the old month are waited for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Drain {
    /// None waits for ever.
    until: Option<Time>,
}

impl DrainingOldMonth {
    pub(super) fn enter(
        mut session: Box<Session>,
        from: Month,
        to: Month,
        cx: &mut StepContext<'_>,
    ) -> Phase {
        session.scan.request();
        Self { session, from, to, drain: Drain::begin(cx) }.advance(cx)
    }

    pub(super) fn on_event(mut self, event: Event, cx: &mut StepContext<'_>) -> Phase {
        match self.session.on_event(event, cx) {
            SessionOutcome::Stay => {}
            SessionOutcome::Push(push, message) => self.session.reject_to_store(push, &message, cx),
            SessionOutcome::Close(reason) => {
                return self.session.close(reason, &[self.from, self.to], cx);
            }
        }
        Phase::DrainingOldMonth(self)
    }

    pub(super) fn on_store_answer(
        mut self,
        answer: StoreAnswer,
        cx: &mut StepContext<'_>,
    ) -> Phase {
        self.session.on_drain_answer(answer, self.from, cx);
        Phase::DrainingOldMonth(self)
    }

    pub(super) fn advance(mut self, cx: &mut StepContext<'_>) -> Phase {
        // In the new month too: a copy of the table that broke off has left some of the rows there.
        self.session.flush_acks(&[self.from, self.to], cx);
        if !self.drain.is_past(cx.now) {
            self.session.scan_storage(self.from, cx);
        }
        let is_over = self.drain.is_over(&self.session, cx.now);
        if self.session.is_drained() || is_over {
            let carry = !self.session.is_drained();
            return CopyingChids::enter(self.session, self.from, self.to, carry, cx);
        }
        Phase::DrainingOldMonth(self)
    }

    pub(super) fn deadline(&self) -> Option<(Time, Wait)> {
        self.drain.deadline(&self.session)
    }
}

impl Drain {
    pub(super) fn begin(cx: &StepContext<'_>) -> Self {
        let wait = cx.config.limits.drain_wait;
        Self { until: (wait != Span::ZERO).then(|| cx.now + wait) }
    }

    /// Whether no further look is to begin: pushes that come all the time would make each look be followed
    /// by another.
    pub(super) fn is_past(&self, now: Time) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// Whether what is left is to be carried over. What is with the store is waited for.
    pub(super) fn is_over(&self, session: &Session, now: Time) -> bool {
        self.deadline(session).is_some_and(|(until, _)| until <= now)
    }

    pub(super) fn deadline(&self, session: &Session) -> Option<(Time, Wait)> {
        let waits_for_store = session.scan.is_waiting() || session.deletes.is_deleting();
        self.until.filter(|_| !waits_for_store).map(|until| (until, Wait::Drain))
    }
}

impl Session {
    /// Takes in what the store answers while messages of `month` are delivered.
    pub(super) fn on_drain_answer(
        &mut self,
        answer: StoreAnswer,
        month: Month,
        cx: &mut StepContext<'_>,
    ) {
        match answer {
            StoreAnswer::Fetched(page) => self.fetched(page, month, cx),
            StoreAnswer::Channels(channels) => self.channels_confirmed(channels),
            StoreAnswer::Deleted => self.deletes.deleted(),
            // Answers to the steps of other phases: none is open while messages are delivered.
            StoreAnswer::Registered(_)
            | StoreAnswer::ChannelsAdded
            | StoreAnswer::ChannelRemoved
            | StoreAnswer::MonthUpdated(_)
            | StoreAnswer::MoveFinished(_)
            | StoreAnswer::Moved
            | StoreAnswer::NodeCleared(_) => {}
        }
    }

    /// Whether storage was looked at to its end, everything acked and every ack settled.
    pub(super) fn is_drained(&self) -> bool {
        self.scan.is_done() && self.is_settled()
    }
}
