//! When a feed is published: by each node, for the writes that it accepted.
//!
//! ```text
//!           written, watched                  more behind, or written meanwhile
//!   Idle ──────────────────────► Publishing ◄────┐
//!    ▲                            │ │ │ └────────┘
//!    │      the round is over     │ │ └──failed──► Failed ──retry──► Publishing
//!    ├────────────────────────────┘ │
//!    │ no longer watched            ▼ over, and watched
//!    └─────────────────────────── Resting ──written, poll──► Publishing
//! ```
//!
//! A round publishes the keys in their order, a batch at a time, so that frequent changes of the first keys do not starve
//! the last. A write during a round may concern a key that the round has passed, so another round follows.
//!
//! Architecture invariant: everything written before the last [`PublisherEvent::Written`] has its number, or the publisher
//! is not idle.

use std::fmt;
use std::mem;
use std::sync::Arc;

use super::{FeedKey, FeedSyncId, PublishResult, store_backoff};
use crate::backoff::Backoff;
use crate::store::StoreFailed;
use crate::time::{Span, Time};

/// What bounds a publisher.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PublisherLimits {
    /// Keys that are published in one transaction; at least 1.
    pub batch_max: usize,
    /// How long a store that failed is left alone. It doubles with each failure in a row, up to 64 times.
    pub retry: Span,
    /// How often a feed that somebody follows is looked at for what other nodes published.
    pub poll: Span,
}

/// A fact about a feed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PublisherEvent {
    /// Something waits for its number, or may.
    Written,
    /// Whether somebody on this node follows the feed.
    Watched(bool),
    /// What became of [`PublisherOrder::Publish`]: none where there is no such feed.
    Published(Result<Option<PublishResult>, StoreFailed>),
    /// The deadline has come, perhaps.
    TimePassed,
}

/// An order of a publisher.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PublisherOrder {
    /// Give keys that wait their numbers. There is one such order at a time.
    Publish {
        /// Those behind this key; all where there is none.
        after: Option<FeedKey>,
        /// At most so many.
        limit: usize,
    },
    /// Tell those who follow the feed on this node how far it has come.
    Announce {
        /// Its greatest number.
        head: FeedSyncId,
    },
}

/// What a publisher waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PublisherWait {
    /// To look for what other nodes published.
    Poll,
    /// To ask a store again that failed.
    Retry,
}

/// One feed's publishing on one node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Publisher {
    limits: Arc<PublisherLimits>,
    stage: PublisherState,
    /// How far this round has come; none before it begins and once it is over.
    after: Option<FeedKey>,
    /// Something was written since this round began, perhaps before `after`.
    is_written: bool,
    is_watched: bool,
    /// The greatest number that was announced.
    head: FeedSyncId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum PublisherState {
    /// Nothing waits that this node knows of, and nobody follows.
    Idle,
    /// Nothing waits that this node knows of, and somebody follows.
    Resting {
        until: Time,
    },
    Publishing {
        backoff: Backoff,
    },
    /// The publish is made again then, behind the same key.
    Failed {
        until: Time,
        backoff: Backoff,
    },
}

use PublisherEvent as Is;
use PublisherOrder as Do;

impl Publisher {
    /// A publisher of a feed nothing is known of yet.
    pub fn new(limits: Arc<PublisherLimits>) -> Self {
        Self {
            limits,
            stage: PublisherState::Idle,
            after: None,
            is_written: false,
            is_watched: false,
            head: FeedSyncId::NONE,
        }
    }

    /// Takes a fact in and says what to do, in this sequence.
    pub fn step(&mut self, now: Time, event: PublisherEvent) -> Vec<PublisherOrder> {
        match (self.stage, event) {
            (PublisherState::Idle | PublisherState::Resting { .. }, Is::Written) => {
                vec![self.publish(self.backoff())]
            }
            (PublisherState::Publishing { .. } | PublisherState::Failed { .. }, Is::Written) => {
                self.is_written = true;
                Vec::new()
            }
            (_, Is::Watched(is_watched)) => self.watched(is_watched),
            (PublisherState::Publishing { .. }, Is::Published(Ok(published))) => {
                self.published(now, published)
            }
            (PublisherState::Publishing { mut backoff }, Is::Published(Err(StoreFailed))) => {
                let until = now + backoff.next();
                self.stage = PublisherState::Failed { until, backoff };
                Vec::new()
            }
            (PublisherState::Resting { until }, Is::TimePassed) if until <= now => {
                vec![self.publish(self.backoff())]
            }
            (PublisherState::Failed { until, backoff }, Is::TimePassed) if until <= now => {
                vec![self.publish(backoff)]
            }
            // An answer that was not asked for leaves nothing undone; a deadline that has not come stands.
            (
                PublisherState::Idle
                | PublisherState::Resting { .. }
                | PublisherState::Failed { .. },
                Is::Published(_),
            )
            | (_, Is::TimePassed) => Vec::new(),
        }
    }

