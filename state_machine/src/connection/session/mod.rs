//! What all stages of an open connection share. Each component owns its fields; a stage calls the methods here.

mod broadcast_subscriptions;
mod commands;
mod identity;
mod inbox;
mod pending_deletes;
mod pending_ops;
mod storage_scan;
mod unacked_window;

use std::collections::BTreeSet;

use broadcast_subscriptions::BroadcastSubscriptions;
use commands::Commands;
use identity::Identity;
use inbox::Inbox;
use pending_ops::PendingOps;

use super::effect::{CloseReason, Effect, PushAnswer};
use super::event::Event;
use super::{Limits, StepContext, Wait};
use crate::broadcast::{Broadcasts, Versions};
use crate::ids::{Chid, OpId, PushId, Uaid};
use crate::message::{Message, Urgency};
use crate::month::Month;
use crate::store::{StoreAnswer, StoreFailed, StoreOp};
use crate::time::Time;
use crate::wire::{ClientMessage, InvalidFrame, ServerMessage, status};

/// A user agent's session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Session {
    identity: Identity,
    inbox: Inbox,
    commands: Commands,
    subscriptions: BroadcastSubscriptions,
    ops: PendingOps,
}

/// What is left to the stage after the session has processed an event.
pub(super) enum SessionOutcome {
    Stay,
    Close(CloseReason),
    Push(PushId, Message),
}

impl Session {
    pub(super) fn new(uaid: Uaid, connected_at: Time) -> Self {
        Self {
            identity: Identity::new(uaid, connected_at),
            inbox: Inbox::default(),
            commands: Commands::default(),
            subscriptions: BroadcastSubscriptions::default(),
            ops: PendingOps::default(),
        }
    }

    /// Processes what is the same in every stage: acks count at once, commands wait.
    pub(super) fn on_event(&mut self, event: Event, cx: &mut StepContext<'_>) -> SessionOutcome {
        match event {
            Event::MessageReceived(message) => return self.on_message(message, cx),
            Event::InvalidFrame(frame) => return on_invalid_frame(frame, cx),
            Event::PushArrived { push, message } => return SessionOutcome::Push(push, message),
            Event::SocketClosed => return SessionOutcome::Close(CloseReason::SocketClosed),
            Event::Replaced => return SessionOutcome::Close(CloseReason::Replaced),
            Event::ConnectedElsewhere { connected_at } if self.is_before(connected_at) => {
                return SessionOutcome::Close(CloseReason::Replaced);
            }
            // A late notification: the agent reconnected to this node since.
            Event::ConnectedElsewhere { .. } => {}
            Event::ShutdownBegan => return SessionOutcome::Close(CloseReason::Shutdown),
            Event::MessageStored => self.request_scan(),
            Event::AckReplyLost(message) => self.inbox.delete(message),
            Event::BroadcastsChanged(all) => self.broadcasts_changed(&all, cx),
            // Every step ends with what the time allows; the phase processes the store's answers.
            Event::PeerActive | Event::TimePassed | Event::StoreAnswered { .. } => {}
        }
        SessionOutcome::Stay
    }

    fn on_message(&mut self, message: ClientMessage, cx: &mut StepContext<'_>) -> SessionOutcome {
        match message {
            ClientMessage::Ack { updates } => {
                updates.into_iter().for_each(|update| self.inbox.on_ack(update, cx));
            }
            ClientMessage::Ping => cx.out.push(Effect::Send(ServerMessage::Pong)),
            ClientMessage::Hello { .. } => {
                return SessionOutcome::Close(CloseReason::SecondHello);
            }
            ClientMessage::Register { .. }
            | ClientMessage::Unregister { .. }
            | ClientMessage::Urgency { .. } => self.commands.defer(message, cx),
            ClientMessage::BroadcastSubscribe { broadcasts } => self.subscribe(broadcasts, cx),
            // The message stays unacked, and holds nothing back once `ack_wait` is over.
            ClientMessage::Nack => {}
        }
        SessionOutcome::Stay
    }

    /// Hands all messages and acks over to endpoints and the store.
    pub(super) fn close(self, reason: CloseReason, months: &[Month], cx: &mut StepContext<'_>) {
        let Self { identity, inbox, subscriptions, mut ops, .. } = self;
        let uaid = identity.uaid();
        if let Some(delete) = inbox.close(uaid, months, cx) {
            ops.submit(delete, cx.out);
        }
        // When the agent closes the socket, the next push finds out; most agents reconnect before one arrives
        // (docs/sources.md#router-table-schema). A node that shuts down answers no endpoint. In the other cases a newer
        // connection has written the record or is about to. A clear that fails is not retried: the node's name in the
        // record then costs the next push one failed delivery.
        if reason == CloseReason::Shutdown
            && let Some(clear) = identity.clear_node(cx)
        {
            ops.submit(clear, cx.out);
        }
        subscriptions.close(cx.out);
        cx.out.push(Effect::Deregister { uaid });
    }

