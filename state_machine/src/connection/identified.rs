//! The user agent said who it is; its record is written and its channels are read.

use std::collections::BTreeSet;

use super::StepContext;
use super::draining_old_month::DrainingOldMonth;
use super::effect::{CloseReason, Effect};
use super::event::Event;
use super::phase::Phase;
use super::ready::Ready;
use super::session::{Session, SessionOutcome};
use super::updating_router::UpdatingRouter;
use crate::ids::Chid;
use crate::month::Month;
use crate::record::{LastConnect, NodeBinding, RouterRecord, RouterType};
use crate::store::{RegisterResult, Registration, StoreAnswer, StoreOp};
use crate::time::{Span, Time};

/// Registration first, then the channels: what an older connection still wrote is seen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Identified {
    pub(super) session: Box<Session>,
    /// Registrations refused because the record was newer.
    refusals: u8,
    /// The record as registered; none while that is under way.
    record: Option<RouterRecord>,
    /// The latest connection to another node that was told of while registering.
    elsewhere: Option<Time>,
}

/// Refused registrations after which the other connections are believed to be the newer ones.
const REFUSALS_MAX: u8 = 5;

impl Identified {
    /// An agent that says it is known.
    pub(super) fn enter(mut session: Box<Session>, cx: &mut StepContext<'_>) -> Phase {
        session.register(None, cx);
        Phase::Identified(Self { session, refusals: 0, record: None, elsewhere: None })
    }

    /// A new agent. Its record is written when it has something to lose: with its first channel.
    pub(super) fn send_hello_new(mut session: Box<Session>, cx: &mut StepContext<'_>) -> Phase {
        session.send_hello(cx);
        Ready::enter_without_record(session, cx)
    }

    pub(super) fn on_event(mut self, event: Event, cx: &mut StepContext<'_>) -> Phase {
        match event {
            // Nothing may be said before hello is answered: the answer will have it.
            Event::BroadcastsChanged(all) => self.session.observe_broadcasts(&all, cx),
            // Which of the two came later shows when it is known what this one is registered as.
            Event::ConnectedElsewhere { connected_at } if self.record.is_none() => {
                self.elsewhere = self.elsewhere.max(Some(connected_at));
            }
            event => match self.session.on_event(event, cx) {
                SessionOutcome::Stay => {}
                SessionOutcome::Push(push, message) => {
                    self.session.reject_to_store(push, &message, cx)
                }
                SessionOutcome::Close(reason) => return self.session.close(reason, &[], cx),
            },
        }
        Phase::Identified(self)
    }

    pub(super) fn on_store_answer(self, answer: StoreAnswer, cx: &mut StepContext<'_>) -> Phase {
        match answer {
            StoreAnswer::Registered(RegisterResult::Registered(record, before)) => {
                self.registered(record, before, cx)
            }
            StoreAnswer::Registered(RegisterResult::UnknownAgent) => self.assign_new_uaid(cx),
            StoreAnswer::Registered(RegisterResult::Superseded(seen)) => self.refused(seen, cx),
            StoreAnswer::Channels(channels) => self.channels_read(channels, cx),
            // Nothing else was asked for in this phase.
            StoreAnswer::Fetched(_)
            | StoreAnswer::Deleted
            | StoreAnswer::ChannelsAdded
            | StoreAnswer::ChannelRemoved
            | StoreAnswer::MonthUpdated(_)
            | StoreAnswer::MoveFinished(_)
            | StoreAnswer::Moved
            | StoreAnswer::NodeCleared(_) => Phase::Identified(self),
        }
    }

    pub(super) fn advance(self, _: &mut StepContext<'_>) -> Phase {
        Phase::Identified(self)
    }

    fn registered(
        mut self,
        record: RouterRecord,
        before: Option<NodeBinding>,
        cx: &mut StepContext<'_>,
    ) -> Phase {
        self.session.notify_previous_node(before, cx);
        if self.elsewhere.is_some_and(|elsewhere| self.session.is_before(elsewhere)) {
            return self.session.close(CloseReason::Replaced, &[], cx);
        }
        let order = StoreOp::ReadChannels { uaid: record.uaid, month: record.curmonth };
        self.session.ops.submit(order, cx.out);
        Phase::Identified(Self { record: Some(record), ..self })
    }