    /// When [`PublisherEvent::TimePassed`] is due, and why.
    pub fn deadline(&self) -> Option<(Time, PublisherWait)> {
        match self.stage {
            PublisherState::Idle | PublisherState::Publishing { .. } => None,
            PublisherState::Resting { until } => Some((until, PublisherWait::Poll)),
            PublisherState::Failed { until, .. } => Some((until, PublisherWait::Retry)),
        }
    }

    /// Nothing is under way or due, and nobody follows: one who forgets this publisher loses nothing.
    pub fn is_idle(&self) -> bool {
        self.stage == PublisherState::Idle
    }

    fn watched(&mut self, is_watched: bool) -> Vec<PublisherOrder> {
        self.is_watched = is_watched;
        match self.stage {
            PublisherState::Idle if is_watched => vec![self.publish(self.backoff())],
            PublisherState::Resting { .. } if !is_watched => {
                self.stage = PublisherState::Idle;
                Vec::new()
            }
            // The end of the round that is under way looks at it.
            _ => Vec::new(),
        }
    }

    fn published(&mut self, now: Time, published: Option<PublishResult>) -> Vec<PublisherOrder> {
        let (head, next) = published.map(|it| (it.head, it.next)).unwrap_or_default();
        let announced = (self.head < head).then_some(Do::Announce { head });
        self.head = self.head.max(head);
        self.after = next;
        announced.into_iter().chain(self.go_on(now)).collect()
    }

    /// The next batch of the round, or the first of the one that is owed.
    fn go_on(&mut self, now: Time) -> Option<PublisherOrder> {
        if self.after.is_some() || mem::take(&mut self.is_written) {
            return Some(self.publish(self.backoff()));
        }
        let until = now + self.limits.poll;
        self.stage =
            if self.is_watched { PublisherState::Resting { until } } else { PublisherState::Idle };
        None
    }

    fn backoff(&self) -> Backoff {
        store_backoff(self.limits.retry)
    }

    fn publish(&mut self, backoff: Backoff) -> PublisherOrder {
        self.stage = PublisherState::Publishing { backoff };
        Do::Publish { after: self.after.clone(), limit: self.limits.batch_max }
    }
}

