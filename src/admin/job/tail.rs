//! `feed tail`: a feed's updates, as they come.

use std::mem;
use std::time::Duration;

use actors::{FeedSubscription, Feeds, SubscriptionError};
use state_machine::feed::consumer::ConsumerEnd;
use state_machine::feed::{FeedName, FeedPage, FeedSyncId};
use tokio::time::Instant;

use super::feed::{PAGE, is_last};
use super::{JobError, Report};
use crate::admin::feed::{FeedTail, Name, Page};
use crate::admin::job_context::JobContext;
use crate::admin::output::Output;

/// How often a store is looked at that no server here follows.
const POLL: Duration = Duration::from_secs(1);

/// The longest that a store is left alone which failed; the waits begin with [`POLL`] and double.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Tells updates until there were as many as were asked for, or it is to stop.
pub(super) async fn run(
    tail: FeedTail,
    context: &JobContext,
    report: &Report,
) -> Result<(), JobError> {
    let FeedTail { feed: Name(feed), after, count, once } = tail;
    let mut pages = Pages::open(context, feed, FeedSyncId(after), once)?;
    let mut left = count.unwrap_or(u64::MAX);
    loop {
        let page = pages.next(context, report).await?;
        let is_last = is_last(&page);
        for mut part in Page::from(page).parts() {
            part.cut(left);
            left -= part.updates.len() as u64;
            report.emit(Output::Page(part)).await?;
            if left == 0 {
                return Ok(());
            }
        }
        if once && is_last {
            return Ok(());
        }
    }
}

/// Where the pages come from.
struct Pages {
    feed: FeedName,
    cursor: FeedSyncId,
    once: bool,
    /// Told by the server's publisher; without one, the store is looked at.
    told: Option<Told>,
}

/// What tells of pages.
struct Told {
    feeds: Feeds,
    follower: FeedSubscription,
    /// The follower before, for the place that it has among those that are counted.
    place: Option<FeedSubscription>,
}

impl Pages {
    fn open(
        context: &JobContext,
        feed: FeedName,
        cursor: FeedSyncId,
        once: bool,
    ) -> Result<Self, JobError> {
        let feeds = context.feeds.as_ref().filter(|_| !once);
        let told = feeds.map(|feeds| Told::open(feeds, &feed, cursor)).transpose()?;
        Ok(Self { feed, cursor, once, told })
    }

    /// The next one. It waits for ever where nothing comes, but not where only what is there is wanted.
    async fn next(&mut self, context: &JobContext, report: &Report) -> Result<FeedPage, JobError> {
        let page = match &mut self.told {
            Some(told) => match report.or_interrupted(told.next(&self.feed, self.cursor)).await? {
                Ok(page) => page,
                Err(SubscriptionError::Closed) => return Err(JobError::Stopped),
                Err(SubscriptionError::End(end)) => return Err(self.refused(end)),
            },
            None => self.look(context, report).await?,
        };
        self.cursor = page.cursor;
        Ok(page)
    }

    async fn look(&self, context: &JobContext, report: &Report) -> Result<FeedPage, JobError> {
        let mut wait = POLL;
        loop {
            match self.fetch(context, report).await {
                Ok(page) if self.once || page.cursor > self.cursor => return Ok(page),
                Ok(_) => wait = POLL,
                Err(JobError::Store(error)) if !self.once => {
                    let text = format!("{error}; looking again in {} s", wait.as_secs());
                    report.emit(Output::Problem(text)).await?;
                    report.wait_until(Instant::now() + wait).await?;
                    wait = (wait * 2).min(RETRY_MAX);
                    continue;
                }
                Err(error) => return Err(error),
            }
            report.wait_until(Instant::now() + POLL).await?;
        }
    }

    async fn fetch(&self, context: &JobContext, report: &Report) -> Result<FeedPage, JobError> {
        let fetch = || context.store.fetch_feed(self.feed.clone(), self.cursor, PAGE);
        let page = report.step(fetch).await?;
        match page.or_else(|| self.feed.is_always_there().then(FeedPage::default)) {
            None => Err(self.refused(ConsumerEnd::NoSuchFeed)),
            Some(FeedPage { head, .. }) if head < self.cursor => {
                Err(self.refused(ConsumerEnd::CursorFromTheFuture { head }))
            }
            Some(page) => Ok(page),
        }
    }

    fn refused(&self, end: ConsumerEnd) -> JobError {
        let Self { feed, cursor, .. } = self;
        JobError::Refused(match end {
            ConsumerEnd::NoSuchFeed if feed.is_always_there() => from_the_future(feed, cursor.0, 0),
            ConsumerEnd::NoSuchFeed => no_such_feed(feed),
            ConsumerEnd::CursorFromTheFuture { head } => from_the_future(feed, cursor.0, head.0),
        })
    }
}

impl Told {
    fn open(feeds: &Feeds, feed: &FeedName, cursor: FeedSyncId) -> Result<Self, JobError> {
        let follower = feeds.subscribe(feed.clone(), cursor);
        let follower = follower.map_err(|error| JobError::Refused(error.to_string()))?;
        Ok(Self { feeds: feeds.clone(), follower, place: None })
    }

    /// The next page, however long it takes. An empty feed that is always there is waited for.
    async fn next(
        &mut self,
        feed: &FeedName,
        cursor: FeedSyncId,
    ) -> Result<FeedPage, SubscriptionError> {
        let waits = feed.is_always_there() && cursor == FeedSyncId::NONE;
        loop {
            match self.follower.next().await {
                Err(SubscriptionError::End(ConsumerEnd::NoSuchFeed)) if waits => {
                    let patient = self.feeds.subscribe_when_created(feed.clone(), cursor);
                    self.place = Some(mem::replace(&mut self.follower, patient));
                }
                next => return next,
            }
        }
    }
}

/// What is said of a feed that is not there.
pub fn no_such_feed(feed: &FeedName) -> String {
    format!(
        "there is no feed {feed}: it begins with its first write (`kalends feed put {feed} ...`)"
    )
}

/// What is said of a cursor that a feed never gave.
pub fn from_the_future(feed: &FeedName, cursor: u64, head: u64) -> String {
    format!(
        "the cursor {cursor} is from the future, {feed} has come to number {head}: if it was restored from \
         a backup, remove the cursor file or give a lesser --after"
    )
}
