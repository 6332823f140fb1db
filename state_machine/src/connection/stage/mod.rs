//! The stages of an open connection as one type.

mod identified;
mod moving;
mod ready;
mod rules;

pub(super) use rules::Next;

use std::ops::Deref;

use identified::Identified;
use moving::Moving;
use ready::Ready;
use rules::StageRules;

use super::phase_name::PhaseName;
use super::session::Session;
use super::step::StepContext;
use crate::month::{DueMove, Month};

/// What a session is doing. Each stage holds only what is valid in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    Identified(Identified),
    Moving(Moving),
    Ready(Ready),
}

impl Stage {
    /// Registers an agent that has a uaid.
    pub(super) fn identify(session: &mut Session, cx: &mut StepContext<'_>) -> Self {
        Self::Identified(Identified::begin(session, cx))
    }

    /// Answers the hello of an agent without a record.
    pub(super) fn welcome(session: &mut Session, cx: &mut StepContext<'_>) -> Self {
        Self::Ready(Ready::welcome(session, cx))
    }

    /// The stage of an agent whose record has this `curmonth`.
    pub(super) fn of_month(
        session: &mut Session,
        curmonth: Month,
        oldmonth: Option<Month>,
        cx: &StepContext<'_>,
    ) -> Self {
        match DueMove::of(curmonth, oldmonth, cx.config.message_month(cx.now)) {
            Some(DueMove::Resume(months)) => Self::Moving(Moving::resume(session, months, cx)),
            Some(DueMove::Begin(months)) => Self::Moving(Moving::begin(session, months, cx)),
            None => Self::Ready(Ready::begin(session, curmonth, cx)),
        }
    }

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
