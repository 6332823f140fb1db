//! How a feed is followed: what to fetch, and which cursor was consumed.
//!
//! ```text
//!   New ─started─► Fetching ──a page──► Consuming ──consumed, the head is further──► Fetching
//!                   ▲  │ │ failed           └───────consumed, nothing more──┐
//!                   │  │ └─────► Failed ─retry─► Fetching                   ▼
//!                   │  └─────────nothing new──────────────────────────► CaughtUp
//!                   └──────────────────────the head moved───────────────────┘
//! ```
//!
//! One page is pending at a time, and the next is fetched only after this one was consumed, so a slow consumer is not sent
//! more than it takes.
//!
//! Architecture invariant: the cursor only grows, and only over consumed updates. A consumer that starts again with its
//! cursor is given at least everything that it had not consumed.

use super::update::{FeedPage, FeedSyncId};
use crate::backoff::Backoff;
use crate::paging::{PageLimit, StoreFailed};
use crate::time::{Span, Time};
use crate::variant_name;

/// The limits of a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConsumerLimits {
    pub page: PageLimit,
    /// The wait after a store failure. It doubles with each consecutive failure, up to 64 times.
    pub retry: Span,
}

/// An event of a feed or of its consumer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ConsumerEvent {
    /// The consumer is ready. Only this event leads to the first effect.
    Started,
    /// The feed's head is at this number.
    HeadMoved(FeedSyncId),
    /// The result of [`ConsumerEffect::Fetch`]: none if the feed does not exist.
    Fetched(Result<Option<FeedPage>, StoreFailed>),
    /// The page of the last [`ConsumerEffect::Consume`] was consumed.
    Consumed,
    /// The deadline may have passed.
    TimePassed,
}

/// An effect of a consumer, executed by its driver.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ConsumerEffect {
    /// Read a page of the feed. At most one such effect is pending.
    Fetch {
        /// Only updates after this number.
        after: FeedSyncId,
        limit: PageLimit,
    },
    /// Deliver these updates, store the page's cursor, then return [`ConsumerEvent::Consumed`]. A
    /// page without updates still moves the cursor: the keys before it changed again.
    Consume(FeedPage),
    /// The feed cannot be consumed. The last effect of a consumer.
    End(ConsumerEnd),
}

/// Why a consumer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConsumerEnd {
    /// The feed was never written.
    NoSuchFeed,
    /// The cursor is a number that was never assigned: it belongs to another feed or another store.
    CursorFromTheFuture {
        /// The feed's greatest number.
        head: FeedSyncId,
    },
    /// Deletions behind the cursor are forgotten. The consumer discards what it has, and starts over
    /// without a cursor.
    CursorTooOld {
        /// The number up to which the feed has forgotten its entries.
        horizon: FeedSyncId,
    },
}

impl ConsumerEnd {
    /// The end of a consumer that cannot consume a page, which was read behind `after`.
    pub fn of(page: &FeedPage, after: FeedSyncId) -> Option<Self> {
        let FeedPage { head, horizon, .. } = *page;
        match page.is_too_late(after) {
            _ if head < after => Some(Self::CursorFromTheFuture { head }),
            true => Some(Self::CursorTooOld { horizon }),
            false => None,
        }
    }
}

/// One consumer of a feed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Consumer {
    limits: ConsumerLimits,
    stage: ConsumerState,
    /// The last number that was consumed.
    cursor: FeedSyncId,
    /// The greatest number known to this consumer.
    head: FeedSyncId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ConsumerState {
    New,
    Fetching {
        /// The known head when the fetch began.
        known: FeedSyncId,
        backoff: Backoff,
    },
    Consuming {
        /// The cursor after the page.
        cursor: FeedSyncId,
    },
    Failed {
        until: Time,
        backoff: Backoff,
    },
    CaughtUp,
    Ended,
}

use ConsumerEffect as Do;
use ConsumerEvent as Is;

impl Consumer {
    /// A consumer that has consumed everything up to `cursor`.
    pub fn new(limits: ConsumerLimits, cursor: FeedSyncId) -> Self {
        Self { limits, stage: ConsumerState::New, cursor, head: FeedSyncId::NONE }
    }