    /// Replaces the agent's identity by a new one without a record. Commands that wait are kept.
    pub(super) fn assign_new_uaid(&mut self, cx: &mut StepContext<'_>) {
        let uaid = cx.seed.fresh_uaid;
        cx.out.push(Effect::Deregister { uaid: self.uaid() });
        cx.out.push(Effect::Register { uaid });
        self.identity = Identity::new(uaid, cx.now);
        self.inbox = Inbox::default();
    }
}

/// Operations of the store.
impl Session {
    pub(super) fn submit(&mut self, op: StoreOp, cx: &mut StepContext<'_>) {
        self.ops.submit(op, cx.out);
    }

    /// The answer, if it completes an operation. A failed operation is submitted again later.
    pub(super) fn complete(
        &mut self,
        op: OpId,
        answer: Result<StoreAnswer, StoreFailed>,
        cx: &StepContext<'_>,
    ) -> Option<StoreAnswer> {
        self.ops.complete(op, answer, cx.now, cx.config.limits.store_retry)
    }

    /// Expires acks that are overdue, and submits failed operations again that are due.
    pub(super) fn on_time(&mut self, cx: &mut StepContext<'_>) {
        self.inbox.expire(cx);
        self.ops.resubmit_due(cx.now, cx.out);
    }

    pub(super) fn deadlines(&self, limits: &Limits) -> [Option<(Time, Wait)>; 2] {
        [
            self.inbox.ack_deadline(limits.ack_wait).map(|at| (at, Wait::Ack)),
            self.ops.deadline().map(|at| (at, Wait::Retry)),
        ]
    }

    /// Whether a scan or a delete waits for the store.
    pub(super) fn awaits_store(&self) -> bool {
        self.inbox.awaits_store()
    }
}

/// Messages and their acks.
impl Session {
    pub(super) fn unacked(&self) -> usize {
        self.inbox.unacked()
    }

    pub(super) fn may_send(&self, message: &Message, cx: &StepContext<'_>) -> bool {
        self.inbox.may_send(message, cx)
    }

    /// Sends a pushed message. With a TTL of zero the push is answered at once, otherwise with the ack.
    pub(super) fn deliver(&mut self, push: PushId, message: Message, cx: &mut StepContext<'_>) {
        self.inbox.deliver(push, message, cx);
    }

    /// Makes the endpoint store a message that cannot be delivered now.
    ///
    /// The endpoint's notification follows. Only if an operation under way could have read storage before that message
    /// was in it, another scan is requested here (docs/sources.md#push-characteristics).
    pub(super) fn reject_to_store(
        &mut self,
        push: PushId,
        message: &Message,
        cx: &mut StepContext<'_>,
    ) {
        self.inbox.note_rejection();
        let message = message.key();
        cx.out.push(Effect::AnswerPush { push, answer: PushAnswer::Busy, message });
    }

    pub(super) fn request_scan(&mut self) {
        self.inbox.request_scan();
    }

    pub(super) fn stop_scan(&mut self) {
        self.inbox.stop_scan();
    }

    /// Starts or continues a scan of a month's messages, if there is room for more unacked ones.
    pub(super) fn scan_storage(&mut self, month: Month, cx: &mut StepContext<'_>) {
        if let Some(fetch) = self.inbox.next_fetch(self.identity.uaid(), month, cx) {
            self.ops.submit(fetch, cx.out);
        }
    }

    /// Deletes acked messages in these months.
    pub(super) fn flush_acks(&mut self, months: &[Month], cx: &mut StepContext<'_>) {
        if let Some(delete) = self.inbox.next_delete(self.identity.uaid(), months) {
            self.ops.submit(delete, cx.out);
        }
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.inbox.is_deleting()
    }

    /// Whether storage was scanned to its end, every message acked and every ack settled.
    pub(super) fn is_drained(&self) -> bool {
        self.inbox.is_drained()
    }

