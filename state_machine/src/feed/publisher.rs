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

use super::publication::PublishResult;
use super::text::FeedKey;
use super::update::FeedSyncId;
use crate::backoff::Backoff;
use crate::paging::StoreFailed;
use crate::time::{Span, Time};
use crate::variant_name;

/// The limits of a publisher.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PublisherLimits {
    /// The maximum number of keys in one transaction; at least 1.
    pub batch_max: usize,
    /// The wait after a store failure. It doubles with each consecutive failure, up to 64 times.
    pub retry: Span,
    /// How often a subscribed feed is read for publications of other nodes.
    pub poll: Span,
}

/// An event of one feed on one node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PublisherEvent {
    /// A key may have no number yet.
    Written,
    /// Whether the feed has subscribers on this node.
    Watched(bool),
    /// The result of [`PublisherEffect::Publish`]: none if the feed does not exist.
    Published(Result<Option<PublishResult>, StoreFailed>),
    /// The deadline may have passed.
    TimePassed,
}

/// An effect of a publisher, executed by its actor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PublisherEffect {
    /// Assign numbers to keys that have none. At most one such effect is pending.
    Publish {
        /// Only keys after this one; all keys if there is none.
        after: Option<FeedKey>,
        limit: usize,
    },
    /// Send the feed's head to its subscribers on this node.
    Announce {
        /// The feed's greatest number.
        head: FeedSyncId,
    },
}

/// The purpose of a publisher's deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PublisherWait {
    /// Read what other nodes published.
    Poll,
    /// Retry after a store failure.
    Retry,
}

/// The publisher of one feed on one node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Publisher {
    limits: Arc<PublisherLimits>,
    stage: PublisherState,
    /// The last key of this round that is published; none before a round begins and after it ends.
    after: Option<FeedKey>,
    /// A write since this round began, perhaps of a key before `after`.
    is_written: bool,
    is_watched: bool,
    /// The greatest number that was announced.
    head: FeedSyncId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum PublisherState {
    /// No key known to this node lacks a number, and the feed has no subscribers.
    Idle,
    /// No key known to this node lacks a number, and the feed has subscribers.
    Resting {
        until: Time,
    },
    Publishing {
        backoff: Backoff,
    },
    /// The publication is retried at `until`, after the same key.
    Failed {
        until: Time,
        backoff: Backoff,
    },
}

use PublisherEffect as Do;
use PublisherEvent as Is;

impl Publisher {
    /// The publisher of a feed whose state is not known yet.
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

    /// Applies an event and returns the effects, in their sequence.
    pub fn step(&mut self, now: Time, event: PublisherEvent) -> Vec<PublisherEffect> {
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
            // An answer without a pending effect changes nothing, and neither does a deadline in
            // the future.
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

    /// Whether nothing is pending and the feed has no subscribers. An idle publisher can be
    /// dropped.
    pub fn is_idle(&self) -> bool {
        self.stage == PublisherState::Idle
    }

    /// Its state as in the diagram above, for a trace.
    pub fn phase(&self) -> String {
        variant_name(&self.stage)
    }

    fn watched(&mut self, is_watched: bool) -> Vec<PublisherEffect> {
        self.is_watched = is_watched;
        match self.stage {
            PublisherState::Idle if is_watched => vec![self.publish(self.backoff())],
            PublisherState::Resting { .. } if !is_watched => {
                self.stage = PublisherState::Idle;
                Vec::new()
            }
            // Read when the current round ends.
            _ => Vec::new(),
        }
    }

    fn published(&mut self, now: Time, published: Option<PublishResult>) -> Vec<PublisherEffect> {
        let (head, next) = published.map(|it| (it.head, it.next)).unwrap_or_default();
        let announced = (self.head < head).then_some(Do::Announce { head });
        self.head = self.head.max(head);
        self.after = next;
        announced.into_iter().chain(self.go_on(now)).collect()
    }

    /// The next batch of this round, or the first of the next round after a write.
    fn go_on(&mut self, now: Time) -> Option<PublisherEffect> {
        if self.after.is_some() || mem::take(&mut self.is_written) {
            return Some(self.publish(self.backoff()));
        }
        let until = now + self.limits.poll;
        self.stage =
            if self.is_watched { PublisherState::Resting { until } } else { PublisherState::Idle };
        None
    }

    fn backoff(&self) -> Backoff {
        Backoff::of_store(self.limits.retry)
    }

    fn publish(&mut self, backoff: Backoff) -> PublisherEffect {
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
    fn a_round_continues_after_the_last_key_until_none_is_left() {
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
    fn a_write_during_the_wait_for_a_retry_is_not_forgotten() {
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
    fn the_wait_after_a_store_failure_doubles() {
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
        assert_eq!(publisher.step(at(0), Is::Watched(false)), []);
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
        assert_eq!(publisher.deadline(), Some((at(2101), PublisherWait::Poll)));
        assert_eq!(publisher.step(at(1200), Is::Watched(false)), []);
        assert!(publisher.is_idle());
        assert_eq!(publisher.step(at(2101), Is::TimePassed), []);
    }

    #[test]
    fn a_subscription_that_begins_or_ends_during_a_round_counts_at_its_end() {
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

    fn publish(after: Option<&str>) -> PublisherEffect {
        Do::Publish { after: after.map(key), limit: 2 }
    }

    fn announce(head: u64) -> PublisherEffect {
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
