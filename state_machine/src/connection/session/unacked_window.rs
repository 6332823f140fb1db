//! Messages sent on this connection and not acked yet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::connection::effect::{Effect, Effects, PushAnswer};
use crate::connection::step::{UnackedMessage, Wait};
use crate::ids::{Chid, MessageId, PushId};
use crate::message::{Message, MessageKey, Topic};
use crate::time::{Span, Time};

/// A message that waits for its ack.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Unacked {
    message: MessageKey,
    expires_at: Time,
    sent_at: Time,
    origin: Origin,
}

/// A message that has waited for its ack in vain.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Overdue {
    topic: Option<Topic>,
    expires_at: Time,
    /// Whether its row counts this connection's offer, or is about to.
    is_counted: bool,
}

/// Where an unacked message came from, and so who has a copy of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    /// The endpoint, which waits for the answer to its push.
    Endpoint(PushId),
    /// Both: an endpoint waits that pushed the message again, and storage has the row of the first push.
    Both(PushId),
    /// The store, or an endpoint that was answered to store it.
    Store,
    /// A push with a TTL of zero: there is no other copy.
    ZeroTtl,
}

/// The unacked messages. Those that have waited for `ack_wait` are overdue: they are stored, or are about to be, and
/// occupy no room.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(in crate::connection) struct UnackedWindow {
    /// In the order of sending: at most `unacked_max`.
    fresh: VecDeque<Unacked>,
    /// None while it would be empty. Most agents ack in time.
    late: Option<Box<Late>>,
    /// How often acks were overdue since the last ack in time.
    misses: u8,
}

/// What is known of acks that were overdue.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Late {
    /// A channel with overdue messages has a share of half the window. So it can fill the window once, and has at most
    /// `unacked_max` unacked messages. Those of unregistered channels count until their TTL ends.
    overdue: BTreeMap<Chid, BTreeMap<MessageId, Overdue>>,
    /// When the TTL of an overdue message ends. If that one was acked, no message may expire then.
    next_expiry: Option<Time>,
    /// Channels of which a message was overdue, or a row was read that another connection offered in vain, and whether
    /// no ack has arrived since.
    suspects: BTreeMap<Chid, bool>,
    /// Channels of which rows were left in storage, because their share is used up.
    held: BTreeSet<Chid>,
    /// Overdue messages whose rows do not count this connection's offer yet.
    uncounted: Vec<MessageKey>,
}

static NONE_LATE: Late = Late {
    overdue: BTreeMap::new(),
    next_expiry: None,
    suspects: BTreeMap::new(),
    held: BTreeSet::new(),
    uncounted: Vec::new(),
};

/// The misses after which an endpoint no longer waits for acks.
const MISSES_MAX: u8 = 2;

/// With so many overdue messages, in windows of `unacked_max`, the share of a channel is one message.
const OVERDUE_WINDOWS_SHARED: usize = 8;

/// With more overdue messages, in windows of `unacked_max`, the session ends.
const OVERDUE_WINDOWS_MAX: usize = 32;

