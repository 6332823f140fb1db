//! Commands and pushes are served.

use super::rules::{Next, StageRules};
use crate::connection::effect::{CloseReason, PushAnswer};
use crate::connection::session::{Session, refuse_for_space};
use crate::connection::step::{StepContext, Wait};
use crate::ids::{Chid, PushId};
use crate::message::{Message, Urgency};
use crate::month::Month;
use crate::store::{RegisterResult, StoreAnswer, StoreOp};
use crate::time::Time;
use crate::wire::{ClientMessage, ServerMessage, VapidKey, status};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::connection) struct Ready {
    /// The month in which messages are stored; none while the agent has no record, and so no stored message.
    pub(super) month: Option<Month>,
    /// The command under way: one at a time, so that they take effect in the order of their arrival.
    command: Option<Command>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Command {
    /// The record of a new agent is written first, for the command that waits.
    CreatingRecord,
    Registering {
        chid: Chid,
        key: Option<VapidKey>,
    },
    Unregistering {
        chid: Chid,
    },
}

impl Ready {
    pub(super) fn begin(session: &mut Session, month: Month, cx: &StepContext<'_>) -> Self {
        session.request_scan();
        session.schedule_recheck(cx);
        Self { month: Some(month), command: None }
    }

    /// Answers the hello of a new agent. Its record is written with its first channel.
    pub(super) fn welcome(session: &mut Session, cx: &mut StepContext<'_>) -> Self {
        session.send_hello(cx);
        Self { month: None, command: None }
    }

    fn start(&mut self, session: &mut Session, command: ClientMessage, cx: &mut StepContext<'_>) {
        match command {
            ClientMessage::Register { chid, key } => self.register(session, chid, key, cx),
            ClientMessage::Unregister { chid } => self.unregister(session, chid, cx),
            ClientMessage::Urgency { min } => set_urgency(session, min, cx),
            // Only commands are deferred; the session has processed these.
            ClientMessage::Hello { .. }
            | ClientMessage::Ack { .. }
            | ClientMessage::Nack
            | ClientMessage::BroadcastSubscribe { .. }
            | ClientMessage::Ping => {}
        }
    }

    fn register(
        &mut self,
        session: &mut Session,
        chid: Chid,
        key: Option<VapidKey>,
        cx: &mut StepContext<'_>,
    ) {
        if let Some(reason) = cx.config.refusal_of(key.as_ref()) {
            return send_refused(chid, status::KEY_NOT_ALLOWED, reason, cx);
        }
        if session.channels.contains(chid) {
            return send_registered(session, chid, key, cx);
        }
        if session.channels.len() >= cx.config.limits.channels_max {
            return send_refused(chid, status::TOO_MANY, "too many channels", cx);
        }
        let Some(month) = self.month else {
            session.commands.push_front(ClientMessage::Register { chid, key });
            return self.create_record(session, cx);
        };
        let (uaid, channels) = (session.uaid, [chid].into());
        session.submit_command(StoreOp::AddChannels { uaid, month, channels }, cx);
        self.command = Some(Command::Registering { chid, key });
    }

    fn unregister(&mut self, session: &mut Session, chid: Chid, cx: &mut StepContext<'_>) {
        let Some(month) = self.month.filter(|_| session.channels.contains(chid)) else {
            return send_unregistered(chid, cx);
        };
        session.submit_command(session.removal_of(chid, month), cx);
        self.command = Some(Command::Unregistering { chid });
    }

    fn create_record(&mut self, session: &mut Session, cx: &mut StepContext<'_>) {
        self.command = Some(Command::CreatingRecord);
        session.register(Some(cx.config.message_month(cx.now)), cx);
    }

    fn record_created(
        &mut self,
        session: &mut Session,
        result: RegisterResult,
        cx: &mut StepContext<'_>,
    ) -> Next {
        match result {
            RegisterResult::Registered(record, before) => {
                session.notify_previous_node(before, cx);
                self.month = Some(record.curmonth);
                session.schedule_recheck(cx);
                Next::Stay
            }
            RegisterResult::Superseded(seen) if session.is_superseded_by(seen, cx.now) => {
                Next::Close(CloseReason::Replaced)
            }
            // This connection wrote the record, and the answer was lost.
            RegisterResult::Superseded(seen) => {
                session.advance_connected_at(seen, cx);
                self.create_record(session, cx);
                Next::Stay
            }
            RegisterResult::UnknownAgent => Next::Close(CloseReason::RecordMissing),
        }
    }
}

impl StageRules for Ready {
    fn deadline(&self, session: &Session) -> Option<(Time, Wait)> {
        session.recheck_at.map(|at| (at, Wait::Recheck))
    }

    fn on_push(
        &mut self,
        session: &mut Session,
        push: PushId,
        message: Message,
        cx: &mut StepContext<'_>,
    ) {
        if !session.channels.contains(message.chid) {
            cx.answer(push, PushAnswer::NoSuchChannel, message.key());
        } else if session.may_send(&message, cx) {
            session.deliver(push, message, cx);
        } else {
            session.reject_to_store(push, &message, cx);
        }
    }

    fn on_store_answer(
        &mut self,
        session: &mut Session,
        answer: StoreAnswer,
        cx: &mut StepContext<'_>,
    ) -> Next {
        match (answer, self.command.take()) {
            (StoreAnswer::Registered(result), _) => {
                return self.record_created(session, result, cx);
            }
            (StoreAnswer::ChannelsAdded, Some(Command::Registering { chid, key })) => {
                session.channels.insert(chid);
                send_registered(session, chid, key, cx);
            }
            (StoreAnswer::ChannelRemoved, Some(Command::Unregistering { chid })) => {
                session.remove_channel(chid);
                send_unregistered(chid, cx);
            }
            (StoreAnswer::OverLimit, Some(Command::CreatingRecord)) => {
                if let Some(ClientMessage::Register { chid, .. }) = session.commands.pop_front() {
                    let reason = "too many new user agents of this address, try again later";
                    send_refused(chid, status::OVER_LIMIT, reason, cx);
                }
            }
            (StoreAnswer::OverLimit, Some(Command::Registering { chid, .. })) => {
                let reason = "too many registers, try again later";
                send_refused(chid, status::OVER_LIMIT, reason, cx);
            }
            (StoreAnswer::NoSpace, Some(command)) => refuse(session, command, cx),
            (_, command) => self.command = command,
        }
        Next::Stay
    }

    fn advance(
        &mut self,
        session: &mut Session,
        months: &[Month],
        cx: &mut StepContext<'_>,
    ) -> Next {
        session.recheck_storage(cx);
        while self.command.is_none()
            && let Some(command) = session.commands.pop_front()
        {
            self.start(session, command, cx);
        }
        session.flush_acks(months, cx);
        if let Some(month) = self.month {
            session.scan_storage(month, cx);
        }
        Next::Stay
    }
}

/// Refuses a command that the store has no space for. The command that waits for a new record is still queued.
fn refuse(session: &mut Session, command: Command, cx: &mut StepContext<'_>) {
    let refused = match command {
        Command::Registering { chid, key } => Some(ClientMessage::Register { chid, key }),
        Command::Unregistering { chid } => Some(ClientMessage::Unregister { chid }),
        Command::CreatingRecord => session.commands.pop_front(),
    };
    if let Some(command) = refused {
        refuse_for_space(&command, cx);
    }
}

fn set_urgency(session: &mut Session, min: Urgency, cx: &mut StepContext<'_>) {
    session.set_min_urgency(min, cx);
    cx.send(ServerMessage::UrgencySet { status: status::OK });
}

fn send_registered(session: &Session, chid: Chid, key: Option<VapidKey>, cx: &mut StepContext<'_>) {
    cx.send(ServerMessage::Registered { uaid: session.uaid, chid, key });
}

fn send_refused(chid: Chid, status: u16, reason: &'static str, cx: &mut StepContext<'_>) {
    cx.send(ServerMessage::RegisterRefused { chid, status, reason });
}

fn send_unregistered(chid: Chid, cx: &mut StepContext<'_>) {
    cx.send(ServerMessage::Unregistered { chid, status: status::OK });
}
