//! What all phases after hello share: the table of what they do alike.

use std::collections::{BTreeSet, VecDeque};

use super::StepContext;
use super::broadcast_subscriptions::BroadcastSubscriptions;
use super::closed::Closed;
use super::effect::{CloseReason, Effect, PushAnswer};
use super::event::Event;
use super::pending_deletes::PendingDeletes;
use super::pending_ops::PendingOps;
use super::phase::Phase;
use super::storage_scan::StorageScan;
use super::unacked_window::{Origin, UnackedWindow};
use crate::ids::{Chid, PushId, Uaid};
use crate::message::{Message, MessageKey, Urgency};
use crate::month::Month;
use crate::record::NodeBinding;
use crate::store::StoreOp;
use crate::time::Time;
use crate::wire::{AckUpdate, ClientMessage, InvalidFrame, ServerMessage, status};

/// A user agent's session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Session {
    pub(super) uaid: Uaid,
    pub(super) connected_at: Time,
    /// Whether a record was written under this name, or may have been.
    pub(super) has_record: bool,
    pub(super) channels: BTreeSet<Chid>,
    pub(super) window: UnackedWindow,
    pub(super) deletes: PendingDeletes,
    pub(super) scan: StorageScan,
    pub(super) ops: PendingOps,
    /// Commands that wait until the connection is ready and the one before is done.
    pub(super) commands: VecDeque<ClientMessage>,
    /// Less urgent messages wait in storage.
    pub(super) min_urgency: Urgency,
    /// None until it asks for a broadcast.
    pub(super) subscriptions: Option<Box<BroadcastSubscriptions>>,
}

/// What is left for the phase to do after the session did what all phases do.
pub(super) enum SessionOutcome {
    /// Nothing.
    Stay,
    /// The connection ends.
    Close(CloseReason),
    /// A push is here.
    Push(PushId, Message),
}

impl Session {
    pub(super) fn new(uaid: Uaid, connected_at: Time) -> Box<Self> {
        Box::new(Self {
            uaid,
            connected_at,
            has_record: false,
            channels: BTreeSet::new(),
            window: UnackedWindow::default(),
            deletes: PendingDeletes::default(),
            scan: StorageScan::default(),
            ops: PendingOps::default(),
            commands: VecDeque::new(),
            min_urgency: Urgency::VeryLow,
            subscriptions: None,
        })
    }

    /// What is the same in every phase: acks count at once, commands wait their turn.
    pub(super) fn on_event(&mut self, event: Event, cx: &mut StepContext<'_>) -> SessionOutcome {
        match event {
            Event::MessageReceived(message) => return self.said(message, cx),
            Event::InvalidFrame(frame) => return invalid_frame(frame, cx),
            Event::PushArrived { push, message } => return SessionOutcome::Push(push, message),
            Event::SocketClosed => return SessionOutcome::Close(CloseReason::SocketClosed),
            Event::Replaced => return SessionOutcome::Close(CloseReason::Replaced),
            Event::ConnectedElsewhere { connected_at } if self.is_before(connected_at) => {
                return SessionOutcome::Close(CloseReason::Replaced);
            }
            // Told late: the agent came back to this node since.
            Event::ConnectedElsewhere { .. } => {}
            Event::ShutdownBegan => return SessionOutcome::Close(CloseReason::Shutdown),
            Event::MessageStored => self.scan.request(),
            Event::AckReplyLost(message) => self.deletes.delete(message),
            Event::BroadcastsChanged(all) => self.broadcasts_changed(&all, cx),
            // What time brings is done after every event; answers of the store come by another way.
            Event::PeerActive | Event::TimePassed | Event::StoreAnswered { .. } => {}
        }
        SessionOutcome::Stay
    }

    fn said(&mut self, message: ClientMessage, cx: &mut StepContext<'_>) -> SessionOutcome {
        match message {
            ClientMessage::Ack { updates } => {
                updates.into_iter().for_each(|update| self.acked(update, cx));
            }
            ClientMessage::Ping => cx.out.push(Effect::Send(ServerMessage::Pong)),
            ClientMessage::Hello { .. } => return SessionOutcome::Close(CloseReason::SecondHello),
            ClientMessage::Register { .. }
            | ClientMessage::Unregister { .. }
            | ClientMessage::Urgency { .. } => self.defer(message, cx),
            ClientMessage::BroadcastSubscribe { broadcasts } => self.subscribe(broadcasts, cx),
            // A message that was not handled stays unacked and holds nothing back for long.
            ClientMessage::Nack => {}
        }
        SessionOutcome::Stay
    }

