//! The agent's messages: which are sent, which are acked, and which storage still holds.

use std::collections::BTreeSet;

use super::Session;
use super::storage_scan::StorageScan;
use super::unacked_window::Origin;
use crate::connection::StepContext;
use crate::connection::effect::{Effect, PushAnswer};
use crate::ids::{Chid, PushId};
use crate::message::{Message, MessageKey, Urgency};
use crate::month::Month;
use crate::store::{Page, PageLimit, StoreAnswer, StoreOp};
use crate::wire::{AckUpdate, ServerMessage};

impl Session {
    /// Less urgent messages stay in storage from now on. A lower minimum releases messages that stayed there so far.
    pub(in crate::connection) fn set_min_urgency(&mut self, min: Urgency) {
        if min < self.min_urgency {
            self.request_scan();
        }
        self.min_urgency = min;
    }

    pub(in crate::connection) fn unacked(&self) -> usize {
        self.window.len()
    }

    /// Whether a scan or a delete waits for the store.
    pub(in crate::connection) fn awaits_store(&self) -> bool {
        self.scan.awaits_store() || self.deletes.is_deleting()
    }

    pub(in crate::connection) fn is_deleting(&self) -> bool {
        self.deletes.is_deleting()
    }

    /// Whether storage was scanned to its end, every message acked and every ack settled.
    pub(in crate::connection) fn is_drained(&self) -> bool {
        self.scan.is_done() && self.window.is_empty() && self.deletes.is_settled()
    }

    /// Whether a push may be sent now: no message before it waits for an ack, no older one of its topic can still be
    /// read from storage, and it was not sent before.
    pub(in crate::connection) fn may_send(&self, message: &Message, cx: &StepContext<'_>) -> bool {
        let limits = &cx.config.limits;
        let overtakes = self.scan.is_fetching() && message.topic.is_none();
        let is_next = self.window.is_empty() && !self.scan.is_active();
        (overtakes || is_next)
            && message.urgency >= self.min_urgency
            && self.window.len() + self.scan.rows_pending() < limits.unacked_max
            && self.deletes.backlog() < limits.remembered_acks_max
            && !self.window.contains(message.id)
            && !self.deletes.remembers(message.id)
    }

    /// Sends a pushed message. With a TTL of zero the push is answered at once, otherwise with the ack.
    pub(in crate::connection) fn deliver(
        &mut self,
        push: PushId,
        message: Message,
        cx: &mut StepContext<'_>,
    ) {
        if message.ttl_is_zero() {
            let key = message.key();
            self.send(message, Origin::ZeroTtl, cx);
            let answer = PushAnswer::Accepted;
            cx.out.push(Effect::AnswerPush { push, answer, message: key });
        } else {
            self.send(message, Origin::Endpoint(push), cx);
        }
    }

    /// Makes the endpoint store a message that cannot be delivered now.
    ///
    /// The endpoint's notification follows. Only if an operation under way could have read storage before that message
    /// was in it, another scan is requested here (docs/sources.md#push-characteristics).
    pub(in crate::connection) fn reject_to_store(
        &mut self,
        push: PushId,
        message: &Message,
        cx: &mut StepContext<'_>,
    ) {
        if self.window.has_unstored() || self.scan.is_active() {
            self.request_scan();
        }
        let message = message.key();
        cx.out.push(Effect::AnswerPush { push, answer: PushAnswer::Busy, message });
    }

    fn send(&mut self, message: Message, origin: Origin, cx: &mut StepContext<'_>) {
        self.window.sent(message.key(), cx.now, origin);
        cx.out.push(Effect::Send(ServerMessage::Notification(message)));
    }

    pub(super) fn on_ack(&mut self, update: AckUpdate, cx: &mut StepContext<'_>) {
        let remembered_max = cx.config.limits.remembered_acks_max;
        let AckUpdate { chid, id } = update;
        match self.window.acked(id) {
            Some((message, origin)) => {
                self.deletes.remember(id, remembered_max);
                if matches!(origin, Origin::Both(_) | Origin::Store) {
                    self.deletes.delete(message.clone());
                }
                if let Origin::Endpoint(push) | Origin::Both(push) = origin {
                    let answer = PushAnswer::Accepted;
                    cx.out.push(Effect::AnswerPush { push, answer, message });
                }
            }
            // It was sent on an earlier connection: its row is in the store, or the endpoint is about to store it.
            None if !self.deletes.remembers(id) && self.deletes.backlog() < remembered_max => {
                self.deletes.remember(id, remembered_max);
                self.deletes.delete(MessageKey { id, chid, topic: None });
            }
            // It was acked before, or the agent sends more unknown acks than are processed.
            None => {}
        }
    }