    /// Processes the answers to the operations with which messages of `month` are delivered.
    pub(super) fn on_drain_answer(
        &mut self,
        answer: StoreAnswer,
        month: Month,
        cx: &mut StepContext<'_>,
    ) {
        match answer {
            StoreAnswer::Fetched(page) => {
                if let Some(read) = self.inbox.on_page(page, self.identity.uaid(), month, cx) {
                    self.ops.submit(read, cx.out);
                }
            }
            StoreAnswer::Channels(channels) => self.inbox.channels_confirmed(channels),
            StoreAnswer::Deleted => self.inbox.on_deleted(),
            // The stage that submits such an operation processes its answer.
            StoreAnswer::Registered(_)
            | StoreAnswer::ChannelsAdded
            | StoreAnswer::ChannelRemoved
            | StoreAnswer::MonthUpdated(_)
            | StoreAnswer::MoveFinished(_)
            | StoreAnswer::Moved
            | StoreAnswer::NodeCleared(_) => {}
        }
    }
}

/// Access to channels and commands.
impl Session {
    pub(super) fn channels(&self) -> &BTreeSet<Chid> {
        self.inbox.channels()
    }

    pub(super) fn set_channels(&mut self, channels: BTreeSet<Chid>) {
        self.inbox.set_channels(channels);
    }

    pub(super) fn add_channel(&mut self, chid: Chid) {
        self.inbox.add_channel(chid);
    }

    pub(super) fn remove_channel(&mut self, chid: Chid) {
        self.inbox.remove_channel(chid);
    }

    /// Adds channels to a month's table.
    pub(super) fn add_channels(
        &mut self,
        month: Month,
        channels: BTreeSet<Chid>,
        cx: &mut StepContext<'_>,
    ) {
        self.submit(StoreOp::AddChannels { uaid: self.uaid(), month, channels }, cx);
    }

    /// Less urgent messages stay in storage from now on.
    pub(super) fn set_min_urgency(&mut self, min: Urgency) {
        self.inbox.set_min_urgency(min);
    }

    pub(super) fn next_command(&mut self) -> Option<ClientMessage> {
        self.commands.next()
    }

    pub(super) fn put_back_command(&mut self, command: ClientMessage) {
        self.commands.put_back(command);
    }
}

/// Access to the identity and the router record.
impl Session {
    pub(super) fn uaid(&self) -> Uaid {
        self.identity.uaid()
    }

    pub(super) fn is_before(&self, connected_at: Time) -> bool {
        self.identity.is_before(connected_at)
    }

    pub(super) fn is_superseded_by(&self, seen: Time, now: Time) -> bool {
        self.identity.is_superseded_by(seen, now)
    }

    pub(super) fn restamp(&mut self, seen: Time, cx: &StepContext<'_>) {
        self.identity.restamp(seen, cx.now);
    }

    /// Writes the record, and creates it with the month `create_in` if there is none.
    pub(super) fn register(&mut self, create_in: Option<Month>, cx: &mut StepContext<'_>) {
        let register = self.identity.register(create_in, cx);
        self.ops.submit(register, cx.out);
    }
}

/// Subscriptions and updates of broadcasts.
impl Session {
    pub(super) fn subscribe(&mut self, versions: Versions, cx: &StepContext<'_>) {
        self.subscriptions.subscribe(versions, cx.config.limits.broadcasts_per_agent_max);
    }

    /// Notes what changed, for the next message.
    pub(super) fn observe_broadcasts(&mut self, all: &Broadcasts, cx: &mut StepContext<'_>) {
        self.subscriptions.observe(all, cx.out);
    }

    /// Sends what changed, if anything did.
    fn broadcasts_changed(&mut self, all: &Broadcasts, cx: &mut StepContext<'_>) {
        self.observe_broadcasts(all, cx);
        let update = self.subscriptions.take_update();
        if !update.is_empty() {
            cx.out.push(Effect::Send(ServerMessage::Broadcast(update)));
        }
    }

    /// Answers `hello` with the uaid.
    pub(super) fn send_hello(&mut self, cx: &mut StepContext<'_>) {
        let (uaid, broadcasts) = (self.uaid(), self.subscriptions.take_update());
        cx.out.push(Effect::Send(ServerMessage::Hello { uaid, broadcasts }));
    }
}

/// Answers an invalid frame with an error, or closes the connection.
fn on_invalid_frame(frame: InvalidFrame, cx: &mut StepContext<'_>) -> SessionOutcome {
    if let Some(reason) = close_reason_of(&frame) {
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

/// Why an invalid frame ends the connection, if it does.
pub(super) fn close_reason_of(frame: &InvalidFrame) -> Option<CloseReason> {
    match frame {
        InvalidFrame::NotJson => Some(CloseReason::NotJson),
        InvalidFrame::Binary => Some(CloseReason::Binary),
        InvalidFrame::Unreadable => Some(CloseReason::Unreadable),
        InvalidFrame::UnknownType { .. } | InvalidFrame::BadField { .. } => None,
    }
}
