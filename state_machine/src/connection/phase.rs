//! The phases as one type: dispatch, and nothing else.

use std::fmt;

use super::awaiting_hello::AwaitingHello;
use super::closed::Closed;
use super::copying_chids::CopyingChids;
use super::draining_old_month::DrainingOldMonth;
use super::effect::CloseReason;
use super::event::Event;
use super::identified::Identified;
use super::ready::Ready;
use super::session::Session;
use super::updating_router::UpdatingRouter;
use super::{Config, StepContext, Wait};
use crate::ids::OpId;
use crate::month::Month;
use crate::store::{StoreAnswer, StoreFailed};
use crate::time::Time;

/// Where a connection is. Each phase holds only what is valid in it and is consumed by its own steps.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    AwaitingHello(AwaitingHello),
    Identified(Identified),
    DrainingOldMonth(DrainingOldMonth),
    CopyingChids(CopyingChids),
    UpdatingRouter(UpdatingRouter),
    Ready(Ready),
    Closed(Closed),
}

/// The phase's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PhaseName {
    /// Nothing was said yet.
    AwaitingHello,
    /// Hello was said; the records of that agent are being read.
    Identified,
    /// The old month's messages are being delivered.
    DrainingOldMonth,
    /// The channels are being copied to the new month.
    CopyingChids,
    /// The router record is being moved to the new month, and the old one looked at once more.
    UpdatingRouter,
    /// Commands and pushes are served.
    Ready,
    /// Over.
    Closed,
}

impl PhaseName {
    /// Every phase, in the order a connection goes through them.
    pub const ALL: [Self; 7] = [
        Self::AwaitingHello,
        Self::Identified,
        Self::DrainingOldMonth,
        Self::CopyingChids,
        Self::UpdatingRouter,
        Self::Ready,
        Self::Closed,
    ];
}

impl fmt::Display for PhaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

macro_rules! each_phase {
    ($phase:expr, $inner:ident => $do:expr) => {
        match $phase {
            Phase::AwaitingHello($inner) => $do,
            Phase::Identified($inner) => $do,
            Phase::DrainingOldMonth($inner) => $do,
            Phase::CopyingChids($inner) => $do,
            Phase::UpdatingRouter($inner) => $do,
            Phase::Ready($inner) => $do,
            Phase::Closed($inner) => $do,
        }
    };
}

impl Phase {
    /// Something happened.
    pub(super) fn on_event(self, event: Event, cx: &mut StepContext<'_>) -> Self {
        each_phase!(self, phase => phase.on_event(event, cx))
    }

    /// The store answered. This is where an answer that nobody waits for is dropped.
    pub(super) fn complete_store_op(
        mut self,
        op: OpId,
        answer: Result<StoreAnswer, StoreFailed>,
        cx: &mut StepContext<'_>,
    ) -> Self {
        let retry = cx.config.limits.store_retry;
        let answer =
            self.session_mut().and_then(|session| session.ops.complete(op, answer, cx.now, retry));
        match answer {
            Some(answer) => each_phase!(self, phase => phase.on_store_answer(answer, cx)),
            None => self,
        }
    }

    /// Goes on with whatever time and the last event allow.
    pub(super) fn advance(mut self, cx: &mut StepContext<'_>) -> Self {
        if let Some(session) = self.session_mut() {
            session.window.expire(cx.now, cx.config.limits.ack_wait, cx.out);
            session.ops.resubmit_due(cx.now, cx.out);
        }
        each_phase!(self, phase => phase.advance(cx))
    }

    /// Ends the connection.
    pub(super) fn close(self, reason: CloseReason, cx: &mut StepContext<'_>) -> Self {
        let months = self.months();
        match self.into_session() {
            Some(session) => session.close(reason, &months, cx),
            None => Closed::because(reason, cx),
        }
    }

    /// The earliest deadline of the phase itself.
    pub(super) fn deadline(&self, config: &Config) -> Option<(Time, Wait)> {
        let session = self.session()?;
        let ack = session.window.deadline(config.limits.ack_wait).map(|at| (at, Wait::Ack));
        let retry = session.ops.deadline().map(|at| (at, Wait::Retry));
        let own = match self {
            Self::DrainingOldMonth(phase) => phase.deadline(),
            Self::UpdatingRouter(phase) => phase.deadline(),
            Self::Ready(phase) => phase.deadline(),
            Self::AwaitingHello(_)
            | Self::Identified(_)
            | Self::CopyingChids(_)
            | Self::Closed(_) => None,
        };
        [ack, retry, own].into_iter().flatten().min()
    }

    pub(super) fn name(&self) -> PhaseName {
        match self {
            Self::AwaitingHello(_) => PhaseName::AwaitingHello,
            Self::Identified(_) => PhaseName::Identified,
            Self::DrainingOldMonth(_) => PhaseName::DrainingOldMonth,
            Self::CopyingChids(_) => PhaseName::CopyingChids,
            Self::UpdatingRouter(_) => PhaseName::UpdatingRouter,
            Self::Ready(_) => PhaseName::Ready,
            Self::Closed(_) => PhaseName::Closed,
        }
    }

    pub(super) fn unacked(&self) -> usize {
        self.session().map_or(0, |session| session.window.len())
    }

    /// The months whose tables may hold this agent's messages.
    fn months(&self) -> Vec<Month> {
        match self {
            Self::DrainingOldMonth(phase) => vec![phase.from],
            Self::CopyingChids(phase) => vec![phase.from],
            Self::UpdatingRouter(phase) => vec![phase.from, phase.to],
            Self::Ready(phase) => phase.months(),
            Self::AwaitingHello(_) | Self::Identified(_) | Self::Closed(_) => Vec::new(),
        }
    }

    fn session(&self) -> Option<&Session> {
        match self {
            Self::AwaitingHello(_) | Self::Closed(_) => None,
            Self::Identified(phase) => Some(&phase.session),
            Self::DrainingOldMonth(phase) => Some(&phase.session),
            Self::CopyingChids(phase) => Some(&phase.session),
            Self::UpdatingRouter(phase) => Some(&phase.session),
            Self::Ready(phase) => Some(&phase.session),
        }
    }

    fn session_mut(&mut self) -> Option<&mut Session> {
        match self {
            Self::AwaitingHello(_) | Self::Closed(_) => None,
            Self::Identified(phase) => Some(&mut phase.session),
            Self::DrainingOldMonth(phase) => Some(&mut phase.session),
            Self::CopyingChids(phase) => Some(&mut phase.session),
            Self::UpdatingRouter(phase) => Some(&mut phase.session),
            Self::Ready(phase) => Some(&mut phase.session),
        }
    }

    fn into_session(self) -> Option<Box<Session>> {
        match self {
            Self::AwaitingHello(_) | Self::Closed(_) => None,
            Self::Identified(phase) => Some(phase.session),
            Self::DrainingOldMonth(phase) => Some(phase.session),
            Self::CopyingChids(phase) => Some(phase.session),
            Self::UpdatingRouter(phase) => Some(phase.session),
            Self::Ready(phase) => Some(phase.session),
        }
    }
}
