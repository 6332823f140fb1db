//! What all stages of an open connection share: the agent's identity, messages, commands and store operations.

mod broadcast_subscriptions;
mod channels;
mod commands;
mod first_page;
mod identity;
mod inbox;
mod pending_deletes;
mod pending_ops;
mod storage_scan;
mod unacked_window;

use broadcast_subscriptions::BroadcastSubscriptions;
use channels::Channels;
use commands::Commands;
use first_page::FirstPage;
use pending_deletes::PendingDeletes;
use pending_ops::PendingOps;
use storage_scan::StorageScan;
pub(super) use unacked_window::UnackedWindow;

use super::config::Limits;
use super::effect::{CloseReason, Effect};
use super::event::Event;
use super::step::{StepContext, Wait};
use crate::broadcast::{Broadcasts, Versions};
use crate::ids::{OpId, PushId, Uaid};
use crate::message::{Message, Urgency};
use crate::month::Month;
use crate::store::{StoreAnswer, StoreFailed, StoreOp};
use crate::time::Time;
use crate::wire::{ClientMessage, InvalidFrame, ServerMessage, status};

/// A user agent's session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Session {
    pub(super) uaid: Uaid,
    /// The `connected_at` of this connection in the record.
    connected_at: Time,
    /// Whether a record was written with this uaid, or may have been.
    has_record: bool,
    is_simplepush: bool,
    pub(super) channels: Channels,
    /// Less urgent messages stay in storage.
    min_urgency: Urgency,
    pub(super) window: UnackedWindow,
    deletes: PendingDeletes,
    scan: StorageScan,
    first_page: FirstPage,
    /// None while it would be empty.
    pauses: Option<Box<Pauses>>,
    /// When to scan storage without a notification, once the connection is ready.
    pub(super) recheck_at: Option<Time>,
    /// Commands that wait until the connection is ready and the command before is done: at most
    /// `deferred_commands_max`.
    pub(super) commands: Commands,
    subscriptions: BroadcastSubscriptions,
    /// When the last ping was answered.
    pong_sent_at: Option<Time>,
    ops: PendingOps,
}

/// What delays scans of the storage. Most sessions have none of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Pauses {
    /// Before this time no further scan starts.
    next_scan_at: Option<Time>,
    /// Before this time no further scan starts because of a lower minimal urgency.
    next_release_at: Option<Time>,
    /// When to scan again after `recheck_at`, because an endpoint was answered to store a message since.
    recheck_again_at: Option<Time>,
    /// How many rows the scan has read that are overdue, or less urgent than the agent wants.
    rows_left: usize,
}

/// What is left to the stage after the session has processed an event.
pub(super) enum SessionOutcome {
    Stay,
    Close(CloseReason),
    Push(PushId, Message),
}

impl Session {
    /// A session without channels and without a record, which accepts every urgency.
    pub(super) fn new(uaid: Uaid, connected_at: Time, is_simplepush: bool) -> Self {
        Self {
            uaid,
            connected_at,
            has_record: false,
            is_simplepush,
            channels: Channels::default(),
            min_urgency: Urgency::VeryLow,
            window: UnackedWindow::default(),
            deletes: PendingDeletes::default(),
            scan: StorageScan::default(),
            first_page: FirstPage::default(),
            pauses: None,
            recheck_at: None,
            commands: Commands::default(),
            subscriptions: BroadcastSubscriptions::default(),
            pong_sent_at: None,
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
            Event::AccessEnded => return SessionOutcome::Close(CloseReason::AccessEnded),
            Event::ShutdownBegan => return SessionOutcome::Close(CloseReason::Shutdown),
            Event::MessageStored => self.request_scan(),
            Event::AckReplyLost(message) => self.deletes.delete(message),
            Event::BroadcastsChanged(all) => self.broadcasts_changed(&all, cx),
            // Every step ends with what the time allows; the phase processes the store's answers. A hello was admitted
            // before the session began.
            Event::PeerActive
            | Event::TimePassed
            | Event::StoreAnswered { .. }
            | Event::HelloOverLimit(_) => {}
        }
        SessionOutcome::Stay
    }

    fn on_message(&mut self, message: ClientMessage, cx: &mut StepContext<'_>) -> SessionOutcome {
        match message {
            ClientMessage::Ack { updates } => {
                updates.into_iter().for_each(|update| self.on_ack(update, cx));
            }
            ClientMessage::Ping => self.on_ping(cx),
            ClientMessage::Hello { .. } => {
                return SessionOutcome::Close(CloseReason::SecondHello);
            }
            ClientMessage::Register { .. }
            | ClientMessage::Unregister { .. }
            | ClientMessage::Urgency { .. } => self.defer(message, cx),
            ClientMessage::BroadcastSubscribe { broadcasts } => self.subscribe(broadcasts, cx),
            // The message stays unacked, and holds nothing back once `ack_wait` is over.
            ClientMessage::Nack => {}
        }
        SessionOutcome::Stay
    }

    /// Answers a ping, unless the last answer is less than `ping_floor` old. After a clock that was set back, it is
    /// answered.
    fn on_ping(&mut self, cx: &mut StepContext<'_>) {
        let floor = cx.config.limits.ping_floor;
        if self.pong_sent_at.is_none_or(|sent| cx.now < sent || sent + floor <= cx.now) {
            self.pong_sent_at = Some(cx.now);
            cx.send(ServerMessage::Pong);
        }
    }

