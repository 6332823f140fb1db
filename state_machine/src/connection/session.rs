//! What all phases after hello share: the table of what they do alike.

use std::collections::{BTreeSet, VecDeque};

use super::Cx;
use super::check::StorageCheck;
use super::closed::Closed;
use super::effect::{CloseReason, Effect, PushAnswer};
use super::event::Event;
use super::following::Following;
use super::orders::Orders;
use super::phase::Phase;
use super::settling::Settling;
use super::window::{Held, Window};
use crate::ids::{Chid, PushId, Uaid};
use crate::message::{Message, MessageRef, Urgency};
use crate::month::Month;
use crate::record::Place;
use crate::store::StoreOrder;
use crate::time::Time;
use crate::wire::{AckUpdate, ClientMessage, Nonsense, ServerMessage, status};

/// A user agent's session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Session {
    pub(super) uaid: Uaid,
    pub(super) connected_at: Time,
    /// Whether a record was written under this name, or may have been.
    pub(super) has_record: bool,
    pub(super) channels: BTreeSet<Chid>,
    pub(super) window: Window,
    pub(super) settling: Settling,
    pub(super) check: StorageCheck,
    pub(super) orders: Orders,
    /// Commands that wait until the connection is ready and the one before is done.
    pub(super) commands: VecDeque<ClientMessage>,
    /// Less urgent messages wait in storage.
    pub(super) min_urgency: Urgency,
    /// None until it asks for a broadcast.
    pub(super) following: Option<Box<Following>>,
}

