//! A schedule that wakes many subscribers one after the other.
//!
//! Each subscriber has a random slot. After a change the cursor makes one round through all slots,
//! in one period, and wakes the subscribers that it passes and that have not seen the change. A
//! change during the round extends it until one period after that change.
//!
//! So each subscriber learns of a change within one period, and is woken at most once in a period.
//! The wake-ups are spread evenly over the period.
//!
//! There is no queue of changes. Memory grows with the number of subscribers only.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::feed::FeedSyncId;
use crate::ids::ConnectionId;
use crate::time::{Span, Time};

/// The subscribers, and a cursor that moves while some of them have not seen the last change.
#[derive(Debug, Clone)]
pub struct FanoutSchedule<F> {
    /// The duration of one round.
    period: Span,
    /// The number of the last change.
    head: FeedSyncId,
    subscribers: BTreeMap<SlotEntry, Subscriber<F>>,
    /// The slot where the cursor rests, or where its round began.
    cursor: u64,
    /// None while the cursor rests.
    round: Option<Round>,
}

/// A subscriber's slot. Subscribers of the same slot are woken in the order of their connection
/// ids.
type SlotEntry = (u64, ConnectionId);

#[derive(Debug, Clone)]
struct Subscriber<F> {
    /// The last change it has seen, or was woken for.
    last_sent: FeedSyncId,
    reach: F,
}

#[derive(Debug, Clone, Copy)]
struct Round {
    began: Time,
    /// One period after the last change.
    until: Time,
    /// The distance that the cursor has moved since `began`, as of `moved_at`. One round is
    /// [`ROUND`].
    angle: u64,
    moved_at: Time,
}

/// The minimum time between two ticks, so that thousands of subscribers do not need thousands of
/// timers.
pub const TICK: Span = Span(50);

/// The number of slots of a round.
const ROUND: u64 = 1 << 32;

impl<F> FanoutSchedule<F> {
    /// An empty schedule. If the period is zero, all subscribers are woken at once.
    pub fn new(period: Span) -> Self {
        Self {
            period,
            head: FeedSyncId::NONE,
            subscribers: BTreeMap::new(),
            cursor: 0,
            round: None,
        }
    }

    /// Adds a subscriber at `slot` that has seen all changes up to `last_sent`. If there are later
    /// ones, the cursor makes a round or extends it, and so passes this slot.
    pub fn subscribe(
        &mut self,
        now: Time,
        slot: u32,
        id: ConnectionId,
        last_sent: FeedSyncId,
        reach: F,
    ) {
        self.catch_up(now);
        self.subscribers.insert((slot.into(), id), Subscriber { last_sent, reach });
        if last_sent != self.head {
            self.advance(now);
        }
    }

    /// Removes a subscriber. Returns whether it was subscribed.
    pub fn unsubscribe(&mut self, slot: u32, id: ConnectionId) -> bool {
        self.subscribers.remove(&(slot.into(), id)).is_some()
    }

    /// Records that the last change is `head`. A lesser number than before belongs to a feed that
    /// was restarted, and is new to every subscriber.
    pub fn changed(&mut self, now: Time, head: FeedSyncId) {
        if head != self.head {
            self.head = head;
            self.advance(now);
        }
    }

    /// Moves the cursor to its position at `now`, and calls `wake` for each subscriber it passes
    /// that has not seen the last change. If `wake` returns false, the subscriber is removed.
    /// Returns the number of subscribers woken.
    pub fn tick(&mut self, now: Time, mut wake: impl FnMut(&F) -> bool) -> usize {
        let Some(round) = self.round else { return 0 };
        let now = now.clamp(round.moved_at, round.until);
        let angle = round.angle_at(now, self.period);
        let [first, second] = entries(self.cursor, round.angle, angle);
        self.round = (now < round.until).then_some(Round { angle, moved_at: now, ..round });
        if self.round.is_none() {
            self.cursor = slot(self.cursor, angle);
        }
        self.wake_slots(first, &mut wake) + self.wake_slots(second, &mut wake)
    }

