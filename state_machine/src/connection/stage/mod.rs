//! The stages of an open connection: one type, and what each of them decides.

mod copying_chids;
mod draining_old_month;
mod identified;
mod ready;
mod updating_router;

pub(super) use identified::Identified;
pub(super) use ready::Ready;

use copying_chids::CopyingChids;
use draining_old_month::DrainingOldMonth;
use updating_router::{
    AwaitingDeletes, ClearingOldMonth, DrainingAgain, MovingMessages, WritingRecord,
};

use super::StepContext;
use super::Wait;
use super::effect::CloseReason;
use super::event::Event;
use super::phase::PhaseName;
use super::session::{Session, SessionOutcome};
use crate::ids::PushId;
use crate::message::Message;
use crate::month::Month;
use crate::store::StoreAnswer;
use crate::time::Time;

/// What a session is doing. Each stage holds only what is valid in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    Identified(Identified),
    DrainingOldMonth(DrainingOldMonth),
    CopyingChids(CopyingChids),
    WritingRecord(WritingRecord),
    DrainingAgain(DrainingAgain),
    AwaitingDeletes(AwaitingDeletes),
    MovingMessages(MovingMessages),
    ClearingOldMonth(ClearingOldMonth),
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
    fn name(&self) -> PhaseName;

    /// The months whose tables may hold this agent's messages.
    fn months(&self) -> Vec<Month>;

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

    fn on_store_answer(
        &mut self,
        session: &mut Session,
        answer: StoreAnswer,
        cx: &mut StepContext<'_>,
    ) -> Next;

    /// Does what the time and the last event allow.
    fn advance(&mut self, _: &mut Session, _: &mut StepContext<'_>) -> Next {
        Next::Stay
    }
}

macro_rules! each_stage {
    ($stage:expr) => {
        match $stage {
            Stage::Identified(stage) => stage,
            Stage::DrainingOldMonth(stage) => stage,
            Stage::CopyingChids(stage) => stage,
            Stage::WritingRecord(stage) => stage,
            Stage::DrainingAgain(stage) => stage,
            Stage::AwaitingDeletes(stage) => stage,
            Stage::MovingMessages(stage) => stage,
            Stage::ClearingOldMonth(stage) => stage,
            Stage::Ready(stage) => stage,
        }
    };
}

impl Stage {
    pub(super) fn rules(&self) -> &dyn StageRules {
        each_stage!(self)
    }

    pub(super) fn rules_mut(&mut self) -> &mut dyn StageRules {
        each_stage!(self)
    }
}

/// A move from one month to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct MonthMove {
    from: Month,
    to: Month,
}

impl MonthMove {
    /// Both months: a copy of the table that was interrupted has left some of the rows in the new one too.
    fn both(self) -> [Month; 2] {
        [self.from, self.to]
    }
}

/// The stage of an agent whose record has this `curmonth`: an unfinished move is resumed first, then the agent moves to
/// this month. A record never moves back.
fn enter_month(
    session: &mut Session,
    curmonth: Month,
    oldmonth: Option<Month>,
    cx: &mut StepContext<'_>,
) -> Stage {
    let this_month = cx.config.message_month(cx.now);
    match oldmonth {
        Some(from) => DrainingAgain::begin(session, MonthMove { from, to: curmonth }, cx),
        None if curmonth < this_month => {
            let months = MonthMove { from: curmonth, to: this_month };
            DrainingOldMonth::begin(session, months, cx)
        }
        None => Ready::begin(session, curmonth, cx),
    }
}
