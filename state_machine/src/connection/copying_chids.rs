//! The old month is empty: its channels are added to the new month's table.

use super::StepContext;
use super::event::Event;
use super::phase::Phase;
use super::session::{Session, SessionOutcome};
use super::updating_router::UpdatingRouter;
use crate::month::Month;
use crate::store::{StoreAnswer, StoreOp};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct CopyingChids {
    pub(super) session: Box<Session>,
    pub(super) from: Month,
    to: Month,
    /// Whether messages are left that must be carried over.
    carry: bool,
}

impl CopyingChids {
    pub(super) fn enter(
        mut session: Box<Session>,
        from: Month,
        to: Month,
        carry: bool,
        cx: &mut StepContext<'_>,
    ) -> Phase {
        let channels = session.channels.clone();
        let order = StoreOp::AddChannels { uaid: session.uaid, month: to, channels };
        session.ops.submit(order, cx.out);
        Phase::CopyingChids(Self { session, from, to, carry })
    }

    pub(super) fn on_event(mut self, event: Event, cx: &mut StepContext<'_>) -> Phase {
        match self.session.on_event(event, cx) {
            SessionOutcome::Stay => {}
            SessionOutcome::Push(push, message) => self.session.reject_to_store(push, &message, cx),
            SessionOutcome::Close(reason) => {
                return self.session.close(reason, &[self.from, self.to], cx);
            }
        }
        Phase::CopyingChids(self)
    }

    pub(super) fn on_store_answer(
        mut self,
        answer: StoreAnswer,
        cx: &mut StepContext<'_>,
    ) -> Phase {
        match answer {
            StoreAnswer::ChannelsAdded => {
                UpdatingRouter::enter(self.session, self.from, self.to, self.carry, cx)
            }
            other => {
                self.session.on_drain_answer(other, self.from, cx);
                Phase::CopyingChids(self)
            }
        }
    }

    pub(super) fn advance(mut self, cx: &mut StepContext<'_>) -> Phase {
        self.session.flush_acks(&[self.from, self.to], cx);
        Phase::CopyingChids(self)
    }
}
