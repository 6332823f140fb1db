//! A schedule that wakes many subscribers, one after the other.
//!
//! Each sits at a random point of the schedule. When something changes the hand goes round once, in the schedule's
//! period, and wakes those it passes who do not know of it yet. What changes while the hand moves makes
//! it move on, until one period after that. So each follower hears of a change within a period, none is
//! woken twice in one however many changes there are, and their waking is spread evenly over it.
//!
//! There is no queue of changes: the schedule holds an entry for each follower, and nothing else that grows.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::feed::FeedSyncId;
use crate::ids::ConnectionId;
use crate::time::{Span, Time};

/// Followers, and a hand that goes round while there is something to tell.
#[derive(Debug, Clone)]
pub struct FanoutSchedule<F> {
    /// How long the hand takes to go round.
    period: Span,
    /// Changes so far.
    head: FeedSyncId,
    subscribers: BTreeMap<SlotEntry, Subscriber<F>>,
    /// Where the hand stands, or began to move.
    cursor: u64,
    /// None while the hand stands still.
    turning: Option<Turning>,
}

/// Where a follower sits. Those at the same point are woken in the order in which they came.
type SlotEntry = (u64, ConnectionId);

#[derive(Debug, Clone)]
struct Subscriber<F> {
    /// It knows of all changes up to here, or will find out because it was woken.
    told: FeedSyncId,
    reach: F,
}

#[derive(Debug, Clone, Copy)]
struct Turning {
    began: Time,
    /// One period after the last change.
    until: Time,
    /// How far the hand has come since it began, and when. All the way round is [`ROUND`].
    angle: u64,
    turned: Time,
}

/// Between two turns of the cursor, so that thousands of subscribers do not make thousands of timers.
pub const TICK: Span = Span(50);

/// All points of the schedule.
const ROUND: u64 = 1 << 32;

impl<F> FanoutSchedule<F> {
    /// An empty schedule. With a period of zero everybody is woken at once.
    pub fn new(period: Span) -> Self {
        Self {
            period,
            head: FeedSyncId::NONE,
            subscribers: BTreeMap::new(),
            cursor: 0,
            turning: None,
        }
    }

    /// A follower sits down at `point` and knows of all changes up to `told`. If that is not all, the hand
    /// goes round for it.
    pub fn subscribe(
        &mut self,
        now: Time,
        slot: u32,
        id: ConnectionId,
        told: FeedSyncId,
        reach: F,
    ) {
        self.catch_up(now);
        self.subscribers.insert((slot.into(), id), Subscriber { told, reach });
        if told != self.head {
            self.advance(now);
        }
    }

    /// It leaves. Answers whether it was there.
    pub fn unsubscribe(&mut self, slot: u32, id: ConnectionId) -> bool {
        self.subscribers.remove(&(slot.into(), id)).is_some()
    }

    /// Something changed: there are changes up to `head` now. A lesser number than before is of a feed that was
    /// started anew, and news to everybody.
    pub fn changed(&mut self, now: Time, head: FeedSyncId) {
        if head != self.head {
            self.head = head;
            self.advance(now);
        }
    }

    /// Moves the hand to where it is at `now`, and has `wake` wake those it passes who do not know of
    /// all changes. Whom `wake` finds gone leaves the schedule. Answers how many were woken.
    pub fn tick(&mut self, now: Time, mut wake: impl FnMut(&F) -> bool) -> usize {
        let Some(turning) = self.turning else { return 0 };
        let now = now.clamp(turning.turned, turning.until);
        let angle = turning.angle_at(now, self.period);
        let [first, second] = entries(self.cursor, turning.angle, angle);
        self.turning = (now < turning.until).then_some(Turning { angle, turned: now, ..turning });
        if self.turning.is_none() {
            self.cursor = slot(self.cursor, angle);
        }
        self.wake_slots(first, &mut wake) + self.wake_slots(second, &mut wake)
    }

    /// When [`FanoutSchedule::tick`] is due; none while the hand stands still.
    pub fn deadline(&self) -> Option<Time> {
        let Turning { began, until, angle, turned } = self.turning?;
        let passed_at = |way| began + time_for(angle + way + 1, self.period);
        Some(self.way_to_next(angle).map_or(until, passed_at).max(turned + TICK).min(until))
    }

    /// How many follow.
    pub fn len(&self) -> usize {
        self.subscribers.len()
    }

    /// Whether nobody follows.
    pub fn is_empty(&self) -> bool {
        self.subscribers.is_empty()
    }

    /// The hand moves until one period from now. Where nobody sits there is nobody to tell.
    fn advance(&mut self, now: Time) {
        let until = now + self.period;
        match &mut self.turning {
            Some(turning) => turning.until = turning.until.max(until),
            None if self.subscribers.is_empty() => {}
            None => self.turning = Some(Turning { began: now, until, angle: 0, turned: now }),
        }
    }

    /// The hand was left standing where the last one was woken. It goes on to where it would be, as far as
    /// there is nobody: who sits down behind it was passed.
    fn catch_up(&mut self, now: Time) {
        let Some(Turning { angle, turned, until, .. }) = self.turning else { return };
        let way = self.way_to_next(angle);
        if let Some(turning) = &mut self.turning {
            let here = turning.angle_at(now.clamp(turned, until), self.period);
            turning.angle = way.map_or(here, |way| here.min(angle + way));
        }
    }

    /// How far it is from where the hand has come to the next follower.
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
        for (seat, follower) in self.subscribers.range_mut(entries) {
            if follower.told != self.head {
                follower.told = self.head;
                if wake(&follower.reach) {
                    woken += 1;
                } else {
                    gone.push(*seat);
                }
            }
        }
        for seat in gone {
            self.subscribers.remove(&seat);
        }
        woken
    }
}

impl Turning {
    fn angle_at(self, now: Time, period: Span) -> u64 {
        if period == Span::ZERO { ROUND } else { angle_of(now.since(self.began), period) }
    }
}

/// How far the hand comes in `span`.
fn angle_of(span: Span, period: Span) -> u64 {
    let angle = u128::from(span.0) * u128::from(ROUND) / u128::from(period.0.max(1));
    u64::try_from(angle).unwrap_or(u64::MAX)
}

/// How long the hand takes to come so far.
fn time_for(angle: u64, period: Span) -> Span {
    let span = (u128::from(angle) * u128::from(period.0)).div_ceil(u128::from(ROUND));
    Span(u64::try_from(span).unwrap_or(u64::MAX))
}

/// Where a hand that began at `hand` is when it has come so far.
fn slot(cursor: u64, angle: u64) -> u64 {
    (cursor + angle % ROUND) % ROUND
}

/// The seats that a hand which began at `hand` passes between two angles, in the order it passes them.
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

/// No connection has a lesser number.
const FIRST: ConnectionId = ConnectionId(0);

#[cfg(test)]
mod tests;
