//! The agent's messages: which are sent, which are acked, and which storage still holds.

use std::collections::BTreeSet;

use super::Session;
use super::storage_scan::StorageScan;
use super::unacked_window::{Origin, full_share};
use crate::connection::effect::PushAnswer;
use crate::connection::step::StepContext;
use crate::ids::{Chid, PushId};
use crate::message::{Message, MessageKey, Urgency};
use crate::month::Month;
use crate::receipt::AckCode;
use crate::store::{Page, PageLimit, StoreAnswer, StoreOp};
use crate::time::{Span, Time};
use crate::wire::{AckUpdate, ServerMessage};

/// The wait before storage is scanned without a notification, when an endpoint was answered to store a message.
const RECHECK_SOON: Span = Span::from_secs(5);

impl Session {
    /// Less urgent messages stay in storage from now on. A lower minimum releases messages that stayed there so far: a
    /// scan starts at once, unless another one was started so less than `ack_wait` ago.
    pub(in crate::connection) fn set_min_urgency(&mut self, min: Urgency, cx: &StepContext<'_>) {
        if min < self.min_urgency {
            self.scan.request_release();
            let longest = cx.now + cx.config.limits.ack_wait;
            self.change_pauses(|pauses| {
                pauses.next_scan_at =
                    pauses.next_release_at.filter(|at| cx.now < *at && *at <= longest);
                pauses.rows_left = 0;
            });
        }
        self.min_urgency = min;
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

    /// Whether a push may be sent now. No message before it waits for an ack in time, and no older one of its topic can
    /// still be read from storage. Its channel has not used up its share, and it was not sent before.
    pub(in crate::connection) fn may_send(&self, message: &Message, cx: &StepContext<'_>) -> bool {
        let limits = &cx.config.limits;
        let has_no_topic = message.topic.is_none();
        let overtakes = self.scan.is_fetching() && has_no_topic;
        let is_scan_later = self.pauses().next_scan_at.is_some_and(|at| cx.now < at);
        let is_read = self.scan.is_done() || (is_scan_later && has_no_topic);
        let is_next = self.window.fresh() == 0 && !self.scan.is_active() && is_read;
        (overtakes || is_next)
            && message.urgency >= self.min_urgency
            && self.window.fresh() + self.scan.rows_pending() < limits.unacked_max
            && !self.is_older_of_topic_stored(message)
            && (self.needs_no_share(message, overtakes)
                || !self.window.is_share_used(message, limits.unacked_max))
            && self.deletes.backlog() < limits.remembered_acks_max
            && !self.window.contains(message.id)
            && !self.deletes.remembers(message.id)
    }

    /// Whether a message is sent though its channel has used up its share: one with a TTL of zero is in no table later. It
    /// delays no scan, and no row of its topic was left.
    fn needs_no_share(&self, message: &Message, overtakes: bool) -> bool {
        let is_first_of_topic = message.topic.is_none() || !self.window.holds_rows_of(message.chid);
        message.ttl_is_zero() && (overtakes || (self.scan.is_done() && is_first_of_topic))
    }

    /// Whether an older message of its topic may be in storage: an overdue one, or one that is not urgent enough. The
    /// endpoint replaces it there.
    fn is_older_of_topic_stored(&self, message: &Message) -> bool {
        message.topic.is_some()
            && (self.min_urgency > Urgency::VeryLow
                || self.window.has_overdue(message.chid, &message.topic))
    }

    /// Sends a pushed message. The push is answered with the ack. With a TTL of zero it is answered at once; so it is
    /// for an agent that acks slowly, and the endpoint stores the message meanwhile.
    pub(in crate::connection) fn deliver(
        &mut self,
        push: PushId,
        message: Message,
        cx: &mut StepContext<'_>,
    ) {
        let key = message.key();
        if message.ttl_is_zero() {
            self.send(message, Origin::ZeroTtl, cx);
            cx.answer(push, PushAnswer::Accepted, key);
        } else if self.window.is_slow() {
            self.send(message, Origin::Store, cx);
            self.recheck_soon(cx);
            cx.answer(push, PushAnswer::Unconfirmed, key);
        } else {
            self.send(message, Origin::Endpoint(push), cx);
        }
    }

    /// Makes the endpoint store a message that cannot be delivered now.
    ///
    /// The endpoint's notification follows. In case it gets lost, storage is scanned again when the window is empty
    /// (docs/sources.md#push-characteristics), and soon: a scan at once could precede the endpoint's write.
    pub(in crate::connection) fn reject_to_store(
        &mut self,
        push: PushId,
        message: &Message,
        cx: &mut StepContext<'_>,
    ) {
        if self.window.fresh() > 0 || self.scan.is_active() {
            self.request_scan();
        }
        self.recheck_soon(cx);
        cx.answer(push, PushAnswer::Busy, message.key());
    }

    fn send(&mut self, message: Message, origin: Origin, cx: &mut StepContext<'_>) {
        self.window.sent(&message, cx.now, origin);
        cx.send(ServerMessage::Notification(message));
    }

    /// The ack of a SimplePush version is also that of the lower ones. One of the other protocol names no message.
    pub(super) fn on_ack(&mut self, update: AckUpdate, cx: &mut StepContext<'_>) {
        let AckUpdate { id, .. } = update;
        if id.is_version() != self.is_simplepush {
            return;
        }
        while let Some(id) = self.window.lower_version(id) {
            self.ack(AckUpdate { id, ..update }, cx);
        }
        self.ack(update, cx);
    }

    fn ack(&mut self, update: AckUpdate, cx: &mut StepContext<'_>) {
        let remembered_max = cx.config.limits.remembered_acks_max;
        let AckUpdate { chid, id, code } = update;
        let code = AckCode::of(code);
        self.first_page.end_wait();
        match self.window.acked(id) {
            Some((message, origin)) => {
                self.deletes.remember(id, code, remembered_max);
                if matches!(origin, Origin::Both(_) | Origin::Store) {
                    self.deletes.delete_acked(message.clone(), code);
                }
                self.read_left_rows(message.chid, cx);
                if let Origin::Endpoint(push) | Origin::Both(push) = origin {
                    cx.answer(push, PushAnswer::Accepted, message);
                }
            }
            // It was sent on an earlier connection: its row is in the store, or the endpoint is about to store it.
            None if !self.deletes.remembers(id) && self.deletes.backlog() < remembered_max => {
                self.deletes.remember(id, code, remembered_max);
                self.deletes.delete_acked(MessageKey { id, chid, topic: None }, code);
            }
            // It was acked before, or the agent sends more unknown acks than are processed.
            None => {}
        }
    }

    /// An ack may have made room for rows that were left in storage. With room for half the share they are read at once,
    /// and otherwise by the next scan, so that a few acks cause no reading of all rows.
    fn read_left_rows(&mut self, chid: Chid, cx: &StepContext<'_>) {
        let max = cx.config.limits.unacked_max;
        let room = self.window.room_of(chid, max);
        if self.window.holds_rows_of(chid) && room > 0 {
            self.request_scan();
            if room > full_share(max) / 2 {
                self.change_pauses(|pauses| pauses.next_scan_at = None);
            }
        }
    }

    /// The operation that unregisters a channel. A version that is left would refuse lower ones if the channel is
    /// registered again.
    pub(in crate::connection) fn removal_of(&self, chid: Chid, month: Month) -> StoreOp {
        let (uaid, months) = (self.uaid, vec![month]);
        if self.is_simplepush {
            StoreOp::RemoveChannelAndVersion { uaid, months, chid }
        } else {
            StoreOp::RemoveChannel { uaid, months, chid }
        }
    }

    /// The agent has unregistered a channel.
    pub(in crate::connection) fn remove_channel(&mut self, chid: Chid) {
        self.channels.remove(chid);
        self.deletes.forget_versions(chid);
        if self.is_simplepush {
            // An endpoint that had found the channel registered may have stored a version since.
            self.request_scan();
        }
        self.window.forget_channel(chid);
    }

    /// Expires acks that are overdue, and messages whose TTL has ended, which may make room for rows that were left. The
    /// rows of overdue messages count that this connection has offered them, by one operation at a time.
    pub(in crate::connection) fn expire_acks(
        &mut self,
        months: &[Month],
        cx: &mut StepContext<'_>,
    ) {
        let limits = &cx.config.limits;
        let has_changed = self.window.expire(cx.now, limits.ack_wait, cx.out);
        if has_changed && self.window.has_room_for_held(limits.unacked_max) {
            self.request_scan();
        }
        if !self.ops.is_recording_offers() {
            self.record_offers(months, cx);
        }
    }

    pub(super) fn record_offers(&mut self, months: &[Month], cx: &mut StepContext<'_>) {
        let Some(month) = months.first().copied() else { return };
        let messages = self.window.take_uncounted();
        // The table of SimplePush versions counts no offers.
        if !messages.is_empty() && !self.is_simplepush {
            self.submit(StoreOp::RecordOffers { uaid: self.uaid, month, messages }, cx);
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

    /// Requests a scan if one without a notification is due.
    pub(in crate::connection) fn recheck_storage(&mut self, cx: &StepContext<'_>) {
        if self.recheck_at.is_some_and(|at| at <= cx.now) {
            self.request_scan();
            self.recheck_at = self.pauses().recheck_again_at.filter(|at| *at > cx.now);
            self.change_pauses(|pauses| pauses.recheck_again_at = None);
            self.schedule_recheck(cx);
        }
    }

    pub(in crate::connection) fn schedule_recheck(&mut self, cx: &StepContext<'_>) {
        self.recheck_by(cx.now + cx.seed.with_jitter(cx.config.limits.storage_recheck));
    }

    /// An endpoint was answered to store a message. A scan that is due earlier may precede its write, and is followed by
    /// another.
    fn recheck_soon(&mut self, cx: &StepContext<'_>) {
        let at = cx.now + RECHECK_SOON;
        if self.recheck_at.is_some_and(|earlier| earlier < at) {
            self.change_pauses(|pauses| pauses.recheck_again_at = Some(at));
        } else {
            self.recheck_at = Some(at);
        }
    }

    fn recheck_by(&mut self, at: Time) {
        self.recheck_at = Some(self.recheck_at.map_or(at, |earlier| earlier.min(at)));
    }

    pub(in crate::connection) fn stop_scan(&mut self) {
        self.scan = StorageScan::default();
    }

    /// Starts or continues a scan of a month's messages, if there is room for more unacked ones.
    ///
    /// A message that was just sent delays the scan: it is in no table yet, and its ack is near. Scans start `ack_wait`
    /// apart if they leave rows of an unacked channel, or a page of rows that are overdue or not urgent enough: else each
    /// push would read them all.
    pub(in crate::connection) fn scan_storage(&mut self, month: Month, cx: &mut StepContext<'_>) {
        let room = self.room(cx);
        if room == 0 {
            return;
        }
        let limits = &cx.config.limits;
        if self.scan.can_start() {
            if self.window.fresh() > 0 {
                return;
            }
            let pauses = self.pauses();
            if pauses.next_scan_at.is_none() {
                let leaves_rows =
                    self.window.holds_rows() || pauses.rows_left >= limits.fetch_rows_max;
                let (is_release, next_at) = (self.scan.start(), cx.now + limits.ack_wait);
                self.change_pauses(|pauses| {
                    pauses.next_scan_at = leaves_rows.then_some(next_at);
                    pauses.rows_left = 0;
                    if is_release {
                        pauses.next_release_at = Some(next_at);
                    }
                });
                self.window.release_held();
            }
        }
        if self.first_page.next_at().is_some() && self.window.fresh() > 0 {
            return;
        }
        self.first_page.end_wait();
        let rows = self.first_page.rows_max(limits).min(room).max(1);
        if let Some(after) = self.scan.fetch(rows) {
            let limit = PageLimit { rows, bytes: limits.fetch_bytes_max };
            let (uaid, now) = (self.uaid, cx.now);
            let fetch = match self.is_simplepush {
                true => StoreOp::FetchVersions { uaid, after, limit, now },
                false => StoreOp::Fetch { uaid, month, after, limit, now },
            };
            self.submit(fetch, cx);
        }
    }

    /// How many messages may be sent now. None until half the window is free: otherwise a full window would be
    /// refilled row by row.
    fn room(&self, cx: &StepContext<'_>) -> usize {
        let max = cx.config.limits.unacked_max;
        let used = self.window.fresh().max(self.deletes.backlog());
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
            StoreAnswer::Deleted(_) => self.deletes.on_deleted(),
            StoreAnswer::OffersRecorded => {}
            StoreAnswer::Registered(_)
            | StoreAnswer::ChannelsAdded
            | StoreAnswer::ChannelRemoved
            | StoreAnswer::MonthUpdated(_)
            | StoreAnswer::MoveFinished(_)
            | StoreAnswer::Moved
            | StoreAnswer::NodeCleared(_)
            | StoreAnswer::OverLimit
            | StoreAnswer::NoSpace => return Some(answer),
        }
        None
    }

    /// Sends a page's messages. If it has rows of unknown channels, the channels are read again.
    fn on_page(&mut self, page: Page, month: Month, cx: &mut StepContext<'_>) {
        let Page { messages, next } = page;
        self.first_page.page_read(next.is_some(), &cx.config.limits, cx.now);
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

    /// Sends a row unless it was sent or acked before, or its turn is later. Returns its key if its channel is unknown.
    fn on_row(&mut self, message: Message, cx: &mut StepContext<'_>) -> Option<MessageKey> {
        if self.deletes.remembers(message.id) {
            self.deletes.delete_acked(message.key(), self.deletes.code_of(message.id));
        } else if !self.channels.contains(message.chid) {
            return Some(message.key());
        } else if message.expires_at() <= cx.now {
            // Its TTL ended while the page was under way.
        } else if self.window.note_row(&message) {
            let is_overdue = self.window.is_overdue(&message);
            self.change_pauses(|pauses| pauses.rows_left += usize::from(is_overdue));
        } else if message.urgency < self.min_urgency {
            self.change_pauses(|pauses| pauses.rows_left += 1);
        } else {
            self.window.note_offers(&message);
            if self.window.is_share_used(&message, cx.config.limits.unacked_max) {
                self.window.hold(message.chid);
            } else if !self.scan.leaves_out(&message) {
                self.send(message, Origin::Store, cx);
            }
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
