//! Checks that messages without an ack delay only their own channel.

use std::collections::{BTreeMap, BTreeSet};

use super::known::State;
use super::rule::{Checked, Invariant, StepRecord, check};
use state_machine::connection::{Effect, Event, Limits, PhaseName, PushAnswer};
use state_machine::ids::{Chid, MessageId, OpId};
use state_machine::message::Message;
use state_machine::store::{RegisterResult, StoreAnswer, StoreOp};
use state_machine::time::{Span, Time};
use state_machine::wire::{ClientMessage, ServerMessage, status};

use Invariant::OthersNotDelayed as Rule;

/// Observes the scans of one connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct FairnessChecker {
    /// Channels whose messages may wait: they had an overdue message on this connection, have used up the share of one
    /// that offered messages in vain, or were given up.
    accused: BTreeSet<Chid>,
    /// Channels of which a row was read that another connection offered in vain.
    suspects: BTreeSet<Chid>,
    /// Whether the agent has set a minimum urgency: any message may wait from then on.
    has_min_urgency: bool,
    /// Whether the agent has a record, and so a month to read.
    has_record: bool,
    /// Operations without an answer. An operation that failed is replaced when it is submitted again.
    in_flight: BTreeMap<Awaited, OpId>,
    /// Whether the page in flight begins a reading of the table.
    is_first_page: bool,
    /// When the last reading of the table began.
    scan_began_at: Option<Time>,
    /// Whether a message was stored that the last scan may not have read.
    is_scan_owed: bool,
    /// Whether the last page was followed by others.
    has_next_page: bool,
    /// Rows that a scan has read and left to its end, with their channel and the end of their TTL.
    left_out: BTreeMap<MessageId, (Chid, Time)>,
    /// Acked messages of which it is unknown whether the connection still remembers their acks.
    doubted_acks: BTreeSet<MessageId>,
    /// Messages that were deleted without being sent here: their channels were given up before. A failed deletion is
    /// repeated, and meanwhile their rows may be read again.
    deleted_unsent: BTreeSet<MessageId>,
    /// Channels of which the last scan left rows in storage, because they have used up their share.
    held: BTreeSet<Chid>,
    /// Channels with a message that became overdue since their last ack.
    silent: BTreeSet<Chid>,
    /// Overdue messages at the last ack of their channel. They say nothing about it any more.
    forgiven: BTreeSet<MessageId>,
    /// Until when storage must be read, because an endpoint was answered to store a message.
    must_read_by: Option<Time>,
}

/// Operations that read messages or channels, or delete messages: one of each at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Awaited {
    Page,
    Channels,
    Delete,
}

/// How long an endpoint has to store a message before storage is read without its notification.
const STORE_WAIT: Span = Span::from_secs(5);

/// With so many overdue messages, in windows of `unacked_max`, a channel has one at a time.
const OVERDUE_WINDOWS_SHARED: usize = 8;

/// The messages of the connection as of now.
#[derive(Clone, Copy)]
struct Sent<'a> {
    messages: &'a BTreeMap<MessageId, State>,
    now: Time,
    limits: &'a Limits,
}

/// A message of a connection without an ack.
struct Unacked {
    id: MessageId,
    chid: Chid,
    expires_at: Time,
    /// Whether it was sent less than `ack_wait` ago.
    is_fresh: bool,
}

impl<'a> Sent<'a> {
    fn unacked(self) -> impl Iterator<Item = Unacked> + use<'a> {
        self.messages.iter().filter_map(move |(id, state)| match *state {
            State::Unacked { chid, sent_at, expires_at, .. } => {
                let is_fresh = self.now < sent_at + self.limits.ack_wait;
                Some(Unacked { id: *id, chid, expires_at, is_fresh })
            }
            State::Acked(_) => None,
        })
    }

    /// Whether the channel has as many unacked messages as one that offered some in vain may have.
    fn is_share_used(self, chid: Chid) -> bool {
        let max = self.limits.unacked_max;
        let overdue = self.overdue().filter(|other| self.now < other.expires_at).count();
        let share = if overdue >= OVERDUE_WINDOWS_SHARED * max { 1 } else { self.full_share() };
        // The share of an expired message is free when its ack is overdue.
        let of_channel = self.unacked().filter(|other| other.chid == chid);
        of_channel.filter(|other| self.now < other.expires_at || other.is_fresh).count() >= share
    }

    /// Whether the message was sent or acked, or a higher SimplePush version of its channel.
    fn has_covered(self, id: MessageId) -> bool {
        self.messages.range(id..).next().is_some_and(|(other, _)| other.covers(id))
    }

    fn full_share(self) -> usize {
        (self.limits.unacked_max / 2).max(1)
    }

    /// How many messages of the channel are unacked and not expired.
    fn unacked_of(self, chid: Chid) -> usize {
        self.unacked().filter(|other| other.chid == chid && self.now < other.expires_at).count()
    }

    /// Whether a message other than this one was sent less than `ack_wait` ago and is not acked.
    fn has_fresh_besides(self, besides: Option<MessageId>) -> bool {
        self.unacked().any(|other| other.is_fresh && Some(other.id) != besides)
    }

    fn overdue(self) -> impl Iterator<Item = Unacked> + use<'a> {
        self.unacked().filter(|unacked| !unacked.is_fresh)
    }
}

