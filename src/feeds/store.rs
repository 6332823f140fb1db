//! Writes to a feed by a command: through the publisher of the server that it runs in, or on the store alone.

use actors::Feeds;
use futures_util::FutureExt;
use state_machine::feed::{FeedKey, FeedName, FeedPage, FeedSyncId, FeedValue, WriteResult};
use state_machine::store::PageLimit;
use storage::StoreFuture;

use crate::command::{Job, JobError};

/// The size of one page of a feed, which must fit on one line of output.
pub const PAGE: PageLimit = PageLimit { rows: 500, bytes: 128 * 1024 };

/// Keys published in one transaction.
const BATCH_MAX: usize = 100;

/// All that a feed holds now, from its first page to its head.
pub async fn read<T: Default, R, A>(
    job: &Job<R>,
    feed: &FeedName,
    apply: impl Fn(&mut T, FeedPage) -> A,
) -> Result<T, JobError> {
    let (mut all, mut cursor) = (T::default(), FeedSyncId::NONE);
    loop {
        let fetch = || job.context.store.fetch_feed(feed.clone(), cursor, PAGE);
        let Some(page) = job.step(fetch).await? else { return Ok(all) };
        if page.is_too_late(cursor) {
            (all, cursor) = (T::default(), FeedSyncId::NONE);
            continue;
        }
        let is_last = page.is_last();
        cursor = page.cursor;
        apply(&mut all, page);
        if is_last {
            return Ok(all);
        }
    }
}

/// Sets a key of a feed that has at most `keys_max` keys.
pub async fn write<R>(
    job: &Job<R>,
    (feed, key, value): (&FeedName, &FeedKey, &FeedValue),
    keys_max: u64,
) -> Result<WriteResult, JobError> {
    let write = || -> StoreFuture<WriteResult> {
        let (feed, key, value) = (feed.clone(), key.clone(), value.clone());
        match job.context.part::<Feeds>().cloned() {
            Some(feeds) => async move { feeds.write(feed, key, value).await }.boxed(),
            None => job.context.store.write_key(feed, key, value, keys_max),
        }
    };
    job.step(write).await
}

/// Publishes what was written, unless the server of this process does.
pub async fn publish(feed: &FeedName, job: &Job) -> Result<(), JobError> {
    if job.context.part::<Feeds>().is_some() {
        return job.note("the server publishes it").await;
    }
    let last = number_all(feed, job).await?;
    job.note(format!("published, the last number of {feed} is {last}")).await
}

/// Publishes what an earlier command left, unless the server of this process does.
pub async fn publish_left<R>(feed: &FeedName, job: &Job<R>) -> Result<(), JobError> {
    match job.context.part::<Feeds>() {
        Some(_publishes) => Ok(()),
        None => number_all(feed, job).await.map(|_last| ()),
    }
}

/// Publishes what was written. Returns the last number of the feed.
pub async fn number_all<R>(feed: &FeedName, job: &Job<R>) -> Result<FeedSyncId, JobError> {
    let (mut after, mut last) = (None, FeedSyncId::NONE);
    loop {
        let publish = || job.context.store.publish(feed.clone(), after.clone(), BATCH_MAX);
        let result = job.step(publish).await?;
        last = result.as_ref().map_or(last, |result| result.head);
        after = result.and_then(|result| result.next);
        if after.is_none() {
            return Ok(last);
        }
    }
}
