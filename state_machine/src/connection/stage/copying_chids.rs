//! The channels are added to the new month's table.

use super::updating_router::WritingRecord;
use super::{Next, Stage, StageRules};
use crate::connection::StepContext;
use crate::connection::session::Session;
use crate::month::MonthMove;
use crate::store::{StoreAnswer, StoreOp};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::connection) struct CopyingChids {
    pub(super) months: MonthMove,
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
        let (uaid, channels) = (session.uaid, (&session.channels).into());
        session.submit(StoreOp::AddChannels { uaid, month: months.to, channels }, cx);
        Stage::CopyingChids(Self { months, has_leftovers })
    }
}

impl StageRules for CopyingChids {
    fn on_store_answer(
        &mut self,
        session: &mut Session,
        answer: StoreAnswer,
        cx: &mut StepContext<'_>,
    ) -> Next {
        if answer != StoreAnswer::ChannelsAdded {
            return Next::Stay;
        }
        Next::Enter(WritingRecord::begin(session, self.months, self.has_leftovers, cx))
    }
}