    /// Applies an event and returns at most one effect.
    pub fn step(&mut self, now: Time, event: ConsumerEvent) -> Vec<ConsumerEffect> {
        match (self.stage, event) {
            (ConsumerState::New, Is::Started) => vec![self.fetch(self.backoff())],
            (stage, Is::HeadMoved(head)) => {
                self.head = self.head.max(head);
                if stage == ConsumerState::CaughtUp { self.go_on() } else { Vec::new() }
            }
            (ConsumerState::Fetching { known, backoff }, Is::Fetched(fetched)) => match fetched {
                Ok(Some(page)) => self.fetched(now, known, backoff, page),
                Ok(None) => self.end(ConsumerEnd::NoSuchFeed),
                Err(StoreFailed) => self.failed(now, backoff),
            },
            (ConsumerState::Consuming { cursor }, Is::Consumed) => {
                self.cursor = cursor;
                self.go_on()
            }
            (ConsumerState::Failed { until, backoff }, Is::TimePassed) if until <= now => {
                vec![self.fetch(backoff)]
            }
            // An answer without a pending effect changes nothing: its updates are fetched again, or
            // were already. Neither does a deadline in the future.
            (_, Is::Started | Is::Fetched(_) | Is::Consumed | Is::TimePassed) => Vec::new(),
        }
    }

    /// When [`ConsumerEvent::TimePassed`] is due: the retry after a store failure.
    pub fn deadline(&self) -> Option<Time> {
        match self.stage {
            ConsumerState::Failed { until, .. } => Some(until),
            _ => None,
        }
    }

    /// Its state as in the diagram above, for a trace. After [`ConsumerEffect::End`] it is `Ended`.
    pub fn phase(&self) -> String {
        variant_name(&self.stage)
    }

    /// The number up to which everything was consumed.
    pub fn cursor(&self) -> FeedSyncId {
        self.cursor
    }

    /// Whether everything up to the known head was consumed, after at least one fetch.
    pub fn is_caught_up(&self) -> bool {
        self.stage == ConsumerState::CaughtUp
    }

    fn fetched(
        &mut self,
        now: Time,
        known: FeedSyncId,
        backoff: Backoff,
        page: FeedPage,
    ) -> Vec<ConsumerEffect> {
        if let Some(end) = ConsumerEnd::of(&page, self.cursor) {
            return self.end(end);
        }
        self.head = self.head.max(page.head);
        if self.cursor < page.cursor {
            self.stage = ConsumerState::Consuming { cursor: page.cursor };
            return vec![Do::Consume(page)];
        }
        // The page is empty. If the head has not moved since the fetch began, an immediate retry
        // would return an empty page again.
        let is_stuck = self.cursor < self.head && self.head <= known;
        if is_stuck { self.failed(now, backoff) } else { self.go_on() }
    }

    fn go_on(&mut self) -> Vec<ConsumerEffect> {
        if self.cursor < self.head {
            return vec![self.fetch(self.backoff())];
        }
        self.stage = ConsumerState::CaughtUp;
        Vec::new()
    }

    fn fetch(&mut self, backoff: Backoff) -> ConsumerEffect {
        self.stage = ConsumerState::Fetching { known: self.head, backoff };
        Do::Fetch { after: self.cursor, limit: self.limits.page }
    }

    fn backoff(&self) -> Backoff {
        Backoff::of_store(self.limits.retry)
    }

    fn failed(&mut self, now: Time, mut backoff: Backoff) -> Vec<ConsumerEffect> {
        let until = now + backoff.next();
        self.stage = ConsumerState::Failed { until, backoff };
        Vec::new()
    }

