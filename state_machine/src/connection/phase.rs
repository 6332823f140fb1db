//! The phases as one type.

use super::awaiting_hello::{AfterHello, AwaitingHello};
use super::closed;
use super::config::Limits;
use super::effect::{CloseReason, Effect};
use super::event::Event;
use super::phase_name::PhaseName;
use super::session::{Session, UnackedWindow};
use super::stage::{Next, Stage};
use super::step::{StepContext, Wait};
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

impl Phase {
    pub(super) fn on_event(self, event: Event, cx: &mut StepContext<'_>) -> Self {
        match self {
            Self::AwaitingHello(mut phase) => match phase.on_event(event, cx) {
                AfterHello::Stay => Self::AwaitingHello(phase),
                AfterHello::Open(session, stage) => Self::Open(Open { session, stage }),
                AfterHello::Close(reason) => Self::AwaitingHello(phase).close(reason, cx),
            },
            Self::Open(mut open) => {
                let close = open.on_event(event, cx);
                Self::Open(open).closed_for(close, cx)
            }
            Self::Closed => {
                closed::on_event(event, cx);
                Self::Closed
            }
        }
    }

    /// Does what the time and the last event allow.
    pub(super) fn advance(self, cx: &mut StepContext<'_>) -> Self {
        match self {
            Self::Open(mut open) => {
                let close = open.advance(cx);
                Self::Open(open).closed_for(close, cx)
            }
            Self::AwaitingHello(_) | Self::Closed => self,
        }
    }

    fn closed_for(self, reason: Option<CloseReason>, cx: &mut StepContext<'_>) -> Self {
        match reason {
            Some(reason) => self.close(reason, cx),
            None => self,
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

    /// The effect of an event, and why the connection closes, if it does.
    fn on_event(&mut self, event: Event, cx: &mut StepContext<'_>) -> Option<CloseReason> {
        // The timer may be late: a push and a row find the acks overdue that are by the clock.
        if matches!(event, Event::StoreAnswered { .. } | Event::PushArrived { .. }) {
            self.session.expire_acks(&self.stage.months(), cx);
        }
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

    fn advance(&mut self, cx: &mut StepContext<'_>) -> Option<CloseReason> {
        self.session.on_time(&self.stage.months(), cx);
        if self.session.window.is_overfull(cx.config.limits.unacked_max) {
            return Some(CloseReason::TooManyUnacked);
        }
        loop {
            let months = self.stage.months();
            match self.stage.rules_mut().advance(&mut self.session, &months, cx) {
                Next::Stay => return None,
                Next::Close(reason) => return Some(reason),
                next => self.follow(next, cx),
            };
        }
    }

    fn follow(&mut self, next: Next, cx: &mut StepContext<'_>) -> Option<CloseReason> {
        match next {
            Next::Stay | Next::Step => {}
            Next::Month(curmonth, oldmonth) => {
                self.stage = Stage::of_month(&mut self.session, curmonth, oldmonth, cx);
            }
            Next::NoRecord => self.stage = Stage::welcome(&mut self.session, cx),
            Next::Close(reason) => return Some(reason),
        }
        None
    }
}