impl UnackedWindow {
    pub(super) fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.late().overdue.is_empty()
    }

    /// How many messages are unacked, overdue ones too.
    pub(in crate::connection) fn len(&self) -> usize {
        self.fresh.len() + self.overdue_len()
    }

    pub(in crate::connection) fn messages(&self) -> impl Iterator<Item = UnackedMessage> {
        let fresh = self.fresh.iter().map(|Unacked { message, sent_at, .. }| UnackedMessage {
            id: message.id,
            chid: message.chid,
            sent_at: Some(*sent_at),
        });
        let overdue = self.late().overdue.iter().flat_map(|(chid, messages)| {
            messages.keys().map(|id| UnackedMessage { id: *id, chid: *chid, sent_at: None })
        });
        fresh.chain(overdue)
    }

    /// When the oldest message that is not overdue was sent.
    pub(in crate::connection) fn oldest_sent_at(&self) -> Option<Time> {
        self.fresh.front().map(|unacked| unacked.sent_at)
    }

    pub(in crate::connection) fn overdue_len(&self) -> usize {
        self.late().overdue.values().map(BTreeMap::len).sum()
    }

    /// Whether more messages are overdue than one session remembers.
    pub(in crate::connection) fn is_overfull(&self, unacked_max: usize) -> bool {
        let remembered = self.overdue_len().max(self.late().uncounted.len());
        remembered > OVERDUE_WINDOWS_MAX.saturating_mul(unacked_max)
    }

    /// How many messages occupy room.
    pub(super) fn fresh(&self) -> usize {
        self.fresh.len()
    }

    /// Whether the agent misses `ack_wait` again and again.
    pub(super) fn is_slow(&self) -> bool {
        self.misses >= MISSES_MAX
    }

    pub(super) fn contains(&self, id: MessageId) -> bool {
        self.fresh.iter().any(|unacked| unacked.message.id.covers(id))
            || self.late().overdue.values().any(|overdue| covering(overdue, id).is_some())
    }

    /// An unacked message that is a lower SimplePush version than this one, of the same channel.
    pub(super) fn lower_version(&self, id: MessageId) -> Option<MessageId> {
        if !id.is_version() {
            return None;
        }
        let fresh = self.fresh.iter().map(|unacked| unacked.message.id);
        let overdue = self.late().overdue.values().flat_map(BTreeMap::keys).copied();
        fresh.chain(overdue).find(|lower| *lower != id && id.covers(*lower))
    }

    pub(super) fn is_overdue(&self, row: &Message) -> bool {
        self.late()
            .overdue
            .get(&row.chid)
            .is_some_and(|overdue| covering(overdue, row.id).is_some())
    }

    /// Whether a message of this channel and topic is overdue.
    pub(super) fn has_overdue(&self, chid: Chid, topic: &Option<Topic>) -> bool {
        self.late()
            .overdue
            .get(&chid)
            .is_some_and(|overdue| overdue.values().any(|other| other.topic == *topic))
    }

    pub(super) fn sent(&mut self, message: &Message, sent_at: Time, origin: Origin) {
        let (message, expires_at) = (message.key(), message.expires_at());
        self.fresh.push_back(Unacked { message, expires_at, sent_at, origin });
    }

    /// Notes that storage has a row of this message. Returns whether the message is unacked here, or a higher SimplePush
    /// version of it.
    pub(super) fn note_row(&mut self, row: &Message) -> bool {
        let covers_row = |unacked: &&mut Unacked| unacked.message.id.covers(row.id);
        if let Some(sent) = self.fresh.iter_mut().find(covers_row) {
            if let Origin::Endpoint(push) = sent.origin {
                sent.origin = Origin::Both(push);
            }
            return true;
        }
        let Some(late) = &mut self.late else { return false };
        let of_channel = late.overdue.get_mut(&row.chid);
        let overdue = of_channel.and_then(|overdue| {
            let id = covering(overdue, row.id)?;
            overdue.get_mut(&id)
        });
        let Some(overdue) = overdue else { return false };
        if !std::mem::replace(&mut overdue.is_counted, true) {
            late.uncounted.push(row.key());
        }
        true
    }

    /// Removes a message that was acked. Acks mostly arrive in the order of sending.
    pub(super) fn acked(&mut self, id: MessageId) -> Option<(MessageKey, Origin)> {
        if let Some(at) = self.fresh.iter().position(|unacked| unacked.message.id == id) {
            let acked = self.fresh.remove(at)?;
            self.misses = 0;
            self.trust(acked.message.chid);
            return Some((acked.message, acked.origin));
        }
        let late = self.late.as_mut()?;
        let (chid, Overdue { topic, .. }) = late
            .overdue
            .iter_mut()
            .find_map(|(chid, overdue)| overdue.remove(&id).map(|message| (*chid, message)))?;
        late.overdue.retain(|_, overdue| !overdue.is_empty());
        late.uncounted.retain(|message| message.id != id);
        self.trust(chid);
        Some((MessageKey { id, chid, topic }, Origin::Store))
    }

    /// When the next message is overdue, and when the TTL of an overdue one ends.
    pub(super) fn deadlines(&self, ack_wait: Span) -> [Option<(Time, Wait)>; 2] {
        [
            self.fresh.front().map(|unacked| (unacked.sent_at + ack_wait, Wait::Ack)),
            self.late().next_expiry.map(|at| (at, Wait::Expiry)),
        ]
    }

    /// Answers the endpoints of messages that are overdue now: they must store them.
    ///
    /// A message that was sent in the future is overdue too: the clock was set back, so its wait is unknown. One with a
    /// TTL of zero is forgotten, and so are overdue ones whose TTL has ended. Returns whether any has changed.
    pub(super) fn expire(&mut self, now: Time, wait: Span, out: &mut Effects) -> bool {
        let is_fresh = |unacked: &Unacked| unacked.sent_at <= now && now < unacked.sent_at + wait;
        let end = self.fresh.iter().position(is_fresh).unwrap_or(self.fresh.len());
        if end > 0 {
            self.misses = self.misses.saturating_add(1);
        }
        for mut unacked in self.fresh.drain(..end) {
            let is_counted = unacked.is_in_store();
            if is_counted {
                self.late.get_or_insert_default().uncounted.push(unacked.message.clone());
            }
            unacked.hand_back(out);
            if unacked.origin == Origin::Store {
                self.late.get_or_insert_default().add(unacked, is_counted);
            }
        }
        let has_expired = self.late().next_expiry.is_some_and(|at| at <= now);
        if has_expired {
            self.change_late(|late| late.forget_expired(now));
        }
        end > 0 || has_expired
    }

    /// The overdue messages in storage whose offers are to be counted now.
    pub(super) fn take_uncounted(&mut self) -> Vec<MessageKey> {
        self.change_late(|late| std::mem::take(&mut late.uncounted)).unwrap_or_default()
    }

    /// Answers every endpoint that still waits. A message without an ack was offered, however short the connection.
    pub(super) fn close(&mut self, out: &mut Effects) {
        for unacked in &mut self.fresh {
            if unacked.is_in_store() {
                self.late.get_or_insert_default().uncounted.push(unacked.message.clone());
            }
            unacked.hand_back(out);
        }
    }

    fn late(&self) -> &Late {
        self.late.as_deref().unwrap_or(&NONE_LATE)
    }

    /// Changes what there is, and forgets it once it is empty.
    fn change_late<T>(&mut self, change: impl FnOnce(&mut Late) -> T) -> Option<T> {
        let changed = self.late.as_deref_mut().map(change);
        self.late.take_if(|late| **late == NONE_LATE);
        changed
    }
}

