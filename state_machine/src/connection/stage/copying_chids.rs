//! The channels are added to the new month's table.

use super::updating_router::WritingRecord;
use super::{MonthMove, Next, Stage, StageRules};
use crate::connection::StepContext;
use crate::connection::phase::PhaseName;
use crate::connection::session::Session;
use crate::month::Month;
use crate::store::StoreAnswer;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::connection) struct CopyingChids {
    months: MonthMove,
    /// Whether messages are left that must be moved.
    has_leftovers: bool,
}

impl CopyingChids {
    pub(super) fn begin(
        session: &mut Session,
        months: MonthMove,
        has_leftovers: bool,
        cx: &mut StepContext<'_>,
    ) -> Stage {
        session.add_channels(months.to, session.channels().clone(), cx);
        Stage::CopyingChids(Self { months, has_leftovers })
    }
}

impl StageRules for CopyingChids {
    fn name(&self) -> PhaseName {
        PhaseName::CopyingChids
    }

    fn months(&self) -> Vec<Month> {
        self.months.both().into()
    }

    fn on_store_answer(
        &mut self,
        session: &mut Session,
        answer: StoreAnswer,
        cx: &mut StepContext<'_>,
    ) -> Next {
        if answer == StoreAnswer::ChannelsAdded {
            return Next::Enter(WritingRecord::begin(session, self.months, self.has_leftovers, cx));
        }
        session.on_drain_answer(answer, self.months.from, cx);
        Next::Stay
    }

    fn advance(&mut self, session: &mut Session, cx: &mut StepContext<'_>) -> Next {
        session.flush_acks(&self.months.both(), cx);
        Next::Stay
    }
}
