//! The agent's messages: which are sent, which are acked, and which storage still holds.

use std::collections::BTreeSet;

use super::pending_deletes::PendingDeletes;
use super::storage_scan::StorageScan;
use super::unacked_window::{Origin, UnackedWindow};
use crate::connection::StepContext;
use crate::connection::effect::{Effect, PushAnswer};
use crate::ids::{Chid, PushId, Uaid};
use crate::message::{Message, MessageKey, Urgency};
use crate::month::Month;
use crate::store::{Page, PageLimit, StoreOp};
use crate::time::{Span, Time};
use crate::wire::{AckUpdate, ServerMessage};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Inbox {
    channels: BTreeSet<Chid>,
    /// Less urgent messages stay in storage.
    min_urgency: Urgency,
    window: UnackedWindow,
    deletes: PendingDeletes,
    scan: StorageScan,
}

impl Default for Inbox {
    /// It accepts every urgency and has no channels.
    fn default() -> Self {
        Self {
            channels: BTreeSet::new(),
            min_urgency: Urgency::VeryLow,
            window: UnackedWindow::default(),
            deletes: PendingDeletes::default(),
            scan: StorageScan::default(),
        }
    }
}

impl Inbox {
    pub(super) fn channels(&self) -> &BTreeSet<Chid> {
        &self.channels
    }

    pub(super) fn set_channels(&mut self, channels: BTreeSet<Chid>) {
        self.channels = channels;
    }

    pub(super) fn add_channel(&mut self, chid: Chid) {
        self.channels.insert(chid);
    }

    pub(super) fn remove_channel(&mut self, chid: Chid) {
        self.channels.remove(&chid);
    }

    /// A lower minimum releases messages that stayed in storage so far.
    pub(super) fn set_min_urgency(&mut self, min: Urgency) {
        if min < self.min_urgency {
            self.scan.request();
        }
        self.min_urgency = min;
    }

    pub(super) fn unacked(&self) -> usize {
        self.window.len()
    }

    pub(super) fn ack_deadline(&self, ack_wait: Span) -> Option<Time> {
        self.window.deadline(ack_wait)
    }

    pub(super) fn expire(&mut self, cx: &mut StepContext<'_>) {
        self.window.expire(cx.now, cx.config.limits.ack_wait, cx.out);
    }

    pub(super) fn awaits_store(&self) -> bool {
        self.scan.awaits_store() || self.deletes.is_deleting()
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.deletes.is_deleting()
    }

    pub(super) fn is_drained(&self) -> bool {
        self.scan.is_done() && self.window.is_empty() && self.deletes.is_settled()
    }

    /// Whether a push may be sent now: no message before it waits for an ack, no older one of its topic can still be
    /// read from storage, and it was not sent before.
    pub(super) fn may_send(&self, message: &Message, cx: &StepContext<'_>) -> bool {
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

    pub(super) fn deliver(&mut self, push: PushId, message: Message, cx: &mut StepContext<'_>) {
        if message.ttl_is_zero() {
            let key = message.key();
            self.send(message, Origin::ZeroTtl, cx);
            let answer = PushAnswer::Accepted;
            cx.out.push(Effect::AnswerPush { push, answer, message: key });
        } else {
            self.send(message, Origin::Endpoint(push), cx);
        }
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

    pub(super) fn delete(&mut self, message: MessageKey) {
        self.deletes.delete(message);
    }

    pub(super) fn next_delete(&mut self, uaid: Uaid, months: &[Month]) -> Option<StoreOp> {
        self.deletes.next(uaid, months)
    }

    pub(super) fn on_deleted(&mut self) {
        self.deletes.on_deleted();
    }

    /// Answers all pushes that wait, and returns the last delete. It does not wait for the one under way: the
    /// connection processes no answer any more.
    pub(super) fn close(
        mut self,
        uaid: Uaid,
        months: &[Month],
        cx: &mut StepContext<'_>,
    ) -> Option<StoreOp> {
        std::mem::take(&mut self.window).close(cx.out);
        if months.is_empty() {
            return None;
        }
        self.deletes.on_deleted();
        self.deletes.next(uaid, months)
    }
}

/// The scan of stored messages.
impl Inbox {
    pub(super) fn request_scan(&mut self) {
        self.scan.request();
    }

    pub(super) fn stop_scan(&mut self) {
        self.scan = StorageScan::default();
    }

    /// A message was refused that its endpoint is about to store.
    pub(super) fn note_rejection(&mut self) {
        if self.window.has_unstored() || self.scan.is_active() {
            self.scan.request();
        }
    }

    /// The next fetch of the scan, if one is possible now.
    ///
    /// A message that was just sent delays the scan: it is in no table yet, and its ack is near.
    pub(super) fn next_fetch(
        &mut self,
        uaid: Uaid,
        month: Month,
        cx: &StepContext<'_>,
    ) -> Option<StoreOp> {
        let room = self.room(cx);
        if room == 0 {
            return None;
        }
        let limits = &cx.config.limits;
        let rows = limits.fetch_rows_max.min(room).max(1);
        let after = self.scan.start_fetch(rows, self.window.has_unstored())?;
        let limit = PageLimit { rows, bytes: limits.fetch_bytes_max };
        Some(StoreOp::Fetch { uaid, month, after, limit, now: cx.now })
    }

    /// How many messages may be sent now. None until half the window is free: otherwise a full window would be
    /// refilled row by row.
    fn room(&self, cx: &StepContext<'_>) -> usize {
        let max = cx.config.limits.unacked_max;
        let used = self.window.len().max(self.deletes.backlog());
        if used > max / 2 { 0 } else { max - used }
    }

    /// Sends a page's messages. If it has rows of unknown channels, returns the operation that reads the channels again.
    pub(super) fn on_page(
        &mut self,
        page: Page,
        uaid: Uaid,
        month: Month,
        cx: &mut StepContext<'_>,
    ) -> Option<StoreOp> {
        let Page { messages, next } = page;
        let mut doubtful = Vec::new();
        for message in messages {
            if let Some(message) = self.on_row(message, cx) {
                doubtful.push(message);
            }
        }
        let confirms = !doubtful.is_empty();
        self.scan.page_read(doubtful, next);
        confirms.then_some(StoreOp::ReadChannels { uaid, month })
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
    pub(super) fn channels_confirmed(&mut self, channels: Option<BTreeSet<Chid>>) {
        let channels = channels.unwrap_or_default();
        for message in self.scan.take_doubtful() {
            if channels.contains(&message.chid) {
                self.channels.insert(message.chid);
                self.scan.request();
            } else {
                self.deletes.delete(message);
            }
        }
    }
}
