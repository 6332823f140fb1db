//! A change of a key: over HTTP, or on the store.

use std::io::{Write, stdout};

use actors::Feeds;
use futures_util::FutureExt;
use state_machine::feed::{FeedName, FeedValue, Version, WriteResult};
use storage::StoreFuture;

use super::key_args::{Change, KeyArgs};
use super::remote::Remote;
use crate::command::{Failure, Job, JobError, StoreCommand, run_and_print};
use crate::feeds::store::{publish, publish_left, write};
use crate::settings::Settings;

impl Change {
    /// Makes the change over HTTP if a URL is given, else by the command on the store.
    pub fn make<C: StoreCommand>(
        &self,
        of: &KeyArgs,
        command: C,
        settings: &Settings,
    ) -> Result<(), Failure> {
        let Some(url) = &of.url else { return Ok(run_and_print(command, settings)?) };
        let version = Remote::at(url)?.change(&of.feed, &of.key, self)?;
        Ok(writeln!(stdout(), "{}", self.done(of, version))?)
    }

    /// Makes the change on the store, and publishes it.
    pub async fn on_store(&self, of: &KeyArgs, job: &Job) -> Result<(), JobError> {
        let KeyArgs { feed, key, .. } = of;
        let changed = match self {
            Self::Put(value) => Ok(put(of, value, job).await?),
            Self::Delete => rewrite(of, true, job)
                .await?
                .ok_or_else(|| format!("there is no {key} in {feed}: nothing to delete")),
            Self::Republish => rewrite(of, false, job).await?.ok_or_else(|| {
                format!("{key} of {feed} was never written: nothing to publish again")
            }),
        };
        let version = match changed {
            Ok(version) => version,
            Err(why) => {
                // The change may be there: its publication failed, or its answer was lost.
                publish_left(feed, job).await?;
                return Err(JobError::Refused(why));
            }
        };
        job.note(self.done(of, version.0)).await?;
        publish(feed, job).await
    }

    /// What is printed of a change that was made.
    fn done(&self, KeyArgs { feed, key, .. }: &KeyArgs, version: u64) -> String {
        match self {
            Self::Put(_) => format!("wrote {key} of {feed}, its version is {version}"),
            Self::Delete => format!("deleted {key} of {feed}, its version is {version}"),
            Self::Republish => {
                format!("{key} of {feed} gets a new number, its version is {version}")
            }
        }
    }
}

/// Sets a key, if the feed may have it.
async fn put(of: &KeyArgs, value: &FeedValue, job: &Job) -> Result<Version, JobError> {
    let KeyArgs { feed, key, .. } = of;
    let keys_max = feed.keys_max(job.context.settings.feed_keys_max);
    let value_bytes_max = feed.value_bytes_max(job.context.settings.feed_value_bytes_max);
    // The origin of a bound: a setting, or the purpose of the feed.
    let origin = |setting| match *feed == FeedName::broadcasts() {
        true => "all servers keep broadcasts in memory",
        false => setting,
    };
    let bytes = value.as_str().len();
    if !feed.may_have(key) {
        return Err(JobError::Refused(format!(
            "no broadcast can be called {key}: agents receive errors under this name"
        )));
    }
    if bytes > value_bytes_max {
        return Err(JobError::Refused(format!(
            "the value has {bytes} bytes, and {feed} takes {value_bytes_max} ({})",
            origin("feed_value_bytes_max")
        )));
    }
    match write(job, (feed, key, value), keys_max).await? {
        WriteResult::Done(version) => Ok(version),
        WriteResult::TooManyKeys => Err(JobError::Refused(format!(
            "{feed} has {keys_max} keys, with those that were deleted, and takes no other ({})",
            origin("feed_keys_max")
        ))),
    }
}

/// Deletes a key, or publishes it again. None if there is no such key.
async fn rewrite(of: &KeyArgs, deletes: bool, job: &Job) -> Result<Option<Version>, JobError> {
    let store = &job.context.store;
    job.step(|| -> StoreFuture<Option<Version>> {
        let KeyArgs { feed, key, .. } = of.clone();
        match job.context.part::<Feeds>().cloned() {
            Some(feeds) if deletes => async move { feeds.delete(feed, key).await }.boxed(),
            Some(feeds) => async move { feeds.republish(feed, key).await }.boxed(),
            None if deletes => store.delete_key(feed, key),
            None => store.republish_key(feed, key),
        }
    })
    .await
}
