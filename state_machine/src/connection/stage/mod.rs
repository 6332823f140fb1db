//! The stages of an open connection: one type, and what each of them decides.

mod identified;
mod moving;
mod ready;

pub(super) use identified::Identified;
pub(super) use ready::Ready;

use moving::Moving;

use std::ops::Deref;

use super::StepContext;
use super::Wait;
use super::effect::CloseReason;
use super::event::Event;
use super::phase::PhaseName;
use super::session::{Session, SessionOutcome};
use crate::ids::PushId;
use crate::message::Message;
use crate::month::{DueMove, Month};
use crate::store::StoreAnswer;
use crate::time::Time;

/// What a session is doing. Each stage holds only what is valid in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    Identified(Identified),
    Moving(Moving),
    Ready(Ready),
}

/// What follows for a stage.
pub(super) enum Next {
    Stay,
    Enter(Stage),
    Close(CloseReason),
}

/// What a stage decides. The session does what all stages do alike.
pub(super) trait StageRules {
    /// The stage's own deadline, besides those of the session.
    fn deadline(&self, _: &Session) -> Option<(Time, Wait)> {
        None
    }

    fn on_event(&mut self, session: &mut Session, event: Event, cx: &mut StepContext<'_>) -> Next {
        match session.on_event(event, cx) {
            SessionOutcome::Stay => Next::Stay,
            SessionOutcome::Close(reason) => Next::Close(reason),
            SessionOutcome::Push(push, message) => {
                self.on_push(session, push, message, cx);
                Next::Stay
            }
        }
    }

    fn on_push(
        &mut self,
        session: &mut Session,
        push: PushId,
        message: Message,
        cx: &mut StepContext<'_>,
    ) {
        session.reject_to_store(push, &message, cx);
    }

    /// Processes the answer to an operation that only this stage submits. The others submit none, and get none.
    fn on_store_answer(
        &mut self,
        _: &mut Session,
        _: StoreAnswer,
        _: &mut StepContext<'_>,
    ) -> Next {
        Next::Stay
    }

    /// Does what the time and the last event allow. `months` are those of [`Stage::months`].
    fn advance(
        &mut self,
        session: &mut Session,
        months: &[Month],
        cx: &mut StepContext<'_>,
    ) -> Next {
        session.flush_acks(months, cx);
        Next::Stay
    }
}

impl Stage {
    pub(super) fn rules(&self) -> &dyn StageRules {
        match self {
            Self::Identified(stage) => stage,
            Self::Moving(stage) => stage,
            Self::Ready(stage) => stage,
        }
    }

    pub(super) fn rules_mut(&mut self) -> &mut dyn StageRules {
        match self {
            Self::Identified(stage) => stage,
            Self::Moving(stage) => stage,
            Self::Ready(stage) => stage,
        }
    }

    pub(super) fn name(&self) -> PhaseName {
        match self {
            Self::Identified(_) => PhaseName::Identified,
            Self::Moving(stage) => stage.name(),
            Self::Ready(_) => PhaseName::Ready,
        }
    }

    /// Whether the agent moves to another month, and its commands wait for that.
    pub(super) fn is_moving(&self) -> bool {
        matches!(self, Self::Moving(_))
    }

    /// The months whose tables may hold this agent's messages. Those of the first are being sent.
    pub(super) fn months(&self) -> Months {
        match self {
            Self::Identified(_) => Months::None,
            Self::Ready(stage) => stage.month.map_or(Months::None, |month| Months::One([month])),
            // A copy of the old table that was interrupted has left some of the rows in the new one too.
            Self::Moving(Moving { months, .. }) => Months::Two([months.from, months.to]),
        }
    }
}

/// No month, one, or two.
pub(super) enum Months {
    None,
    One([Month; 1]),
    Two([Month; 2]),
}

impl Deref for Months {
    type Target = [Month];

    fn deref(&self) -> &[Month] {
        match self {
            Self::None => &[],
            Self::One(months) => months,
            Self::Two(months) => months,
        }
    }
}

/// The stage of an agent whose record has this `curmonth`.
fn enter_month(
    session: &mut Session,
    curmonth: Month,
    oldmonth: Option<Month>,
    cx: &mut StepContext<'_>,
) -> Stage {
    let this_month = cx.config.message_month(cx.now);
    match DueMove::of(curmonth, oldmonth, this_month) {
        Some(DueMove::Resume(months)) => Moving::resume(session, months, cx),
        Some(DueMove::Begin(months)) => Moving::begin(session, months, cx),
        None => Ready::begin(session, curmonth, cx),
    }
}