impl Late {
    fn add(&mut self, unacked: Unacked, is_counted: bool) {
        let Unacked { message: MessageKey { id, chid, topic }, expires_at, .. } = unacked;
        let overdue = Overdue { topic, expires_at, is_counted };
        self.overdue.entry(chid).or_default().insert(id, overdue);
        self.suspects.insert(chid, true);
        let earlier = self.next_expiry.filter(|at| *at < expires_at);
        self.next_expiry = earlier.or(Some(expires_at));
    }

    fn forget_expired(&mut self, now: Time) {
        self.overdue.retain(|_, of_channel| {
            of_channel.retain(|_, overdue| now < overdue.expires_at);
            !of_channel.is_empty()
        });
        let left = self.overdue.values().flat_map(BTreeMap::values);
        self.next_expiry = left.map(|overdue| overdue.expires_at).min();
    }
}

/// The share of each channel.
impl UnackedWindow {
    /// Notes a row that is about to be sent or left.
    pub(super) fn note_offers(&mut self, row: &Message) {
        if row.offers > 0 {
            self.late.get_or_insert_default().suspects.entry(row.chid).or_insert(true);
        }
    }

    /// An ack has arrived: rows that another connection offered in vain are no reason for a share any more.
    fn trust(&mut self, chid: Chid) {
        if let Some(late) = &mut self.late {
            late.suspects.entry(chid).and_modify(|is_suspect| *is_suspect = false);
        }
    }

    /// Whether the channel of this message has used up its share. A channel has one if it has overdue messages, or if
    /// another connection offered some without an ack.
    pub(super) fn is_share_used(&self, message: &Message, unacked_max: usize) -> bool {
        let chid = message.chid;
        let overdue = self.overdue_of(chid);
        let has_share = overdue > 0 || self.late().suspects.get(&chid) == Some(&true);
        self.holds_rows_of(chid)
            || (has_share && overdue + self.fresh_of(chid) >= self.share(unacked_max))
    }

    /// Notes that a row of this channel was left in storage.
    pub(super) fn hold(&mut self, chid: Chid) {
        self.late.get_or_insert_default().held.insert(chid);
    }

    pub(super) fn holds_rows(&self) -> bool {
        !self.late().held.is_empty()
    }

    pub(super) fn holds_rows_of(&self, chid: Chid) -> bool {
        self.late().held.contains(&chid)
    }

    /// How many rows of this channel there is room for.
    pub(super) fn room_of(&self, chid: Chid, unacked_max: usize) -> usize {
        let unacked = self.overdue_of(chid) + self.fresh_of(chid);
        self.share(unacked_max).saturating_sub(unacked)
    }

    /// The unacked messages that a channel with a share may have. They never leave less than half the window free.
    fn share(&self, unacked_max: usize) -> usize {
        let is_shared = self.overdue_len() >= OVERDUE_WINDOWS_SHARED.saturating_mul(unacked_max);
        if is_shared { 1 } else { full_share(unacked_max) }
    }

