//! The way through all feeds of the store, a page at a time, no faster than there is room for what it finds.

use std::collections::VecDeque;

use state_machine::feed::FeedName;
use state_machine::store::StoreFailed;
use state_machine::{Span, Time};

/// Feeds that are listed at a time.
pub(super) const PAGE: usize = 100;

/// How long after it is asked for an extra sweep begins: where a mailbox is full again and again, the feeds are not
/// listed all the time.
const SOON: Span = Span(100);

/// Looks at every feed now and then.
#[derive(Debug)]
pub(super) struct Sweep {
    stage: Stage,
    /// There was something to find since this sweep began, perhaps in a feed it has passed.
    is_requested: bool,
    every: Span,
    retry: Span,
}

#[derive(Debug)]
enum Stage {
    Resting {
        until: Time,
    },
    Listing {
        after: Option<FeedName>,
    },
    /// These feeds wait for room; the last of them is where to go on.
    Handing {
        feeds: VecDeque<FeedName>,
        next: Option<FeedName>,
    },
    Failed {
        until: Time,
        after: Option<FeedName>,
    },
}

/// What a sweep asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SweepOrder {
    /// List feeds behind this one, [`PAGE`] at most.
    List { after: Option<FeedName> },
    /// Something may wait in this feed.
    Look(FeedName),
}

impl Sweep {
    /// The first begins at once.
    pub(super) fn new(now: Time, every: Span, retry: Span) -> Self {
        Self { stage: Stage::Resting { until: now }, is_requested: false, every, retry }
    }

    /// There is something to find that nobody will be told of.
    pub(super) fn request(&mut self, now: Time) {
        match &mut self.stage {
            Stage::Resting { until } => *until = (now + SOON).min(*until),
            Stage::Listing { .. } | Stage::Handing { .. } | Stage::Failed { .. } => {
                self.is_requested = true;
            }
        }
    }

    /// What to do next; ask again until there is nothing.
    pub(super) fn next(&mut self, now: Time, has_room: bool) -> Option<SweepOrder> {
        match &mut self.stage {
            Stage::Resting { until } if *until <= now => Some(self.list(None)),
            Stage::Failed { until, after } if *until <= now => {
                let after = after.take();
                Some(self.list(after))
            }
            Stage::Handing { feeds, next } => match (feeds.is_empty(), next.take()) {
                (true, Some(next)) => Some(self.list(Some(next))),
                (true, None) => {
                    self.finish(now);
                    None
                }
                (false, after) => {
                    *next = after;
                    if has_room { feeds.pop_front().map(SweepOrder::Look) } else { None }
                }
            },
            Stage::Resting { .. } | Stage::Failed { .. } | Stage::Listing { .. } => None,
        }
    }

    /// The answer to [`SweepOrder::List`].
    pub(super) fn listed(&mut self, now: Time, listed: Result<Vec<FeedName>, StoreFailed>) {
        let Stage::Listing { after } = &mut self.stage else { return };
        self.stage = match listed {
            Ok(feeds) => {
                let next = feeds.last().filter(|_| feeds.len() >= PAGE).cloned();
                Stage::Handing { feeds: feeds.into(), next }
            }
            Err(StoreFailed) => Stage::Failed { until: now + self.retry, after: after.take() },
        };
    }

    /// When [`Sweep::next`] has something to say, if nothing happens before.
    pub(super) fn deadline(&self) -> Option<Time> {
        match self.stage {
            Stage::Resting { until } | Stage::Failed { until, .. } => Some(until),
            Stage::Listing { .. } | Stage::Handing { .. } => None,
        }
    }

    fn list(&mut self, after: Option<FeedName>) -> SweepOrder {
        self.stage = Stage::Listing { after: after.clone() };
        SweepOrder::List { after }
    }

    fn finish(&mut self, now: Time) {
        self.stage = Stage::Resting { until: now + self.every };
        if std::mem::take(&mut self.is_requested) {
            self.request(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feed_of_every_page_is_looked_at() {
        let mut sweep = sweep();
        assert_eq!(sweep.next(at(0), true), Some(SweepOrder::List { after: None }));
        let page: Vec<FeedName> = (0..PAGE).map(|number| feed(&format!("{number:03}"))).collect();
        sweep.listed(at(1), Ok(page.clone()));
        for feed in &page {
            assert_eq!(sweep.next(at(1), true), Some(SweepOrder::Look(feed.clone())));
        }
        let after = page.last().cloned();
        assert_eq!(sweep.next(at(1), true), Some(SweepOrder::List { after }));
        sweep.listed(at(2), Ok(vec![feed("last")]));
        assert_eq!(sweep.next(at(2), true), Some(SweepOrder::Look(feed("last"))));
        assert_eq!(sweep.next(at(2), true), None);
        assert_eq!(sweep.deadline(), Some(at(60_002)));
        assert_eq!(sweep.next(at(60_001), true), None);
        assert_eq!(sweep.next(at(60_002), true), Some(SweepOrder::List { after: None }));
    }

    #[test]
    fn a_feed_that_finds_no_room_waits_for_it() {
        let mut sweep = sweep();
        sweep.next(at(0), true);
        sweep.listed(at(1), Ok(vec![feed("a"), feed("b")]));
        assert_eq!(sweep.next(at(1), true), Some(SweepOrder::Look(feed("a"))));
        assert_eq!(sweep.next(at(1), false), None);
        assert_eq!(sweep.deadline(), None);
        assert_eq!(sweep.next(at(2), true), Some(SweepOrder::Look(feed("b"))));
    }

    #[test]
    fn a_page_that_failed_is_asked_for_again() {
        let mut sweep = sweep();
        sweep.next(at(0), true);
        sweep.listed(at(1), Err(StoreFailed));
        assert_eq!(sweep.next(at(1), true), None);
        assert_eq!(sweep.deadline(), Some(at(1001)));
        assert_eq!(sweep.next(at(1001), true), Some(SweepOrder::List { after: None }));
    }

    #[test]
    fn what_is_owed_comes_soon_and_once() {
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