impl FairnessChecker {
    /// Takes the next step of an open connection, with its messages after the step.
    pub(super) fn observe(
        &mut self,
        seen: &StepRecord<'_>,
        messages: &BTreeMap<MessageId, State>,
        limits: &Limits,
    ) -> Checked {
        let sent = Sent { messages, now: seen.now, limits };
        for Unacked { id, chid, expires_at, .. } in sent.overdue() {
            self.accused.insert(chid);
            if seen.now < expires_at && !self.forgiven.contains(&id) {
                self.silent.insert(chid);
            }
        }
        let was_idle = self.is_idle();
        self.happened(seen.event, sent);
        if let Event::MessageReceived(ClientMessage::Ack { updates }) = seen.event {
            let doubted = updates.iter().map(|update| update.id);
            self.doubted_acks.extend(doubted.filter(|id| !messages.contains_key(id)));
        }
        seen.effects.iter().for_each(|effect| self.effect_seen(effect, seen));
        self.deleted_unsent.retain(|id| !messages.contains_key(id));
        self.forgiven.retain(|id| matches!(messages.get(id), Some(State::Unacked { .. })));
        let accused = &self.accused;
        self.left_out.retain(|id, (chid, expires_at)| {
            !messages.contains_key(id) && !accused.contains(chid) && seen.now < *expires_at
        });
        self.share_is_kept(seen, sent)?;
        if seen.before == PhaseName::Ready && seen.after == PhaseName::Ready {
            self.push_is_sent(seen, sent, was_idle)?;
            self.page_is_sent(seen, sent)?;
            if !sent.has_fresh_besides(None) && self.in_flight.is_empty() {
                self.rests(seen, sent)?;
            }
        }
        Ok(())
    }

    /// Checks a connection that waits for nothing but time. A scan may wait for `ack_wait` after the last one began, if
    /// some channel's messages may wait, or those that are not urgent enough.
    fn rests(&self, seen: &StepRecord<'_>, sent: Sent<'_>) -> Checked {
        let next = seen.deadline.map(|(at, _)| at);
        let is_by = |by: Time| next.is_some_and(|at| at <= by);
        check!(!self.has_next_page, Rule, "the scan does not go on, though no ack is awaited");
        let left_out = &self.left_out;
        check!(left_out.is_empty(), Rule, "{left_out:?} were left out");
        if self.paced_until(sent).is_some_and(is_by) {
            return Ok(());
        }
        check!(!self.is_scan_owed, Rule, "storage is not read, though no ack is awaited");
        let free = self.held.iter().find(|chid| !sent.is_share_used(**chid));
        check!(free.is_none(), Rule, "rows of {free:?} are left, though its share is not used up");
        let read_by = self.must_read_by;
        let is_in_time = read_by.is_none_or(is_by);
        check!(is_in_time, Invariant::StoredIsRead, "{next:?} is after {read_by:?}");
        Ok(())
    }

    /// Until when the next scan may wait, if it may.
    fn paced_until(&self, sent: Sent<'_>) -> Option<Time> {
        let leaves_rows = self.has_min_urgency || !self.accused.is_empty();
        let until = self.scan_began_at.filter(|_| leaves_rows)? + sent.limits.ack_wait;
        Some(until).filter(|until| sent.now < *until)
    }

