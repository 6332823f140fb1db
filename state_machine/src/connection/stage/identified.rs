//! A known agent: its record is written, then its channels are read.

use std::collections::BTreeSet;

use super::rules::{Next, StageRules};
use crate::connection::effect::CloseReason;
use crate::connection::event::Event;
use crate::connection::session::{Session, SessionOutcome};
use crate::connection::step::StepContext;
use crate::ids::Chid;
use crate::month::Month;
use crate::record::{NodeBinding, RouterRecord};
use crate::store::{RegisterResult, StoreAnswer, StoreOp};
use crate::time::Time;

/// Registration first, then the channels: so what an older connection still wrote is read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::connection) struct Identified {
    /// Registrations refused because the record was newer.
    refusals: u8,
    /// `curmonth` and `oldmonth` of the record; none while the registration is under way.
    months: Option<(Month, Option<Month>)>,
    /// The latest connection on another node that this node was notified of during the registration.
    elsewhere: Option<Time>,
}

/// Refused registrations after which the other connection counts as the newer one.
const REFUSALS_MAX: u8 = 5;

impl Identified {
    /// Registers an agent that has a uaid.
    pub(super) fn begin(session: &mut Session, cx: &mut StepContext<'_>) -> Self {
        session.register(None, cx);
        Self { refusals: 0, months: None, elsewhere: None }
    }

    fn registered(
        &mut self,
        session: &mut Session,
        record: &RouterRecord,
        before: Option<NodeBinding>,
        cx: &mut StepContext<'_>,
    ) -> Next {
        session.notify_previous_node(before, cx);
        if self.elsewhere.is_some_and(|elsewhere| session.is_before(elsewhere)) {
            return Next::Close(CloseReason::Replaced);
        }
        let RouterRecord { uaid, curmonth, oldmonth, .. } = *record;
        session.submit(StoreOp::ReadChannels { uaid, month: curmonth }, cx);
        self.months = Some((curmonth, oldmonth));
        Next::Stay
    }

    /// The record has a `connected_at` that is not less. A clock that is behind, or a reconnect in
    /// the same millisecond, is no reason to close: the registration is repeated with a greater
    /// `connected_at`.
    fn superseded(&mut self, session: &mut Session, seen: Time, cx: &mut StepContext<'_>) -> Next {
        self.refusals += 1;
        if self.refusals >= REFUSALS_MAX || session.is_superseded_by(seen, cx.now) {
            return Next::Close(CloseReason::Replaced);
        }
        session.advance_connected_at(seen, cx);
        session.register(None, cx);
        Next::Stay
    }

    fn channels_read(
        &mut self,
        session: &mut Session,
        channels: Option<BTreeSet<Chid>>,
        cx: &mut StepContext<'_>,
    ) -> Next {
        match (self.months, channels) {
            (Some((curmonth, oldmonth)), Some(channels)) => {
                session.channels = channels.into();
                session.send_hello(cx);
                Next::Month(curmonth, oldmonth)
            }
            _ => assign_new_uaid(session, cx),
        }
    }
}

impl StageRules for Identified {
    fn on_event(&mut self, session: &mut Session, event: Event, cx: &mut StepContext<'_>) -> Next {
        match event {
            // No message may precede the answer to hello, which will contain the broadcasts.
            Event::BroadcastsChanged(all) => session.observe_broadcasts(&all, cx),
            // Which of the two connections is the later one is known when the store has answered the registration.
            Event::ConnectedElsewhere { connected_at } if self.months.is_none() => {
                self.elsewhere = self.elsewhere.max(Some(connected_at));
            }
            event => match session.on_event(event, cx) {
                SessionOutcome::Stay => {}
                SessionOutcome::Push(push, message) => self.on_push(session, push, message, cx),
                SessionOutcome::Close(reason) => return Next::Close(reason),
            },
        }
        Next::Stay
    }

    fn on_store_answer(
        &mut self,
        session: &mut Session,
        answer: StoreAnswer,
        cx: &mut StepContext<'_>,
    ) -> Next {
        match answer {
            StoreAnswer::Registered(RegisterResult::Registered(record, before)) => {
                self.registered(session, &record, before, cx)
            }
            StoreAnswer::Registered(RegisterResult::UnknownAgent) => assign_new_uaid(session, cx),
            StoreAnswer::Registered(RegisterResult::Superseded(seen)) => {
                self.superseded(session, seen, cx)
            }
            StoreAnswer::Channels(channels) => self.channels_read(session, channels, cx),
            // This stage submits no other operation, and no command, the only one that has no space.
            StoreAnswer::Fetched(_)
            | StoreAnswer::Deleted(_)
            | StoreAnswer::OffersRecorded
            | StoreAnswer::ChannelsAdded
            | StoreAnswer::ChannelRemoved
            | StoreAnswer::MonthUpdated(_)
            | StoreAnswer::MoveFinished(_)
            | StoreAnswer::Moved
            | StoreAnswer::NodeCleared(_)
            | StoreAnswer::OverLimit
            | StoreAnswer::NoSpace => Next::Stay,
        }
    }
}

/// The agent is unknown, or its channels were dropped with their table: with a new uaid it subscribes again.
fn assign_new_uaid(session: &mut Session, cx: &mut StepContext<'_>) -> Next {
    session.assign_new_uaid(cx);
    Next::NoRecord
}