/// What is left for the phase to do after the session did what all phases do.
pub(super) enum Then {
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
            window: Window::default(),
            settling: Settling::default(),
            check: StorageCheck::default(),
            orders: Orders::default(),
            commands: VecDeque::new(),
            min_urgency: Urgency::VeryLow,
            following: None,
        })
    }

    /// What is the same in every phase: acks count at once, commands wait their turn.
    pub(super) fn happened(&mut self, event: Event, cx: &mut Cx<'_>) -> Then {
        match event {
            Event::Said(message) => return self.said(message, cx),
            Event::SaidNonsense(nonsense) => return said_nonsense(nonsense, cx),
            Event::PushArrived { push, message } => return Then::Push(push, message),
            Event::HungUp => return Then::Close(CloseReason::HungUp),
            Event::Replaced => return Then::Close(CloseReason::Replaced),
            Event::ConnectedElsewhere { connected_at } if self.is_before(connected_at) => {
                return Then::Close(CloseReason::Replaced);
            }
            // Told late: the agent came back to this node since.
            Event::ConnectedElsewhere { .. } => {}
            Event::ShutdownBegan => return Then::Close(CloseReason::Shutdown),
            Event::MessageStored => self.check.want(),
            Event::AnswerLost(message) => self.settling.delete(message),
            Event::BroadcastsChanged(all) => self.broadcasts_changed(&all, cx),
            // What time brings is done after every event; answers of the store come by another way.
            Event::Heard | Event::TimePassed | Event::StoreAnswered { .. } => {}
        }
        Then::Stay
    }

    fn said(&mut self, message: ClientMessage, cx: &mut Cx<'_>) -> Then {
        match message {
            ClientMessage::Ack { updates } => {
                updates.into_iter().for_each(|update| self.acked(update, cx));
            }
            ClientMessage::Ping => cx.out.push(Effect::Send(ServerMessage::Pong)),
            ClientMessage::Hello { .. } => return Then::Close(CloseReason::SecondHello),
            ClientMessage::Register { .. }
            | ClientMessage::Unregister { .. }
            | ClientMessage::Urgency { .. } => self.defer(message, cx),
            ClientMessage::BroadcastSubscribe { broadcasts } => self.subscribe(broadcasts, cx),
            // A message that was not handled stays unacked and holds nothing back for long.
            ClientMessage::Nack => {}
        }
        Then::Stay
    }

    fn acked(&mut self, update: AckUpdate, cx: &mut Cx<'_>) {
        let remembered_max = cx.config.limits.remembered_acks_max;
        match self.window.acked(update.id) {
            Some((message, held)) => {
                self.settling.remember(update.id, remembered_max);
                match held {
                    Held::Endpoint(push) => {
                        let answer = PushAnswer::Accepted;
                        cx.out.push(Effect::AnswerPush { push, answer, message });
                    }
                    Held::Both(push) => {
                        self.settling.delete(message.clone());
                        let answer = PushAnswer::Accepted;
                        cx.out.push(Effect::AnswerPush { push, answer, message });
                    }
                    Held::Store => self.settling.delete(message),
                    Held::Nobody => {}
                }
            }
            // Sent on an earlier connection: the row may be there, or still be on its way to the store.
            None if !self.settling.remembers(update.id)
                && self.settling.backlog() < remembered_max =>
            {
                self.settling.remember(update.id, remembered_max);
                let AckUpdate { chid, id } = update;
                self.settling.delete(MessageRef { id, chid, topic: None });
            }
            // Acked before; or more unknown acks than anyone needs to be believed.
            None => {}
        }
    }

    fn defer(&mut self, command: ClientMessage, cx: &mut Cx<'_>) {
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
    pub(super) fn send(&mut self, message: Message, held: Held, cx: &mut Cx<'_>) {
        self.window.sent(message.reference(), cx.now, held);
        cx.out.push(Effect::Send(ServerMessage::Notification(message)));
    }

    /// Has the endpoint store a message that cannot be delivered now.
    ///
    /// Its nudge follows the store. Only where something is under way that could swallow
    /// that nudge's sense, a check is wanted here too (seed 002, "Push Characteristics").
    pub(super) fn busy(&mut self, push: PushId, message: &Message, cx: &mut Cx<'_>) {
        if self.window.is_fresh() || self.check.is_under_way() {
            self.check.want();
        }
        let message = message.reference();
        cx.out.push(Effect::AnswerPush { push, answer: PushAnswer::Busy, message });
    }

    /// Deletes what was acked.
    pub(super) fn flush_acks(&mut self, months: &[Month], cx: &mut Cx<'_>) {
        self.settling.flush(self.uaid, months, &mut self.orders, cx.out);
    }

    /// Whether everything sent was acked and every ack is settled.
    pub(super) fn is_settled(&self) -> bool {
        self.window.is_empty() && self.settling.is_settled()
    }

    /// Hands everything over that this connection held, and closes.
    pub(super) fn close(self, reason: CloseReason, months: &[Month], cx: &mut Cx<'_>) -> Phase {
        let Self {
            uaid, connected_at, has_record, window, settling, mut orders, following, ..
        } = self;
        window.closed(cx.out);
        if !months.is_empty() {
            settling.closed(uaid, months, &mut orders, cx.out);
        }
        // Who hangs up is found out by the next push: most come back before there is one (seed 002, "Router Table
        // Schema"). A node that shuts down is not there to be asked. Whoever takes the place of this connection has
        // written the record, or is about to. A clear that fails is not repeated: then the dead node's name
        // costs the next push a detour through storage.
        if has_record && reason == CloseReason::Shutdown {
            let place = Place { node: cx.config.node.clone(), connected_at };
            orders.give(StoreOrder::ClearNode { uaid, place }, cx.out);
        }
        if following.is_some_and(|following| following.is_followed()) {
            cx.out.push(Effect::LeaveBroadcasts);
        }
        cx.out.push(Effect::LeaveRegistry { uaid });
        Closed::because(reason, cx)
    }
}

/// Tells the agent what was wrong, where the session can go on.
fn said_nonsense(nonsense: Nonsense, cx: &mut Cx<'_>) -> Then {
    if let Some(reason) = nonsense_closes(&nonsense) {
        return Then::Close(reason);
    }
    let (message_type, channel_id, reason) = match nonsense {
        Nonsense::BadField { message_type, channel_id, reason } => {
            (message_type.into(), channel_id, reason)
        }
        Nonsense::UnknownType { message_type } => (message_type, None, "unknown messageType"),
        Nonsense::NotJson | Nonsense::Binary | Nonsense::Unreadable => return Then::Stay,
    };
    let status = status::INVALID;
    cx.out.push(Effect::Send(ServerMessage::Error { message_type, channel_id, status, reason }));
    Then::Stay
}

/// Why a frame ends the connection, if it does.
pub(super) fn nonsense_closes(nonsense: &Nonsense) -> Option<CloseReason> {
    match nonsense {
        Nonsense::NotJson => Some(CloseReason::NotJson),
        Nonsense::Binary => Some(CloseReason::Binary),
        Nonsense::Unreadable => Some(CloseReason::Unreadable),
        Nonsense::UnknownType { .. } | Nonsense::BadField { .. } => None,
    }
}
