//! The old month is empty: its channels are added to the new month's table.

use super::Cx;
use super::event::Event;
use super::phase::Phase;
use super::session::{Session, Then};
use super::updating_router::UpdatingRouter;
use crate::month::Month;
use crate::store::{StoreAnswer, StoreOrder};

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
        cx: &mut Cx<'_>,
    ) -> Phase {
        let channels = session.channels.clone();
        let order = StoreOrder::AddChannels { uaid: session.uaid, month: to, channels };
        session.orders.give(order, cx.out);
        Phase::CopyingChids(Self { session, from, to, carry })
    }

    pub(super) fn happened(mut self, event: Event, cx: &mut Cx<'_>) -> Phase {
        match self.session.happened(event, cx) {
            Then::Stay => {}
            Then::Push(push, message) => self.session.busy(push, &message, cx),
            Then::Close(reason) => return self.session.close(reason, &[self.from, self.to], cx),
        }
        Phase::CopyingChids(self)
    }

    pub(super) fn answered(mut self, answer: StoreAnswer, cx: &mut Cx<'_>) -> Phase {
        match answer {
            StoreAnswer::ChannelsAdded => {
                UpdatingRouter::enter(self.session, self.from, self.to, self.carry, cx)
            }
            other => {
                self.session.drained(other, self.from, cx);
                Phase::CopyingChids(self)
            }
        }
    }

    pub(super) fn proceed(mut self, cx: &mut Cx<'_>) -> Phase {
        self.session.flush_acks(&[self.from, self.to], cx);
        Phase::CopyingChids(self)
    }
}