    /// When [`FanoutSchedule::tick`] is due; none while the cursor rests.
    pub fn deadline(&self) -> Option<Time> {
        let Round { began, until, angle, moved_at } = self.round?;
        let passed_at = |way| began + time_for(angle + way + 1, self.period);
        Some(self.way_to_next(angle).map_or(until, passed_at).max(moved_at + TICK).min(until))
    }

    pub fn len(&self) -> usize {
        self.subscribers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.subscribers.is_empty()
    }

    /// Extends the round until one period from now, or begins one if there are subscribers.
    fn advance(&mut self, now: Time) {
        let until = now + self.period;
        match &mut self.round {
            Some(round) => round.until = round.until.max(until),
            None if self.subscribers.is_empty() => {}
            None => self.round = Some(Round { began: now, until, angle: 0, moved_at: now }),
        }
    }

    /// No tick is due before the next subscriber, so the cursor may be behind its position at
    /// `now`. It moves there, but not past the next subscriber. A new subscriber behind it counts
    /// as passed.
    fn catch_up(&mut self, now: Time) {
        let Some(Round { angle, moved_at, until, .. }) = self.round else { return };
        let way = self.way_to_next(angle);
        if let Some(round) = &mut self.round {
            let here = round.angle_at(now.clamp(moved_at, until), self.period);
            round.angle = way.map_or(here, |way| here.min(angle + way));
        }
    }

    /// The distance from the cursor to the next subscriber.
    fn way_to_next(&self, angle: u64) -> Option<u64> {
        let cursor = slot(self.cursor, angle);
        let next = self.subscribers.range((cursor, FIRST)..).chain(&self.subscribers).next();
        next.map(|((slot, _), _)| (slot + ROUND - cursor) % ROUND)
    }

    fn wake_slots(
        &mut self,
        entries: Range<SlotEntry>,
        wake: &mut impl FnMut(&F) -> bool,
    ) -> usize {
        let mut gone = Vec::new();
        let mut woken = 0;
        for (entry, subscriber) in self.subscribers.range_mut(entries) {
            if subscriber.last_sent != self.head {
                subscriber.last_sent = self.head;
                if wake(&subscriber.reach) {
                    woken += 1;
                } else {
                    gone.push(*entry);
                }
            }
        }
        for entry in gone {
            self.subscribers.remove(&entry);
        }
        woken
    }
}

impl Round {
    fn angle_at(self, now: Time, period: Span) -> u64 {
        if period == Span::ZERO { ROUND } else { angle_of(now.since(self.began), period) }
    }
}

/// The distance that the cursor moves in `span`.
fn angle_of(span: Span, period: Span) -> u64 {
    let angle = u128::from(span.0) * u128::from(ROUND) / u128::from(period.0.max(1));
    u64::try_from(angle).unwrap_or(u64::MAX)
}

/// The time that the cursor needs for this distance.
fn time_for(angle: u64, period: Span) -> Span {
    let span = (u128::from(angle) * u128::from(period.0)).div_ceil(u128::from(ROUND));
    Span(u64::try_from(span).unwrap_or(u64::MAX))
}

/// The slot of a cursor that began at `cursor` and has moved by `angle`.
fn slot(cursor: u64, angle: u64) -> u64 {
    (cursor + angle % ROUND) % ROUND
}

/// The entries that a cursor which began at `cursor` passes between two distances, in that order.
fn entries(cursor: u64, from: u64, to: u64) -> [Range<SlotEntry>; 2] {
    let (first, end) = (slot(cursor, from), slot(cursor, to));
    let between = |from, to| (from, FIRST)..(to, FIRST);
    if to - from >= ROUND {
        [between(first, ROUND), between(0, first)]
    } else if first <= end {
        [between(first, end), between(0, 0)]
    } else {
        [between(first, ROUND), between(0, end)]
    }
}

/// The least connection id.
const FIRST: ConnectionId = ConnectionId(0);

#[cfg(test)]
mod tests;