    /// Whether there is room for rows that were left.
    pub(super) fn has_room_for_held(&self, unacked_max: usize) -> bool {
        self.late().held.iter().any(|chid| self.room_of(*chid, unacked_max) > 0)
    }

    /// The agent has unregistered this channel.
    pub(super) fn forget_channel(&mut self, chid: Chid) {
        self.change_late(|late| {
            late.suspects.remove(&chid);
            late.held.remove(&chid);
        });
    }

    /// A new scan reads the rows that were left.
    pub(super) fn release_held(&mut self) {
        self.change_late(|late| late.held = BTreeSet::new());
    }

    fn fresh_of(&self, chid: Chid) -> usize {
        self.fresh.iter().filter(|unacked| unacked.message.chid == chid).count()
    }

    fn overdue_of(&self, chid: Chid) -> usize {
        self.late().overdue.get(&chid).map_or(0, BTreeMap::len)
    }
}

/// The share of a channel, unless too many messages are overdue.
pub(super) fn full_share(unacked_max: usize) -> usize {
    (unacked_max / 2).max(1)
}

/// The message that covers this one. It has the least id that is not less.
fn covering(overdue: &BTreeMap<MessageId, Overdue>, id: MessageId) -> Option<MessageId> {
    let (least, _) = overdue.range(id..).next()?;
    Some(*least).filter(|least| least.covers(id))
}

impl Unacked {
    /// Whether its row was read.
    fn is_in_store(&self) -> bool {
        matches!(self.origin, Origin::Both(_) | Origin::Store)
    }

    fn hand_back(&mut self, out: &mut Effects) {
        if let Origin::Endpoint(push) | Origin::Both(push) = self.origin {
            self.origin = Origin::Store;
            let message = self.message.clone();
            out.push(Effect::AnswerPush { push, answer: PushAnswer::Unconfirmed, message });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Span = Span(1000);

    fn message(number: u128, ttl: Span) -> Message {
        let id = MessageId::from_uuid_v7(number, false);
        Message::new(id, Chid([1; 16]), Time(10_000), ttl)
    }

    #[test]
    fn a_clock_set_back_holds_no_message_for_longer_than_its_wait() {
        let message = message(2, Span::from_secs(60));
        let mut window = UnackedWindow::default();
        window.sent(&message, Time(10_000), Origin::Endpoint(PushId(7)));
        let mut out = Effects::new();
        window.expire(Time(10_999), WAIT, &mut out);
        assert!(window.fresh() == 1 && out.is_empty());
        window.expire(Time(9_999), WAIT, &mut out);
        let (answer, message) = (PushAnswer::Unconfirmed, message.key());
        assert_eq!(out, [Effect::AnswerPush { push: PushId(7), answer, message }]);
        assert_eq!(window.fresh(), 0);
    }

    #[test]
    fn an_unregistered_channel_has_no_share_when_it_is_registered_again() {
        const UNACKED_MAX: usize = 4;
        let rows = [2, 4, 6].map(|number| message(number, Span::from_secs(60)));
        let offered = Message { offers: 1, ..rows[0].clone() };
        let mut window = UnackedWindow::default();
        window.note_offers(&offered);
        for row in &rows[..2] {
            window.sent(row, Time(10_000), Origin::Store);
        }
        assert!(window.is_share_used(&rows[2], UNACKED_MAX));
        window.hold(offered.chid);
        window.forget_channel(offered.chid);
        assert!(!window.is_share_used(&rows[2], UNACKED_MAX));
        assert!(!window.holds_rows());
    }

    #[test]
    fn expired_messages_use_no_share_and_are_forgotten() {
        const UNACKED_MAX: usize = 4;
        let [short, lasting, next] =
            [(2, 5), (4, 60), (6, 60)].map(|(number, ttl)| message(number, Span::from_secs(ttl)));
        let mut window = UnackedWindow::default();
        for message in [&short, &lasting] {
            window.sent(message, Time(10_000), Origin::Store);
        }
        window.expire(Time(11_000), WAIT, &mut Effects::new());
        assert!(!window.expire(Time(14_999), WAIT, &mut Effects::new()));
        assert!(window.is_share_used(&next, UNACKED_MAX));
        assert!(window.expire(Time(15_000), WAIT, &mut Effects::new()));
        assert!(!window.is_share_used(&next, UNACKED_MAX));
        window.sent(&next, Time(15_000), Origin::Store);
        assert_eq!(window.len(), 2);
        window.expire(Time(16_000), WAIT, &mut Effects::new());
        assert_eq!((window.len(), window.contains(short.id)), (2, false));
    }
}
