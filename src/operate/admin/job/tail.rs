//! `feed tail`: a feed's updates as they are published.

use std::time::Duration;

use actors::{FeedSubscription, SubscriptionError};
use state_machine::Span;
use state_machine::backoff::Backoff;
use state_machine::feed::consumer::ConsumerEnd;
use state_machine::feed::{FeedName, FeedPage, FeedSyncId};
use tokio::time::Instant;

use super::feed::PAGE;
use super::{JobError, Report};
use crate::operate::admin::commands::FeedTail;
use crate::operate::admin::job_context::JobContext;
use crate::operate::admin::output::Output;

/// The interval at which a store without a server in this process is read.
const POLL: Span = Span::from_secs(1);

/// The longest wait after a failure of the store; the first one is [`POLL`].
const RETRY_MAX: Span = Span::from_secs(60);

/// Writes pages until `count` updates are written, or with `once` until the end of the feed.
pub(super) async fn run(
    tail: FeedTail,
    context: &JobContext,
    report: &Report,
) -> Result<(), JobError> {
    let FeedTail { feed, after, count, once } = tail;
    let mut pages = Pages::open(context, feed, FeedSyncId(after), once)?;
    let mut left = count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
    loop {
        let mut page = pages.next(context, report).await?;
        let is_last = page.is_last();
        page.truncate(left);
        left -= page.updates.len();
        report.emit(Output::Page(page)).await?;
        if left == 0 || (once && is_last) {
            return Ok(());
        }
    }
}

/// The pages behind a cursor.
struct Pages {
    feed: FeedName,
    cursor: FeedSyncId,
    once: bool,
    /// The publisher of this process; without one, the store is polled.
    publisher: Option<FeedSubscription>,
}

impl Pages {
    fn open(
        context: &JobContext,
        feed: FeedName,
        cursor: FeedSyncId,
        once: bool,
    ) -> Result<Self, JobError> {
        let feeds = context.feeds.as_ref().filter(|_| !once);
        let publisher = feeds.map(|feeds| feeds.subscribe(feed.clone(), cursor)).transpose();
        let publisher = publisher.map_err(|error| JobError::Refused(error.to_string()))?;
        Ok(Self { feed, cursor, once, publisher })
    }

    /// The next page; waits until there is one, unless the tail ends with what is there.
    async fn next(&mut self, context: &JobContext, report: &Report) -> Result<FeedPage, JobError> {
        let page = match &mut self.publisher {
            Some(publisher) => match report.or_interrupted(publisher.next()).await? {
                Ok(page) => page,
                Err(SubscriptionError::Closed) => return Err(JobError::Stopped),
                Err(SubscriptionError::End(end)) => return Err(self.refused(end)),
            },
            None => self.poll(context, report).await?,
        };
        self.cursor = page.cursor;
        Ok(page)
    }

    async fn poll(&self, context: &JobContext, report: &Report) -> Result<FeedPage, JobError> {
        let mut backoff = Backoff::new(POLL, RETRY_MAX);
        loop {
            let wait = match self.fetch(context, report).await {
                Ok(page) if self.once || page.cursor > self.cursor => return Ok(page),
                Ok(_) => {
                    backoff.reset();
                    POLL
                }
                Err(JobError::Store(error)) if !self.once => {
                    let wait = backoff.next();
                    let text = format!("{error}; trying again in {} s", wait.0 / 1000);
                    report.emit(Output::Problem(text)).await?;
                    wait
                }
                Err(error) => return Err(error),
            };
            report.wait_until(Instant::now() + Duration::from_millis(wait.0)).await?;
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
            Some(page) if page.is_too_late(self.cursor) => {
                Err(self.refused(ConsumerEnd::CursorTooOld { horizon: page.horizon }))
            }
            Some(page) => Ok(page),
        }
    }

    fn refused(&self, end: ConsumerEnd) -> JobError {
        let Self { feed, cursor, .. } = self;
        let head = match end {
            ConsumerEnd::CursorFromTheFuture { head } => head,
            ConsumerEnd::CursorTooOld { horizon } => {
                return JobError::Refused(format!(
                    "the cursor {cursor} is too old, {feed} has forgotten deletions up to {horizon}: discard what \
                     was printed, and remove the cursor file or give --after 0"
                ));
            }
            ConsumerEnd::NoSuchFeed if feed.is_always_there() => FeedSyncId::NONE,
            ConsumerEnd::NoSuchFeed => {
                return JobError::Refused(format!(
                    "there is no feed {feed}: it begins with its first write (`kalends feed put {feed} ...`)"
                ));
            }
        };
        JobError::Refused(format!(
            "the cursor {cursor} is from the future, the last number of {feed} is {head}: if it was restored \
             from a backup, remove the cursor file or give a lesser --after"
        ))
    }
}
