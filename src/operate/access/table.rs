//! The access tokens in the store, which are a reserved feed.

use actors::Feeds;
use futures_util::FutureExt;
use state_machine::access::{AccessGrant, AccessId, AccessTable};
use state_machine::feed::{FeedName, WriteResult};
use storage::StoreFuture;

use crate::command::{Job, JobError};
use crate::feeds::store::{PAGE, number_all};

/// All tokens, as the store has them.
pub async fn read<R>(job: &Job<R>) -> Result<AccessTable, JobError> {
    let mut table = AccessTable::default();
    loop {
        let fetch = || job.context.store.fetch_feed(FeedName::access(), table.cursor(), PAGE);
        let Some(page) = job.step(fetch).await? else { return Ok(table) };
        if page.is_too_late(table.cursor()) {
            table = AccessTable::default();
            continue;
        }
        let is_last = page.is_last();
        table.apply(page);
        if is_last {
            return Ok(table);
        }
    }
}

pub async fn write<R>(id: AccessId, grant: &AccessGrant, job: &Job<R>) -> Result<(), JobError> {
    let feed = FeedName::access();
    let keys_max = feed.keys_max(job.context.settings.feed_keys_max);
    let write = || -> StoreFuture<WriteResult> {
        let (feed, key, value) = (feed.clone(), id.to_key(), grant.to_value());
        match job.context.part::<Feeds>().cloned() {
            Some(feeds) => async move { feeds.write(feed, key, value).await }.boxed(),
            None => job.context.store.write_key(feed, key, value, keys_max),
        }
    };
    match job.step(write).await? {
        WriteResult::TooManyKeys => Err(JobError::Refused(format!(
            "there are {keys_max} access tokens, with those that were revoked, and no more can be added"
        ))),
        // The publisher of a server publishes by itself.
        WriteResult::Done(_) if job.context.part::<Feeds>().is_some() => Ok(()),
        WriteResult::Done(_) => number_all(&feed, job).await.map(|_last| ()),
    }
}
