//! The access tokens in the store, which are a reserved feed.

use actors::Feeds;
use state_machine::access::{AccessGrant, AccessId, AccessTable};
use state_machine::feed::{FeedName, WriteResult};

use crate::command::{Job, JobError};
use crate::feeds::store;

/// All tokens, as the store has them.
pub async fn read<R>(job: &Job<R>) -> Result<AccessTable, JobError> {
    store::read(job, &FeedName::access(), AccessTable::apply).await
}

/// The same for a command that changes one. What an interrupted command has written gets its number first.
pub async fn read_to_change<R>(job: &Job<R>) -> Result<AccessTable, JobError> {
    if job.context.part::<Feeds>().is_none() {
        store::number_all(&FeedName::access(), job).await?;
    }
    read(job).await
}

pub async fn write<R>(id: AccessId, grant: &AccessGrant, job: &Job<R>) -> Result<(), JobError> {
    let feed = FeedName::access();
    let keys_max = feed.keys_max(job.context.settings.feed_keys_max);
    match store::write(job, (&feed, &id.to_key(), &grant.to_value()), keys_max).await? {
        WriteResult::TooManyKeys => Err(JobError::Refused(format!(
            "there are {keys_max} access tokens, with those that were revoked, and no more can be added"
        ))),
        // The publisher of a server publishes by itself.
        WriteResult::Done(_) if job.context.part::<Feeds>().is_some() => Ok(()),
        WriteResult::Done(_) => store::number_all(&feed, job).await.map(|_last| ()),
    }
}
