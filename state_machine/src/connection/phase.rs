//! The phases as one type, and their names.

use std::fmt;

use super::awaiting_hello::AwaitingHello;
use super::closed;
use super::effect::{CloseReason, Effect};
use super::event::Event;
use super::session::{Session, UnackedWindow};
use super::stage::{Next, Stage};
use super::{Limits, StepContext, Wait};
use crate::store::StoreAnswer;
use crate::time::Time;

/// The phase of a connection. Each holds only what is valid in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    AwaitingHello(AwaitingHello),
    Open(Open),
    Closed,
}

/// A connection after hello: the session, and what is its stage's own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Open {
    pub(super) session: Box<Session>,
    pub(super) stage: Stage,
}

/// A phase, or a stage of an open connection. Fixtures, logs and `docs/state-machine.md` use these names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PhaseName {
    /// The socket was accepted and no message arrived.
    AwaitingHello,
    /// The record of a known agent is written, then its channels are read.
    Identified,
    /// The messages of the old month are delivered.
    DrainingOldMonth,
    /// The channels are added to the new month's table.
    CopyingChids,
    /// The record is written with the new month as `curmonth` and the old one as `oldmonth`.
    WritingRecord,
    /// Messages that endpoints stored in the old month meanwhile are delivered.
    DrainingAgain,
    /// The deletes under way finish before unacked messages are moved.
    AwaitingDeletes,
    /// Unacked messages of the old month are moved to the new one.
    MovingMessages,
    /// `oldmonth` is removed from the record.
    ClearingOldMonth,
    /// Commands and pushes are served.
    Ready,
    /// The connection has ended.
    Closed,
}

impl PhaseName {
    /// All names, in the order in which a connection can have them.
    pub const ALL: [Self; 11] = [
        Self::AwaitingHello,
        Self::Identified,
        Self::DrainingOldMonth,
        Self::CopyingChids,
        Self::WritingRecord,
        Self::DrainingAgain,
        Self::AwaitingDeletes,
        Self::MovingMessages,
        Self::ClearingOldMonth,
        Self::Ready,
        Self::Closed,
    ];
}

impl fmt::Display for PhaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Phase {
    pub(super) fn on_event(self, event: Event, cx: &mut StepContext<'_>) -> Self {
        match self {
            Self::AwaitingHello(phase) => phase.on_event(event, cx),
            Self::Open(open) => open.on_event(event, cx),
            Self::Closed => closed::on_event(event, cx),
        }
    }

    /// Does what the time and the last event allow.
    pub(super) fn advance(self, cx: &mut StepContext<'_>) -> Self {
        match self {
            Self::Open(open) => open.advance(cx),
            Self::AwaitingHello(_) | Self::Closed => self,
        }
    }

    pub(super) fn close(self, reason: CloseReason, cx: &mut StepContext<'_>) -> Self {
        if let Self::Open(Open { session, stage }) = self {
            session.close(reason, &stage.months(), cx);
        }
        cx.out.push(Effect::Close(reason));
        Self::Closed
    }

    pub(super) fn name(&self) -> PhaseName {
        match self {
            Self::AwaitingHello(_) => PhaseName::AwaitingHello,
            Self::Open(open) => open.stage.name(),
            Self::Closed => PhaseName::Closed,
        }
    }

    /// The unacked messages of an open connection.
    pub(super) fn window(&self) -> Option<&UnackedWindow> {
        match self {
            Self::Open(open) => Some(&open.session.window),
            Self::AwaitingHello(_) | Self::Closed => None,
        }
    }
}

impl Open {
    /// The deadlines of the session and its stage.
    pub(super) fn deadlines(
        &self,
        limits: &Limits,
    ) -> impl Iterator<Item = Option<(Time, Wait)>> + use<> {
        let own = self.stage.rules().deadline(&self.session);
        self.session.deadlines(limits).into_iter().chain([own])
    }

    fn on_event(mut self, event: Event, cx: &mut StepContext<'_>) -> Phase {
        let next = match event {
            Event::StoreAnswered { op, answer } => match self.session.complete(op, answer, cx) {
                Some(answer) => self.on_store_answer(answer, cx),
                None => Next::Stay,
            },
            event => self.stage.rules_mut().on_event(&mut self.session, event, cx),
        };
        if self.stage.is_moving() {
            self.session.refuse_commands_without_space(cx);
        }
        self.follow(next, cx)
    }

    /// An agent without a month has no messages: all answers are the stage's.
    fn on_store_answer(&mut self, answer: StoreAnswer, cx: &mut StepContext<'_>) -> Next {
        let answer = match self.stage.months().first() {
            Some(month) => self.session.on_store_answer(answer, *month, cx),
            None => Some(answer),
        };
        match answer {
            Some(answer) => self.stage.rules_mut().on_store_answer(&mut self.session, answer, cx),
            None => Next::Stay,
        }
    }

    fn advance(mut self, cx: &mut StepContext<'_>) -> Phase {
        self.session.on_time(&self.stage.months(), cx);
        if self.session.window.is_overfull(cx.config.limits.unacked_max) {
            return Phase::Open(self).close(CloseReason::TooManyUnacked, cx);
        }
        loop {
            let months = self.stage.months();
            match self.stage.rules_mut().advance(&mut self.session, &months, cx) {
                Next::Enter(stage) => self.stage = stage,
                next @ (Next::Stay | Next::Close(_)) => return self.follow(next, cx),
            }
        }
    }

    fn follow(self, next: Next, cx: &mut StepContext<'_>) -> Phase {
        match next {
            Next::Stay => Phase::Open(self),
            Next::Enter(stage) => Phase::Open(Self { stage, ..self }),
            Next::Close(reason) => Phase::Open(self).close(reason, cx),
        }
    }
}