    /// A clock behind, or a reconnect in the same millisecond, is no reason to be refused.
    fn refused(mut self, seen: Time, cx: &mut StepContext<'_>) -> Phase {
        self.refusals += 1;
        if self.refusals >= REFUSALS_MAX || self.session.is_superseded_by(seen, cx.now) {
            return self.session.close(CloseReason::Replaced, &[], cx);
        }
        self.session.connected_at = cx.now.max(seen + Span(1));
        self.session.register(None, cx);
        Phase::Identified(self)
    }

    fn channels_read(self, channels: Option<BTreeSet<Chid>>, cx: &mut StepContext<'_>) -> Phase {
        match (self.record, channels) {
            (Some(record), Some(channels)) => {
                let mut session = self.session;
                session.channels = channels;
                session.send_hello(cx);
                enter_month(session, record.curmonth, record.oldmonth, cx)
            }
            (record, _) => Self { record, ..self }.assign_new_uaid(cx),
        }
    }

    /// Unknown, or its channels are gone with their table: with a new uaid the agent subscribes again.
    fn assign_new_uaid(self, cx: &mut StepContext<'_>) -> Phase {
        let uaid = cx.seed.fresh_uaid;
        cx.out.push(Effect::Deregister { uaid: self.session.uaid });
        cx.out.push(Effect::Register { uaid });
        let Session { commands, ops, subscriptions, .. } = *self.session;
        let session = Session { commands, ops, subscriptions, ..*Session::new(uaid, cx.now) };
        Self::send_hello_new(Box::new(session), cx)
    }
}

/// Where an agent goes whose record says `curmonth`: an unfinished move first, then the move to
/// this month, then on. A record never moves back.
pub(super) fn enter_month(
    session: Box<Session>,
    curmonth: Month,
    oldmonth: Option<Month>,
    cx: &mut StepContext<'_>,
) -> Phase {
    let this_month = cx.config.message_month(cx.now);
    match oldmonth {
        Some(oldmonth) => UpdatingRouter::resume(session, oldmonth, curmonth, cx),
        None if curmonth < this_month => DrainingOldMonth::enter(session, curmonth, this_month, cx),
        None => Ready::enter(session, curmonth, cx),
    }
}

impl Session {
    /// Whether the record is of a connection that came after this one, so that this one must not
    /// take it back: it was stamped after our hello and before now.
    ///
    /// A stamp that is ours is our own write, whose answer was lost. One that lies ahead is of a
    /// faster clock, and tells nothing; a session that gave way for it would never get in.
    pub(super) fn is_superseded_by(&self, seen: Time, now: Time) -> bool {
        self.connected_at < seen && seen <= now
    }

    /// Whether a connection that is registered with this stamp came after this one.
    ///
    /// In the record stamps only grow. So of two that were both written the greater is the later, however far the
    /// clocks of their nodes are apart.
    pub(super) fn is_before(&self, connected_at: Time) -> bool {
        self.connected_at < connected_at
    }

    /// Has the node told where the agent was before. On this node the registry has told the older
    /// connection already.
    ///
    /// Where the answer to the first attempt to register was lost, the second finds this node: nobody tells
    /// the other then, and the connection there ends when it finds its agent silent.
    pub(super) fn notify_previous_node(
        &self,
        before: Option<NodeBinding>,
        cx: &mut StepContext<'_>,
    ) {
        if let Some(NodeBinding { node, .. }) =
            before.filter(|before| before.node != cx.config.node)
        {
            let Self { uaid, connected_at, .. } = *self;
            cx.out.push(Effect::NotifyPreviousNode { node, uaid, connected_at });
        }
    }

    /// Writes the record, and makes it in `create_in` where there is none.
    pub(super) fn register(&mut self, create_in: Option<Month>, cx: &mut StepContext<'_>) {
        self.has_record = true;
        let registration = Registration {
            uaid: self.uaid,
            router_type: RouterType::WebPush,
            node: cx.config.node.clone(),
            connected_at: self.connected_at,
            last_connect: LastConnect::of(cx.now, self.uaid, cx.config.limits.last_connect_shards),
            create_in,
        };
        self.ops.submit(StoreOp::Register(registration), cx.out);
    }
}
