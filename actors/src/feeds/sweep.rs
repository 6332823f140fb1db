//! The sweep: lists all feeds of the store page by page, no faster than the publisher has room for
//! them.

use std::collections::VecDeque;

use state_machine::feed::FeedName;
use state_machine::store::StoreFailed;
use state_machine::{Span, Time};

/// Feeds of a page.
pub(super) const FEEDS_PER_PAGE: usize = 100;

/// The delay of a requested sweep, so that a mailbox that is full again and again does not list the
/// feeds all the time.
const SOON: Span = Span(100);

/// Visits every feed, once every `every`.
#[derive(Debug)]
pub(super) struct Sweep {
    state: SweepState,
    /// Another sweep was requested since this one began, perhaps for a feed that it has passed.
    is_requested: bool,
    every: Span,
    retry: Span,
}

#[derive(Debug)]
enum SweepState {
    Idle {
        until: Time,
    },
    Listing {
        after: Option<FeedName>,
    },
    /// These feeds wait for room. The next page begins after `next`.
    Visiting {
        feeds: VecDeque<FeedName>,
        next: Option<FeedName>,
    },
    Failed {
        until: Time,
        after: Option<FeedName>,
    },
}

/// What the publisher is to do for a sweep.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SweepOrder {
    /// List at most [`FEEDS_PER_PAGE`] feeds after this one.
    List { after: Option<FeedName> },
    /// Look for unpublished keys in this feed.
    Visit(FeedName),
}

impl Sweep {
    /// A sweep that begins at once.
    pub(super) fn new(now: Time, every: Span, retry: Span) -> Self {
        Self { state: SweepState::Idle { until: now }, is_requested: false, every, retry }
    }

    /// Requests a sweep: a feed has unpublished keys of which the publisher is not notified.
    pub(super) fn request(&mut self, now: Time) {
        match &mut self.state {
            SweepState::Idle { until } => *until = (now + SOON).min(*until),
            SweepState::Listing { .. }
            | SweepState::Visiting { .. }
            | SweepState::Failed { .. } => {
                self.is_requested = true;
            }
        }
    }

    /// What to do next. Called until it returns none.
    pub(super) fn next(&mut self, now: Time, has_room: bool) -> Option<SweepOrder> {
        match &mut self.state {
            SweepState::Idle { until } if *until <= now => Some(self.list(None)),
            SweepState::Failed { until, after } if *until <= now => {
                let after = after.take();
                Some(self.list(after))
            }
            SweepState::Visiting { feeds, next } => match (feeds.is_empty(), next.take()) {
                (true, Some(next)) => Some(self.list(Some(next))),
                (true, None) => {
                    self.finish(now);
                    None
                }
                (false, after) => {
                    *next = after;
                    if has_room { feeds.pop_front().map(SweepOrder::Visit) } else { None }
                }
            },
            SweepState::Idle { .. } | SweepState::Failed { .. } | SweepState::Listing { .. } => {
                None
            }
        }
    }

    /// The answer to [`SweepOrder::List`].
    pub(super) fn listed(&mut self, now: Time, listed: Result<Vec<FeedName>, StoreFailed>) {
        let SweepState::Listing { after } = &mut self.state else { return };
        self.state = match listed {
            Ok(feeds) => {
                let next = feeds.last().filter(|_| feeds.len() >= FEEDS_PER_PAGE).cloned();
                SweepState::Visiting { feeds: feeds.into(), next }
            }
            Err(StoreFailed) => SweepState::Failed { until: now + self.retry, after: after.take() },
        };
    }

    /// When [`Sweep::next`] is to be called, if no event comes before.
    pub(super) fn deadline(&self) -> Option<Time> {
        match self.state {
            SweepState::Idle { until } | SweepState::Failed { until, .. } => Some(until),
            SweepState::Listing { .. } | SweepState::Visiting { .. } => None,
        }
    }

    fn list(&mut self, after: Option<FeedName>) -> SweepOrder {
        self.state = SweepState::Listing { after: after.clone() };
        SweepOrder::List { after }
    }

    fn finish(&mut self, now: Time) {
        self.state = SweepState::Idle { until: now + self.every };
        if std::mem::take(&mut self.is_requested) {
            self.request(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_visits_every_feed_of_every_page() {
        let mut sweep = sweep();
        assert_eq!(sweep.next(at(0), true), Some(SweepOrder::List { after: None }));
        let page: Vec<FeedName> =
            (0..FEEDS_PER_PAGE).map(|number| feed(&format!("{number:03}"))).collect();
        sweep.listed(at(1), Ok(page.clone()));
        for feed in &page {
            assert_eq!(sweep.next(at(1), true), Some(SweepOrder::Visit(feed.clone())));
        }
        let after = page.last().cloned();
        assert_eq!(sweep.next(at(1), true), Some(SweepOrder::List { after }));
        sweep.listed(at(2), Ok(vec![feed("last")]));
        assert_eq!(sweep.next(at(2), true), Some(SweepOrder::Visit(feed("last"))));
        assert_eq!(sweep.next(at(2), true), None);
        assert_eq!(sweep.deadline(), Some(at(60_002)));
        assert_eq!(sweep.next(at(60_001), true), None);
        assert_eq!(sweep.next(at(60_002), true), Some(SweepOrder::List { after: None }));
    }

    #[test]
    fn a_feed_waits_until_there_is_room() {
        let mut sweep = sweep();
        sweep.next(at(0), true);
        sweep.listed(at(1), Ok(vec![feed("a"), feed("b")]));
        assert_eq!(sweep.next(at(1), true), Some(SweepOrder::Visit(feed("a"))));
        assert_eq!(sweep.next(at(1), false), None);
        assert_eq!(sweep.deadline(), None);
        assert_eq!(sweep.next(at(2), true), Some(SweepOrder::Visit(feed("b"))));
    }

    #[test]
    fn a_page_that_failed_is_listed_again() {
        let mut sweep = sweep();
        sweep.next(at(0), true);
        sweep.listed(at(1), Err(StoreFailed));
        assert_eq!(sweep.next(at(1), true), None);
        assert_eq!(sweep.deadline(), Some(at(1001)));
        assert_eq!(sweep.next(at(1001), true), Some(SweepOrder::List { after: None }));
    }

    #[test]
    fn a_requested_sweep_begins_soon_and_once() {
        let mut sweep = sweep();
        sweep.next(at(0), true);
        sweep.request(at(0));
        sweep.request(at(0));
        sweep.listed(at(1), Ok(Vec::new()));
        assert_eq!(sweep.next(at(1), true), None, "the sweep that was under way is at its end");
        assert_eq!(sweep.deadline(), Some(at(101)));
        sweep.request(at(50));
        assert_eq!(sweep.deadline(), Some(at(101)), "which it is not put off by");
        assert_eq!(sweep.next(at(101), true), Some(SweepOrder::List { after: None }));
        sweep.listed(at(102), Ok(Vec::new()));
        sweep.next(at(102), true);
        assert_eq!(sweep.deadline(), Some(at(60_102)));
    }

    fn sweep() -> Sweep {
        Sweep::new(at(0), Span::from_secs(60), Span(1000))
    }

    fn at(ms: u64) -> Time {
        Time(ms)
    }

    fn feed(name: &str) -> FeedName {
        FeedName::parse(name).unwrap()
    }
}