    fn end(&mut self, end: ConsumerEnd) -> Vec<ConsumerEffect> {
        self.stage = ConsumerState::Ended;
        vec![Do::End(end)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::{FeedKey, FeedValue, Update, Version};

    #[test]
    fn pages_are_fetched_one_after_the_other_until_the_head() {
        let mut consumer = consumer(0);
        assert_eq!(consumer.step(at(0), Is::Started), [fetch(0)]);
        assert_eq!(consumer.step(at(1), fetched(&[1, 2], 2, 3)), [consume(&[1, 2], 2, 3)]);
        assert_eq!(consumer.cursor(), FeedSyncId(0));
        assert_eq!(consumer.step(at(2), Is::Consumed), [fetch(2)]);
        assert_eq!(consumer.cursor(), FeedSyncId(2));
        assert_eq!(consumer.step(at(3), fetched(&[3], 3, 3)), [consume(&[3], 3, 3)]);
        assert!(!consumer.is_caught_up());
        assert_eq!(consumer.step(at(4), Is::Consumed), []);
        assert!(consumer.is_caught_up());
    }

    #[test]
    fn a_head_that_is_not_behind_the_cursor_needs_no_fetch() {
        let mut consumer = caught_up(3);
        assert_eq!(consumer.step(at(5), Is::HeadMoved(FeedSyncId(3))), []);
        assert_eq!(consumer.step(at(5), Is::HeadMoved(FeedSyncId(2))), []);
        assert!(consumer.is_caught_up());
        assert_eq!(consumer.step(at(6), Is::HeadMoved(FeedSyncId(4))), [fetch(3)]);
        assert!(!consumer.is_caught_up());
    }

    #[test]
    fn nothing_is_fetched_before_the_last_page_was_consumed() {
        let mut consumer = consumer(0);
        consumer.step(at(0), Is::Started);
        consumer.step(at(1), fetched(&[1], 1, 1));
        assert_eq!(consumer.step(at(2), Is::HeadMoved(FeedSyncId(9))), []);
        assert_eq!(consumer.step(at(3), Is::Consumed), [fetch(1)]);
    }

    #[test]
    fn a_head_that_moves_during_a_fetch_that_missed_it_leads_to_another() {
        let mut consumer = consumer(3);
        consumer.step(at(0), Is::Started);
        assert_eq!(consumer.step(at(1), Is::HeadMoved(FeedSyncId(4))), []);
        assert_eq!(consumer.step(at(2), fetched(&[], 3, 3)), [fetch(3)]);
    }

    #[test]
    fn a_lesser_head_that_arrives_late_hides_no_update() {
        let mut consumer = consumer(0);
        consumer.step(at(0), Is::Started);
        assert_eq!(consumer.step(at(1), Is::HeadMoved(FeedSyncId(9))), []);
        assert_eq!(consumer.step(at(1), Is::HeadMoved(FeedSyncId(5))), []);
        assert_eq!(consumer.step(at(2), fetched(&[5], 5, 5)), [consume(&[5], 5, 5)]);
        assert_eq!(consumer.step(at(3), Is::Consumed), [fetch(5)]);
    }

    #[test]
    fn a_head_received_before_the_start_is_remembered() {
        let mut consumer = consumer(0);
        assert_eq!(consumer.step(at(0), Is::HeadMoved(FeedSyncId(2))), []);
        assert_eq!(consumer.step(at(0), Is::Started), [fetch(0)]);
        consumer.step(at(1), fetched(&[1], 1, 1));
        assert_eq!(consumer.step(at(1), Is::Consumed), [fetch(1)]);
    }

    #[test]
    fn a_page_with_a_cursor_only_is_consumed_too() {
        let mut consumer = consumer(0);
        consumer.step(at(0), Is::Started);
        assert_eq!(consumer.step(at(1), fetched(&[], 5, 7)), [consume(&[], 5, 7)]);
        assert_eq!(consumer.step(at(2), Is::Consumed), [fetch(5)]);
    }

    #[test]
    fn a_fetch_that_failed_is_made_again_later_each_time_later() {
        let mut consumer = consumer(4);
        consumer.step(at(0), Is::Started);
        for (now, until) in [(0, 100), (100, 300), (300, 700)] {
            assert_eq!(consumer.step(at(now), failed()), []);
            assert_eq!(consumer.deadline(), Some(at(until)));
            assert_eq!(consumer.step(at(now), Is::HeadMoved(FeedSyncId(9))), []);
            assert_eq!(consumer.step(at(until - 1), Is::TimePassed), []);
            assert_eq!(consumer.step(at(until), Is::TimePassed), [fetch(4)]);
        }
        assert_eq!(consumer.step(at(701), fetched(&[5], 5, 9)), [consume(&[5], 5, 9)]);
        assert_eq!(consumer.deadline(), None);
    }

    #[test]
    fn a_store_that_gives_nothing_of_a_head_it_has_is_not_asked_in_a_circle() {
        let mut consumer = consumer(0);
        consumer.step(at(0), Is::Started);
        assert_eq!(consumer.step(at(1), fetched(&[], 0, 3)), [fetch(0)]);
        assert_eq!(consumer.step(at(2), fetched(&[], 0, 3)), []);
        assert_eq!(consumer.deadline(), Some(at(102)));
        assert_eq!(consumer.step(at(102), Is::TimePassed), [fetch(0)]);
        assert_eq!(consumer.step(at(103), fetched(&[], 0, 3)), []);
        assert_eq!(consumer.deadline(), Some(at(303)));
    }

    #[test]
    fn a_feed_that_is_not_there_and_a_cursor_from_the_future_end_it() {
        let ends = [
            (Is::Fetched(Ok(None)), ConsumerEnd::NoSuchFeed),
            (fetched(&[], 8, 7), ConsumerEnd::CursorFromTheFuture { head: FeedSyncId(7) }),
        ];
        for (answer, end) in ends {
            let mut consumer = consumer(8);
            consumer.step(at(0), Is::Started);
            assert_eq!(consumer.step(at(1), answer), [Do::End(end)]);
            assert_eq!(consumer.step(at(2), Is::HeadMoved(FeedSyncId(9))), []);
            assert_eq!(consumer.step(at(2), Is::Started), []);
            assert_eq!((consumer.deadline(), consumer.is_caught_up()), (None, false));
        }
    }

    #[test]
    fn a_cursor_below_the_horizon_ends_it_and_none_does_not() {
        let of_horizon =
            |page: FeedPage| Is::Fetched(Ok(Some(FeedPage { horizon: FeedSyncId(5), ..page })));
        let end = ConsumerEnd::CursorTooOld { horizon: FeedSyncId(5) };
        let mut late = consumer(4);
        late.step(at(0), Is::Started);
        assert_eq!(late.step(at(1), of_horizon(page(&[7], 7, 7))), [Do::End(end)]);
        assert_eq!(late.step(at(2), Is::HeadMoved(FeedSyncId(9))), []);
        for cursor in [0, 5] {
            let mut in_time = consumer(cursor);
            in_time.step(at(0), Is::Started);
            let orders = in_time.step(at(1), of_horizon(page(&[7], 7, 7)));
            assert!(matches!(orders[..], [Do::Consume(_)]), "{cursor}: {orders:?}");
        }
    }

    #[test]
    fn what_was_not_asked_for_changes_nothing() {
        let unasked = || [fetched(&[9], 9, 9), failed(), Is::Consumed, Is::TimePassed];
        for mut consumer in [consumer(3), caught_up(3)] {
            let before = consumer.clone();
            for event in unasked() {
                assert_eq!(consumer.step(at(9), event), []);
            }
            assert_eq!(consumer, before);
        }
    }

    const LIMIT: PageLimit = PageLimit { rows: 2, bytes: 1000 };

    fn consumer(cursor: u64) -> Consumer {
        Consumer::new(ConsumerLimits { page: LIMIT, retry: Span(100) }, FeedSyncId(cursor))
    }

    fn caught_up(cursor: u64) -> Consumer {
        let mut consumer = consumer(cursor);
        consumer.step(at(0), Is::Started);
        consumer.step(at(1), fetched(&[], cursor, cursor));
        assert!(consumer.is_caught_up());
        consumer
    }

    fn at(ms: u64) -> Time {
        Time(ms)
    }

    fn fetch(after: u64) -> ConsumerEffect {
        Do::Fetch { after: FeedSyncId(after), limit: LIMIT }
    }

    fn consume(numbers: &[u64], cursor: u64, head: u64) -> ConsumerEffect {
        Do::Consume(page(numbers, cursor, head))
    }

    fn fetched(numbers: &[u64], cursor: u64, head: u64) -> ConsumerEvent {
        Is::Fetched(Ok(Some(page(numbers, cursor, head))))
    }

    fn failed() -> ConsumerEvent {
        Is::Fetched(Err(StoreFailed))
    }

    fn page(numbers: &[u64], cursor: u64, head: u64) -> FeedPage {
        let update = |number: &u64| Update {
            feed_sync_id: FeedSyncId(*number),
            key: FeedKey::parse(&format!("key {number}")).unwrap(),
            version: Version(2),
            value: FeedValue::parse("bob").ok(),
        };
        let updates = numbers.iter().map(update).collect();
        FeedPage {
            updates,
            cursor: FeedSyncId(cursor),
            head: FeedSyncId(head),
            ..FeedPage::default()
        }
    }
}