impl fmt::Display for PublisherWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Poll => "poll",
            Self::Retry => "retry",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_published_and_announced() {
        let mut publisher = publisher();
        assert_eq!(publisher.step(at(0), Is::Written), [publish(None)]);
        assert_eq!(publisher.step(at(1), published(1, None)), [announce(1)]);
        assert!(publisher.is_idle());
        assert_eq!(publisher.deadline(), None);
    }

    #[test]
    fn a_round_goes_on_behind_the_last_key_until_none_is_left() {
        let mut publisher = publisher();
        assert_eq!(publisher.step(at(0), Is::Written), [publish(None)]);
        let orders = publisher.step(at(1), published(2, Some("fred")));
        assert_eq!(orders, [announce(2), publish(Some("fred"))]);
        assert_eq!(publisher.step(at(2), published(3, None)), [announce(3)]);
        assert!(publisher.is_idle());
    }

    #[test]
    fn a_write_during_a_round_gets_another_one_from_the_beginning() {
        let mut publisher = publisher();
        assert_eq!(publisher.step(at(0), Is::Written), [publish(None)]);
        assert_eq!(publisher.step(at(0), Is::Written), []);
        let orders = publisher.step(at(1), published(2, Some("fred")));
        assert_eq!(orders, [announce(2), publish(Some("fred"))]);
        assert_eq!(publisher.step(at(2), published(3, None)), [announce(3), publish(None)]);
        assert_eq!(publisher.step(at(3), published(3, None)), []);
        assert!(publisher.is_idle());
    }

    #[test]
    fn a_write_while_the_store_is_left_alone_is_not_forgotten() {
        let mut publisher = publisher();
        publisher.step(at(0), Is::Written);
        publisher.step(at(1), published(2, Some("fred")));
        assert_eq!(publisher.step(at(2), failed()), []);
        assert_eq!(publisher.step(at(3), Is::Written), []);
        assert_eq!(publisher.step(at(102), Is::TimePassed), [publish(Some("fred"))]);
        assert_eq!(publisher.step(at(103), published(2, None)), [publish(None)]);
        assert_eq!(publisher.step(at(104), published(3, None)), [announce(3)]);
        assert!(publisher.is_idle());
    }

    #[test]
    fn a_store_that_fails_is_left_alone_longer_each_time() {
        let mut publisher = publisher();
        publisher.step(at(0), Is::Written);
        for (now, until) in [(0, 100), (100, 300), (300, 700)] {
            assert_eq!(publisher.step(at(now), failed()), []);
            assert_eq!(publisher.deadline(), Some((at(until), PublisherWait::Retry)));
            assert_eq!(publisher.step(at(until - 1), Is::TimePassed), []);
            assert_eq!(publisher.step(at(until), Is::TimePassed), [publish(None)]);
        }
        assert_eq!(publisher.step(at(701), published(1, Some("fred"))).len(), 2);
        publisher.step(at(702), failed());
        assert_eq!(publisher.deadline(), Some((at(802), PublisherWait::Retry)));
    }

    #[test]
    fn a_feed_that_is_followed_is_looked_at_again_and_again() {
        let mut publisher = publisher();
        assert_eq!(publisher.step(at(0), Is::Watched(true)), [publish(None)]);
        assert_eq!(publisher.step(at(5), no_such_feed()), []);
        assert_eq!(publisher.deadline(), Some((at(1005), PublisherWait::Poll)));
        assert!(!publisher.is_idle());
        assert_eq!(publisher.step(at(1004), Is::TimePassed), []);
        assert_eq!(publisher.step(at(1005), Is::TimePassed), [publish(None)]);
        assert_eq!(publisher.step(at(1006), published(4, None)), [announce(4)]);
        assert_eq!(publisher.step(at(1100), Is::Written), [publish(None)]);
        assert_eq!(publisher.step(at(1101), published(4, None)), []);
        assert_eq!(publisher.deadline(), Some((at(2101), PublisherWait::Poll)));
        assert_eq!(publisher.step(at(1200), Is::Watched(true)), []);
        assert_eq!(publisher.step(at(1200), Is::Watched(false)), []);
        assert!(publisher.is_idle());
        assert_eq!(publisher.step(at(2101), Is::TimePassed), []);
    }

    #[test]
    fn who_begins_or_ends_to_follow_during_a_round_counts_at_its_end() {
        let mut publisher = publisher();
        publisher.step(at(0), Is::Written);
        assert_eq!(publisher.step(at(0), Is::Watched(true)), []);
        assert_eq!(publisher.step(at(1), published(1, None)), [announce(1)]);
        assert_eq!(publisher.step(at(1001), Is::TimePassed), [publish(None)]);
        assert_eq!(publisher.step(at(1001), Is::Watched(false)), []);
        assert_eq!(publisher.step(at(1002), published(1, None)), []);
        assert!(publisher.is_idle());
    }

    #[test]
    fn a_head_that_others_moved_is_announced_and_never_a_lesser_one() {
        let mut publisher = publisher();
        publisher.step(at(0), Is::Watched(true));
        let others = PublishResult { count: 0, head: FeedSyncId(7), next: None };
        assert_eq!(publisher.step(at(1), Is::Published(Ok(Some(others)))), [announce(7)]);
        publisher.step(at(1001), Is::TimePassed);
        assert_eq!(publisher.step(at(1002), published(6, None)), []);
    }

    #[test]
    fn an_answer_that_was_not_asked_for_changes_nothing() {
        let mut publisher = publisher();
        let before = publisher.clone();
        for event in [published(9, Some("fred")), failed(), no_such_feed(), Is::TimePassed] {
            assert_eq!(publisher.step(at(5), event), []);
        }
        assert_eq!(publisher, before);
    }

    fn publisher() -> Publisher {
        let limits = PublisherLimits { batch_max: 2, retry: Span(100), poll: Span(1000) };
        Publisher::new(Arc::new(limits))
    }

    fn at(ms: u64) -> Time {
        Time(ms)
    }

    fn publish(after: Option<&str>) -> PublisherOrder {
        Do::Publish { after: after.map(key), limit: 2 }
    }

    fn announce(head: u64) -> PublisherOrder {
        Do::Announce { head: FeedSyncId(head) }
    }

    fn published(head: u64, next: Option<&str>) -> PublisherEvent {
        let published = PublishResult { count: 1, head: FeedSyncId(head), next: next.map(key) };
        Is::Published(Ok(Some(published)))
    }

    fn no_such_feed() -> PublisherEvent {
        Is::Published(Ok(None))
    }

    fn failed() -> PublisherEvent {
        Is::Published(Err(StoreFailed))
    }

    fn key(text: &str) -> FeedKey {
        FeedKey::parse(text).unwrap()
    }
}