    fn acked(&mut self, update: AckUpdate, cx: &mut StepContext<'_>) {
        let remembered_max = cx.config.limits.remembered_acks_max;
        match self.window.acked(update.id) {
            Some((message, origin)) => {
                self.deletes.remember(update.id, remembered_max);
                match origin {
                    Origin::Endpoint(push) => {
                        let answer = PushAnswer::Accepted;
                        cx.out.push(Effect::AnswerPush { push, answer, message });
                    }
                    Origin::Both(push) => {
                        self.deletes.delete(message.clone());
                        let answer = PushAnswer::Accepted;
                        cx.out.push(Effect::AnswerPush { push, answer, message });
                    }
                    Origin::Store => self.deletes.delete(message),
                    Origin::ZeroTtl => {}
                }
            }
            // Sent on an earlier connection: the row may be there, or still be on its way to the store.
            None if !self.deletes.remembers(update.id)
                && self.deletes.backlog() < remembered_max =>
            {
                self.deletes.remember(update.id, remembered_max);
                let AckUpdate { chid, id } = update;
                self.deletes.delete(MessageKey { id, chid, topic: None });
            }
            // Acked before; or more unknown acks than anyone needs to be believed.
            None => {}
        }
    }

    fn defer(&mut self, command: ClientMessage, cx: &mut StepContext<'_>) {
        if self.commands.len() < cx.config.limits.deferred_commands_max {
            self.commands.push_back(command);
            return;
        }
        let status = status::UNAVAILABLE;
        cx.out.push(Effect::Send(match command {
            ClientMessage::Register { chid, .. } => {
                ServerMessage::RegisterRefused { chid, status, reason: "too many commands wait" }
            }
            ClientMessage::Unregister { chid } => ServerMessage::Unregistered { chid, status },
            _ => ServerMessage::UrgencySet { status },
        }));
    }

    /// Sends a message and waits for its ack.
    pub(super) fn send(&mut self, message: Message, origin: Origin, cx: &mut StepContext<'_>) {
        self.window.sent(message.key(), cx.now, origin);
        cx.out.push(Effect::Send(ServerMessage::Notification(message)));
    }

    /// Has the endpoint store a message that cannot be delivered now.
    ///
    /// Its nudge follows the store. Only where something is under way that could swallow
    /// that nudge's sense, a check is wanted here too (seed 002, "Push Characteristics").
    pub(super) fn reject_to_store(
        &mut self,
        push: PushId,
        message: &Message,
        cx: &mut StepContext<'_>,
    ) {
        if self.window.has_unstored() || self.scan.is_active() {
            self.scan.request();
        }
        let message = message.key();
        cx.out.push(Effect::AnswerPush { push, answer: PushAnswer::Busy, message });
    }

    /// Deletes what was acked.
    pub(super) fn flush_acks(&mut self, months: &[Month], cx: &mut StepContext<'_>) {
        self.deletes.flush(self.uaid, months, &mut self.ops, cx.out);
    }

    /// Whether everything sent was acked and every ack is settled.
    pub(super) fn is_settled(&self) -> bool {
        self.window.is_empty() && self.deletes.is_settled()
    }

    /// Hands everything over that this connection held, and closes.
    pub(super) fn close(
        self,
        reason: CloseReason,
        months: &[Month],
        cx: &mut StepContext<'_>,
    ) -> Phase {
        let Self {
            uaid, connected_at, has_record, window, deletes, mut ops, subscriptions, ..
        } = self;
        window.closed(cx.out);
        if !months.is_empty() {
            deletes.closed(uaid, months, &mut ops, cx.out);
        }
        // Who hangs up is found out by the next push: most come back before there is one (seed 002, "Router Table
        // Schema"). A node that shuts down is not there to be asked. Whoever takes the place of this connection has
        // written the record, or is about to. A clear that fails is not repeated: then the dead node's name
        // costs the next push a detour through storage.
        if has_record && reason == CloseReason::Shutdown {
            let place = NodeBinding { node: cx.config.node.clone(), connected_at };
            ops.submit(StoreOp::ClearNode { uaid, binding: place }, cx.out);
        }
        if subscriptions.is_some_and(|subscriptions| subscriptions.is_followed()) {
            cx.out.push(Effect::UnsubscribeBroadcasts);
        }
        cx.out.push(Effect::Deregister { uaid });
        Closed::because(reason, cx)
    }
}

/// Tells the agent what was wrong, where the session can go on.
fn invalid_frame(frame: InvalidFrame, cx: &mut StepContext<'_>) -> SessionOutcome {
    if let Some(reason) = invalid_frame_closes(&frame) {
        return SessionOutcome::Close(reason);
    }
    let (message_type, channel_id, reason) = match frame {
        InvalidFrame::BadField { message_type, channel_id, reason } => {
            (message_type.into(), channel_id, reason)
        }
        InvalidFrame::UnknownType { message_type } => (message_type, None, "unknown messageType"),
        InvalidFrame::NotJson | InvalidFrame::Binary | InvalidFrame::Unreadable => {
            return SessionOutcome::Stay;
        }
    };
    let status = status::INVALID;
    cx.out.push(Effect::Send(ServerMessage::Error { message_type, channel_id, status, reason }));
    SessionOutcome::Stay
}

/// Why a frame ends the connection, if it does.
pub(super) fn invalid_frame_closes(frame: &InvalidFrame) -> Option<CloseReason> {
    match frame {
        InvalidFrame::NotJson => Some(CloseReason::NotJson),
        InvalidFrame::Binary => Some(CloseReason::Binary),
        InvalidFrame::Unreadable => Some(CloseReason::Unreadable),
        InvalidFrame::UnknownType { .. } | InvalidFrame::BadField { .. } => None,
    }
}
