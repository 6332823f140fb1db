//! Commands and pushes are served.

use super::effect::{CloseReason, Effect, PushAnswer};
use super::event::Event;
use super::phase::Phase;
use super::session::{Session, SessionOutcome};
use super::unacked_window::Origin;
use super::{StepContext, Wait};
use crate::ids::{Chid, PushId};
use crate::message::{Message, Urgency};
use crate::month::Month;
use crate::store::{RegisterResult, StoreAnswer, StoreOp};
use crate::time::{Span, Time};
use crate::wire::{ClientMessage, ServerMessage, VapidKey, status};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Ready {
    pub(super) session: Box<Session>,
    /// The month its messages are stored in; none while the agent has no record, and so nothing stored.
    month: Option<Month>,
    /// When to look into storage unasked.
    recheck_at: Option<Time>,
    /// The command under way: one at a time, so that they take effect in the order they were given.
    command: Option<Command>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Command {
    /// The record of a new agent is being written, for the sake of the command that comes next.
    Saving,
    Registering {
        chid: Chid,
        key: Option<VapidKey>,
    },
    Unregistering {
        chid: Chid,
    },
}

impl Ready {
    pub(super) fn enter(
        mut session: Box<Session>,
        month: Month,
        cx: &mut StepContext<'_>,
    ) -> Phase {
        session.scan.request();
        let phase = Self { session, month: Some(month), recheck_at: None, command: None };
        Phase::Ready(phase.recheck_later(cx))
    }

    /// An agent without a record: it gets one with its first channel.
    pub(super) fn enter_without_record(session: Box<Session>, _: &mut StepContext<'_>) -> Phase {
        Phase::Ready(Self { session, month: None, recheck_at: None, command: None })
    }

    pub(super) fn on_event(mut self, event: Event, cx: &mut StepContext<'_>) -> Phase {
        match self.session.on_event(event, cx) {
            SessionOutcome::Stay => {}
            SessionOutcome::Push(push, message) => self.push_arrived(push, message, cx),
            SessionOutcome::Close(reason) => return self.close(reason, cx),
        }
        Phase::Ready(self)
    }

    pub(super) fn on_store_answer(
        mut self,
        answer: StoreAnswer,
        cx: &mut StepContext<'_>,
    ) -> Phase {
        match (answer, self.command.take()) {
            (StoreAnswer::Registered(outcome), _) => return self.saved(outcome, cx),
            (StoreAnswer::ChannelsAdded, Some(Command::Registering { chid, key })) => {
                self.session.channels.insert(chid);
                self.send_registered(chid, key, cx);
            }
            (StoreAnswer::ChannelRemoved, Some(Command::Unregistering { chid })) => {
                self.session.channels.remove(&chid);
                self.unregistered(chid, cx);
            }
            (other, command) => {
                self.command = command;
                if let Some(month) = self.month {
                    self.session.on_drain_answer(other, month, cx);
                }
            }
        }
        Phase::Ready(self)
    }

    pub(super) fn advance(mut self, cx: &mut StepContext<'_>) -> Phase {
        if self.recheck_at.is_some_and(|at| at <= cx.now) {
            self.session.scan.request();
            self = self.recheck_later(cx);
        }
        while self.command.is_none()
            && let Some(command) = self.session.commands.pop_front()
        {
            self.begin(command, cx);
        }
        if let Some(month) = self.month {
            self.session.flush_acks(&[month], cx);
            self.session.scan_storage(month, cx);
        }
        Phase::Ready(self)
    }

    pub(super) fn deadline(&self) -> Option<(Time, Wait)> {
        self.recheck_at.map(|at| (at, Wait::Recheck))
    }

    pub(super) fn months(&self) -> Vec<Month> {
        self.month.into_iter().collect()
    }

    fn recheck_later(self, cx: &StepContext<'_>) -> Self {
        let wait = cx.seed.with_jitter(cx.config.limits.storage_recheck);
        Self { recheck_at: Some(cx.now + wait), ..self }
    }

    fn push_arrived(&mut self, push: PushId, message: Message, cx: &mut StepContext<'_>) {
        if !self.session.channels.contains(&message.chid) {
            let (answer, message) = (PushAnswer::NoSuchChannel, message.key());
            cx.out.push(Effect::AnswerPush { push, answer, message });
        } else if !self.session.may_send(&message, cx) {
            self.session.reject_to_store(push, &message, cx);
        } else if message.ttl_is_zero() {
            let reference = message.key();
            self.session.send(message, Origin::ZeroTtl, cx);
            let answer = PushAnswer::Accepted;
            cx.out.push(Effect::AnswerPush { push, answer, message: reference });
        } else {
            self.session.send(message, Origin::Endpoint(push), cx);
        }
    }

    fn begin(&mut self, command: ClientMessage, cx: &mut StepContext<'_>) {
        match command {
            ClientMessage::Register { chid, key } => self.register(chid, key, cx),
            ClientMessage::Unregister { chid } => self.unregister(chid, cx),
            ClientMessage::Urgency { min } => self.want_urgency(min, cx),
            // Only commands are deferred; these were done when they were said.
            ClientMessage::Hello { .. }
            | ClientMessage::Ack { .. }
            | ClientMessage::Nack
            | ClientMessage::BroadcastSubscribe { .. }
            | ClientMessage::Ping => {}
        }
    }

    fn register(&mut self, chid: Chid, key: Option<VapidKey>, cx: &mut StepContext<'_>) {
        if self.session.channels.contains(&chid) {
            return self.send_registered(chid, key, cx);
        }
        if self.session.channels.len() >= cx.config.limits.channels_max {
            let (status, reason) = (status::TOO_MANY, "too many channels");
            let refused = ServerMessage::RegisterRefused { chid, status, reason };
            return cx.out.push(Effect::Send(refused));
        }
        let Some(month) = self.month else {
            self.session.commands.push_front(ClientMessage::Register { chid, key });
            self.command = Some(Command::Saving);
            return self.session.register(Some(cx.config.message_month(cx.now)), cx);
        };
        let (uaid, channels) = (self.session.uaid, [chid].into());
        self.session.ops.submit(StoreOp::AddChannels { uaid, month, channels }, cx.out);
        self.command = Some(Command::Registering { chid, key });
    }

    fn unregister(&mut self, chid: Chid, cx: &mut StepContext<'_>) {
        let Some(month) = self.month.filter(|_| self.session.channels.contains(&chid)) else {
            return self.unregistered(chid, cx);
        };
        let (uaid, months) = (self.session.uaid, vec![month]);
        self.session.ops.submit(StoreOp::RemoveChannel { uaid, months, chid }, cx.out);
        self.command = Some(Command::Unregistering { chid });
    }

    /// A lower bar lets messages through that were held back so far.
    fn want_urgency(&mut self, min: Urgency, cx: &mut StepContext<'_>) {
        if min < self.session.min_urgency {
            self.session.scan.request();
        }
        self.session.min_urgency = min;
        cx.out.push(Effect::Send(ServerMessage::UrgencySet { status: status::OK }));
    }

    fn saved(mut self, outcome: RegisterResult, cx: &mut StepContext<'_>) -> Phase {
        match outcome {
            RegisterResult::Registered(record, before) => {
                self.session.notify_previous_node(before, cx);
                self.month = Some(record.curmonth);
                Phase::Ready(self.recheck_later(cx))
            }
            RegisterResult::Superseded(seen) if self.session.is_superseded_by(seen, cx.now) => {
                self.close(CloseReason::Replaced, cx)
            }
            // Our own write, whose answer was lost.
            RegisterResult::Superseded(seen) => {
                self.session.connected_at = cx.now.max(seen + Span(1));
                self.command = Some(Command::Saving);
                self.session.register(Some(cx.config.message_month(cx.now)), cx);
                Phase::Ready(self)
            }
            // The order was to make a record: a store that knows none afterwards is not to be believed.
            RegisterResult::UnknownAgent => self.close(CloseReason::Replaced, cx),
        }
    }

    fn send_registered(&self, chid: Chid, key: Option<VapidKey>, cx: &mut StepContext<'_>) {
        let uaid = self.session.uaid;
        cx.out.push(Effect::Send(ServerMessage::Registered { uaid, chid, key }));
    }

    fn unregistered(&self, chid: Chid, cx: &mut StepContext<'_>) {
        let status = status::OK;
        cx.out.push(Effect::Send(ServerMessage::Unregistered { chid, status }));
    }

    fn close(self, reason: CloseReason, cx: &mut StepContext<'_>) -> Phase {
        let months = self.months();
        self.session.close(reason, &months, cx)
    }
}

impl Session {
    /// Whether a push may go out now: nothing before it waits for an ack, nothing older of its topic
    /// can still come out of storage, and none was sent twice.
    fn may_send(&self, message: &Message, cx: &StepContext<'_>) -> bool {
        let overtakes = self.scan.is_fetching() && message.topic.is_none();
        let is_next = self.window.is_empty() && !self.scan.is_active();
        (overtakes || is_next)
            && message.urgency >= self.min_urgency
            && self.window.len() + self.scan.rows_pending() < cx.config.limits.unacked_max
            && self.deletes.backlog() < cx.config.limits.remembered_acks_max
            && !self.window.contains(message.id)
            && !self.deletes.remembers(message.id)
    }
}