    /// Deletes acked messages in these months. Without a month the acks wait.
    pub(in crate::connection) fn flush_acks(&mut self, months: &[Month], cx: &mut StepContext<'_>) {
        if months.is_empty() {
            return;
        }
        if let Some(delete) = self.deletes.next(self.uaid, months) {
            self.submit(delete, cx);
        }
    }
}

/// The scan of stored messages.
impl Session {
    pub(in crate::connection) fn request_scan(&mut self) {
        self.scan.request();
    }

    pub(in crate::connection) fn stop_scan(&mut self) {
        self.scan = StorageScan::default();
    }

    /// Starts or continues a scan of a month's messages, if there is room for more unacked ones.
    ///
    /// A message that was just sent delays the scan: it is in no table yet, and its ack is near.
    pub(in crate::connection) fn scan_storage(&mut self, month: Month, cx: &mut StepContext<'_>) {
        let room = self.room(cx);
        if room == 0 {
            return;
        }
        let limits = &cx.config.limits;
        let rows = limits.fetch_rows_max.min(room).max(1);
        if let Some(after) = self.scan.start_fetch(rows, self.window.has_unstored()) {
            let limit = PageLimit { rows, bytes: limits.fetch_bytes_max };
            let fetch = StoreOp::Fetch { uaid: self.uaid, month, after, limit, now: cx.now };
            self.submit(fetch, cx);
        }
    }

    /// How many messages may be sent now. None until half the window is free: otherwise a full window would be
    /// refilled row by row.
    fn room(&self, cx: &StepContext<'_>) -> usize {
        let max = cx.config.limits.unacked_max;
        let used = self.window.len().max(self.deletes.backlog());
        if used > max / 2 { 0 } else { max - used }
    }

    /// Processes the answers to the operations with which messages of `month` are delivered. Returns any other answer.
    pub(in crate::connection) fn on_store_answer(
        &mut self,
        answer: StoreAnswer,
        month: Month,
        cx: &mut StepContext<'_>,
    ) -> Option<StoreAnswer> {
        match answer {
            StoreAnswer::Fetched(page) => self.on_page(page, month, cx),
            StoreAnswer::Channels(channels) => self.channels_confirmed(channels),
            StoreAnswer::Deleted => self.deletes.on_deleted(),
            StoreAnswer::Registered(_)
            | StoreAnswer::ChannelsAdded
            | StoreAnswer::ChannelRemoved
            | StoreAnswer::MonthUpdated(_)
            | StoreAnswer::MoveFinished(_)
            | StoreAnswer::Moved
            | StoreAnswer::NodeCleared(_) => return Some(answer),
        }
        None
    }

    /// Sends a page's messages. If it has rows of unknown channels, the channels are read again.
    fn on_page(&mut self, page: Page, month: Month, cx: &mut StepContext<'_>) {
        let Page { messages, next } = page;
        let mut doubtful = Vec::new();
        for message in messages {
            if let Some(message) = self.on_row(message, cx) {
                doubtful.push(message);
            }
        }
        if !doubtful.is_empty() {
            self.submit(StoreOp::ReadChannels { uaid: self.uaid, month }, cx);
        }
        self.scan.page_read(doubtful, next);
    }

    /// Sends a row unless it was sent or acked before. Returns its key if its channel is unknown.
    fn on_row(&mut self, message: Message, cx: &mut StepContext<'_>) -> Option<MessageKey> {
        if self.deletes.remembers(message.id) {
            self.deletes.delete(message.key());
        } else if !self.channels.contains(&message.chid) {
            return Some(message.key());
        } else if !self.window.note_row(message.id) && message.urgency >= self.min_urgency {
            self.send(message, Origin::Store, cx);
        }
        None
    }

    /// The channels were read again. Rows of channels that are still unknown are deleted, the others scanned again.
    ///
    /// Only the channels of doubtful rows are taken over: a command of this connection may have changed others since
    /// the read.
    fn channels_confirmed(&mut self, channels: Option<BTreeSet<Chid>>) {
        let channels = channels.unwrap_or_default();
        for message in self.scan.take_doubtful() {
            if channels.contains(&message.chid) {
                self.channels.insert(message.chid);
                self.request_scan();
            } else {
                self.deletes.delete(message);
            }
        }
    }
}