    /// Queues a command, or refuses it with 503 if too many wait.
    fn defer(&mut self, command: ClientMessage, cx: &mut StepContext<'_>) {
        if self.commands.len() < cx.config.limits.deferred_commands_max {
            self.commands.push_back(command);
            return;
        }
        refuse(&command, "too many commands wait", cx);
    }

    /// Refuses the commands that wait, if a write waits for space.
    pub(super) fn refuse_commands_without_space(&mut self, cx: &mut StepContext<'_>) {
        if self.ops.lack_space() {
            while let Some(command) = self.commands.pop_front() {
                refuse_for_space(&command, cx);
            }
        }
    }

    /// Hands all messages and acks over to endpoints and the store.
    pub(super) fn close(mut self, reason: CloseReason, months: &[Month], cx: &mut StepContext<'_>) {
        self.window.close(cx.out);
        self.record_offers(months, cx);
        // The last delete does not wait for the one under way: the connection processes no answer any more.
        self.deletes.on_deleted();
        self.flush_acks(months, cx);
        // When the agent closes the socket, the next push finds out; most agents reconnect before one arrives
        // (docs/sources.md#router-table-schema). A node that shuts down answers no endpoint. In the other cases a newer
        // connection has written the record or is about to. A clear that fails is not retried: the node's name in the
        // record then costs the next push one failed delivery.
        if reason == CloseReason::Shutdown && self.has_record {
            self.clear_node(cx);
        }
        self.subscriptions.close(cx.out);
        cx.out.push(Effect::Deregister { uaid: self.uaid });
    }

    pub(super) fn submit(&mut self, op: StoreOp, cx: &mut StepContext<'_>) {
        self.ops.submit(op, false, cx.out);
    }

    /// Submits the operation of a command. If the store has no space for it, it is answered and not submitted again.
    pub(super) fn submit_command(&mut self, op: StoreOp, cx: &mut StepContext<'_>) {
        self.ops.submit(op, true, cx.out);
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

    /// Expires acks that are overdue, and submits failed operations again that are due. A wait for the next scan also
    /// ends if the clock was set back.
    pub(super) fn on_time(&mut self, months: &[Month], cx: &mut StepContext<'_>) {
        self.expire_acks(months, cx);
        let longest = cx.now + cx.config.limits.ack_wait;
        self.change_pauses(|pauses| {
            pauses.next_scan_at = pauses.next_scan_at.filter(|at| cx.now < *at && *at <= longest);
        });
        self.first_page.on_time(cx.now);
        self.ops.resubmit_due(cx.now, cx.out);
    }

    fn pauses(&self) -> Pauses {
        self.pauses.as_deref().copied().unwrap_or_default()
    }

    fn change_pauses(&mut self, change: impl FnOnce(&mut Pauses)) {
        let mut pauses = self.pauses();
        change(&mut pauses);
        if pauses != self.pauses() {
            self.pauses = (pauses != Pauses::default()).then(|| Box::new(pauses));
        }
    }

    pub(super) fn deadlines(&self, limits: &Limits) -> [Option<(Time, Wait)>; 5] {
        let [ack, expiry] = self.window.deadlines(limits.ack_wait);
        let scan = self.pauses().next_scan_at.map(|at| (at, Wait::Scan));
        let page = self.first_page.next_at().map(|at| (at, Wait::Page));
        [scan, page, ack, expiry, self.ops.deadline().map(|at| (at, Wait::Retry))]
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
            cx.send(ServerMessage::Broadcast(update));
        }
    }

    /// Answers `hello` with the uaid.
    pub(super) fn send_hello(&mut self, cx: &mut StepContext<'_>) {
        let uaid = self.uaid;
        cx.send(if self.is_simplepush {
            ServerMessage::SimplePushHello { uaid }
        } else {
            ServerMessage::Hello { uaid, broadcasts: self.subscriptions.take_update() }
        });
    }
}

/// Refuses a command that the store has no space for.
pub(super) fn refuse_for_space(command: &ClientMessage, cx: &mut StepContext<'_>) {
    refuse(command, "the server has no space", cx);
}

/// Answers a command with 503.
fn refuse(command: &ClientMessage, reason: &'static str, cx: &mut StepContext<'_>) {
    let status = status::UNAVAILABLE;
    cx.send(match *command {
        ClientMessage::Register { chid, .. } => {
            ServerMessage::RegisterRefused { chid, status, reason }
        }
        ClientMessage::Unregister { chid } => ServerMessage::Unregistered { chid, status },
        ClientMessage::Urgency { .. }
        | ClientMessage::Hello { .. }
        | ClientMessage::Ack { .. }
        | ClientMessage::Nack
        | ClientMessage::BroadcastSubscribe { .. }
        | ClientMessage::Ping => ServerMessage::UrgencySet { status },
    });
}

/// Answers an invalid frame with an error, or closes the connection.
fn on_invalid_frame(frame: InvalidFrame, cx: &mut StepContext<'_>) -> SessionOutcome {
    if let Some(reason) = close_reason_of(&frame) {
        return SessionOutcome::Close(reason);
    }
    let (message_type, channel_id, status, reason) = match frame {
        InvalidFrame::BadField { message_type, channel_id, status, reason } => {
            (message_type.into(), channel_id, status, reason)
        }
        InvalidFrame::UnknownType { message_type } => {
            (message_type, None, status::INVALID, "unknown messageType")
        }
        InvalidFrame::NotJson | InvalidFrame::Binary | InvalidFrame::Unreadable => {
            return SessionOutcome::Stay;
        }
    };
    cx.send(ServerMessage::Error { message_type, channel_id, status, reason });
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