    /// Whether there is nothing to read.
    fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && !self.is_scan_owed && !self.has_next_page
    }

    fn happened(&mut self, event: &Event, sent: Sent<'_>) {
        match event {
            Event::MessageStored => self.is_scan_owed = self.has_record,
            Event::MessageReceived(ClientMessage::Ack { updates }) => {
                let is_acked = |chid: &Chid| updates.iter().any(|update| update.chid == *chid);
                self.silent.retain(|chid| !is_acked(chid));
                let forgiven = sent.overdue().filter(|overdue| is_acked(&overdue.chid));
                self.forgiven.extend(forgiven.map(|overdue| overdue.id));
            }
            Event::StoreAnswered { op, answer: Ok(answer) } if *answer != StoreAnswer::NoSpace => {
                let in_flight = self.in_flight.len();
                self.in_flight.retain(|_, awaited| awaited != op);
                let was_in_flight = self.in_flight.len() < in_flight;
                match answer {
                    StoreAnswer::Registered(RegisterResult::Registered(..)) => {
                        self.has_record = true;
                    }
                    StoreAnswer::Fetched(page) if was_in_flight => {
                        self.has_next_page = page.next.is_some();
                        if self.is_first_page {
                            self.left_out = BTreeMap::new();
                        }
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn effect_seen(&mut self, effect: &Effect, seen: &StepRecord<'_>) {
        match effect {
            Effect::AnswerPush { answer: PushAnswer::Busy | PushAnswer::Unconfirmed, .. }
                if matches!(seen.event, Event::PushArrived { .. }) =>
            {
                self.must_read_by = Some(seen.now + STORE_WAIT);
            }
            Effect::Send(ServerMessage::UrgencySet { status: status::OK }) => {
                self.has_min_urgency = true;
            }
            Effect::SubmitStoreOp {
                op,
                operation: StoreOp::Fetch { after, .. } | StoreOp::FetchVersions { after, .. },
            } => {
                self.is_first_page = after.is_none();
                if self.is_first_page {
                    self.scan_began_at = Some(seen.now);
                    self.held = BTreeSet::new();
                }
                self.is_scan_owed &= !self.is_first_page;
                self.has_next_page = false;
                if self.is_first_page && self.must_read_by.is_some_and(|by| by <= seen.now) {
                    self.must_read_by = None;
                }
                self.in_flight.insert(Awaited::Page, *op);
            }
            Effect::SubmitStoreOp { op, operation: StoreOp::ReadChannels { .. } } => {
                self.in_flight.insert(Awaited::Channels, *op);
            }
            Effect::SubmitStoreOp { op, operation: StoreOp::Delete { messages, .. } } => {
                self.in_flight.insert(Awaited::Delete, *op);
                self.deleted_unsent.extend(messages.iter().map(|message| message.id));
            }
            Effect::Send(ServerMessage::Unregistered { chid, status: status::OK }) => {
                self.accused.insert(*chid);
                self.held.remove(chid);
            }
            _ => {}
        }
    }

    /// A channel that had an overdue message since its last ack fills no more than its share of the window.
    fn share_is_kept(&self, seen: &StepRecord<'_>, sent: Sent<'_>) -> Checked {
        for effect in seen.effects {
            let Effect::Send(ServerMessage::Notification(message)) = effect else { continue };
            let unacked = sent.unacked_of(message.chid);
            let is_kept = message.ttl_is_zero() || unacked <= sent.full_share();
            let is_silent = self.silent.contains(&message.chid);
            check!(!is_silent || is_kept, Rule, "{unacked} unacked with {}", message.id);
        }
        Ok(())
    }

    /// A push is sent if there is nothing to read and no other message waits for its ack in time. One with a topic waits
    /// for a scan that is due, if that may wait.
    fn push_is_sent(&self, seen: &StepRecord<'_>, sent: Sent<'_>, was_idle: bool) -> Checked {
        let Event::PushArrived { message, .. } = seen.event else { return Ok(()) };
        let is_busy =
            |effect: &Effect| matches!(effect, Effect::AnswerPush { answer: PushAnswer::Busy, .. });
        let must_be_sent = was_idle
            && (message.topic.is_none() || self.paced_until(sent).is_none())
            && !sent.has_fresh_besides(Some(message.id))
            && self.is_due(message, sent)
            && seen.effects.iter().any(is_busy);
        check!(!must_be_sent, Rule, "{} is busy, though no ack is awaited", message.id);
        Ok(())
    }

    /// A row of a channel without overdue messages is sent as soon as it is read.
    fn page_is_sent(&mut self, seen: &StepRecord<'_>, sent: Sent<'_>) -> Checked {
        let Event::StoreAnswered { answer: Ok(StoreAnswer::Fetched(page)), .. } = seen.event else {
            return Ok(());
        };
        let offered_in_vain = page.messages.iter().filter(|message| message.offers > 0);
        self.suspects.extend(offered_in_vain.map(|message| message.chid));
        let is_doubtful = |effect: &Effect| {
            matches!(effect, Effect::SubmitStoreOp { operation: StoreOp::ReadChannels { .. }, .. })
        };
        if seen.effects.iter().any(is_doubtful) {
            return Ok(());
        }
        let is_read_again = seen.effects.iter().any(begins_scan);
        for message in &page.messages {
            let is_left = !sent.has_covered(message.id)
                && !self.has_min_urgency
                && sent.now < message.expires_at();
            if is_left
                && !is_read_again
                && !message.is_offered_often()
                && sent.is_share_used(message.chid)
            {
                self.held.insert(message.chid);
            }
            if !self.is_due(message, sent) {
                continue;
            }
            if self.suspects.contains(&message.chid) && sent.is_share_used(message.chid) {
                self.accused.insert(message.chid);
                continue;
            }
            check!(message.is_offered_often(), Rule, "{} was read and not sent", message.id);
            self.left_out.insert(message.id, (message.chid, message.expires_at()));
        }
        Ok(())
    }

    /// Whether the message must be sent as soon as there is room.
    fn is_due(&self, message: &Message, sent: Sent<'_>) -> bool {
        !sent.has_covered(message.id)
            && !self.accused.contains(&message.chid)
            && !self.doubted_acks.iter().any(|acked| acked.covers(message.id))
            && !self.deleted_unsent.contains(&message.id)
            && !self.has_min_urgency
            && sent.now < message.expires_at()
    }
}

fn begins_scan(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::SubmitStoreOp {
            operation: StoreOp::Fetch { after: None, .. }
                | StoreOp::FetchVersions { after: None, .. },
            ..
        }
    )
}
