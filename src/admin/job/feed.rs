//! `feed put`, `feed delete`, `feed republish`, `feed list` and `broadcast list`.

use futures_util::FutureExt;
use state_machine::broadcast::Broadcasts;
use state_machine::feed::{
    FeedKey, FeedName, FeedSyncId, FeedValue, PublishResult, Version, WriteResult,
};
use state_machine::store::PageLimit;
use storage::StoreFuture;

use super::{JobError, Report};
use crate::admin::commands::{FeedPut, KeyArgs};
use crate::admin::job_context::{FeedBounds, JobContext};
use crate::admin::output::{Broadcast, Output};

/// The size of one page of a feed, which must fit on one line of output.
pub(super) const PAGE: PageLimit = PageLimit { rows: 500, bytes: 128 * 1024 };

/// Keys published in one transaction.
const BATCH_MAX: usize = 100;

/// Feeds in one output.
const FEEDS_MAX: usize = 1000;

/// Broadcasts in one output. An id and a version have at most 1280 bytes.
const BROADCASTS_MAX: usize = 100;

/// The settings that bound a feed.
const VALUE: &str = "feed_value_bytes_max";
const KEYS: &str = "feed_keys_max";

pub(super) async fn put(
    put: FeedPut,
    context: &JobContext,
    report: &Report,
) -> Result<(), JobError> {
    let FeedPut { of: KeyArgs { feed, key }, value } = put;
    let FeedBounds { value_bytes_max, keys_max } = context.feed_bounds.of(&feed);
    check(&feed, &key, &value, value_bytes_max)?;
    match report.step(|| write(context, &feed, &key, &value)).await? {
        WriteResult::Done(version) => {
            report.note(format!("wrote {key} of {feed}, its version is {version}")).await?;
            publish(&feed, context, report).await
        }
        WriteResult::TooManyKeys => Err(JobError::Refused(format!(
            "{feed} has {keys_max} keys, with those that were deleted, and takes no other ({})",
            limit_of(&feed, KEYS)
        ))),
    }
}

/// Checks the key and the size of the value against what the feed accepts.
fn check(
    feed: &FeedName,
    key: &FeedKey,
    value: &FeedValue,
    bytes_max: usize,
) -> Result<(), JobError> {
    let bytes = value.as_str().len();
    let why = if !feed.may_have(key) {
        format!("no broadcast can be called {key}: agents receive errors under this name")
    } else if bytes > bytes_max {
        format!(
            "the value has {bytes} bytes, and {feed} takes {bytes_max} ({})",
            limit_of(feed, VALUE)
        )
    } else {
        return Ok(());
    };
    Err(JobError::Refused(why))
}

/// The origin of a bound: a setting, or the purpose of the feed.
fn limit_of(feed: &FeedName, setting: &'static str) -> &'static str {
    if *feed == FeedName::broadcasts() { "all servers keep broadcasts in memory" } else { setting }
}

pub(super) async fn delete(
    of: KeyArgs,
    context: &JobContext,
    report: &Report,
) -> Result<(), JobError> {
    let KeyArgs { feed, key } = of;
    let Some(version) = report.step(|| remove(context, &feed, &key)).await? else {
        return Err(JobError::Refused(format!("there is no {key} in {feed}: nothing to delete")));
    };
    report.note(format!("deleted {key} of {feed}, its version is {version}")).await?;
    publish(&feed, context, report).await
}

pub(super) async fn republish(
    of: KeyArgs,
    context: &JobContext,
    report: &Report,
) -> Result<(), JobError> {
    let KeyArgs { feed, key } = of;
    let Some(version) = report.step(|| renumber(context, &feed, &key)).await? else {
        let why = format!("{key} of {feed} was never written: nothing to publish again");
        return Err(JobError::Refused(why));
    };
    report.note(format!("{key} of {feed} gets a new number, its version is {version}")).await?;
    publish(&feed, context, report).await
}

/// Lists the feeds by name.
pub(super) async fn list(context: &JobContext, report: &Report) -> Result<(), JobError> {
    let (mut after, mut is_first) = (None, true);
    loop {
        let feeds = report.step(|| context.store.feeds(after.clone(), FEEDS_MAX)).await?;
        let is_last = feeds.len() < FEEDS_MAX;
        after = feeds.last().map(|feed| feed.name.clone());
        if is_first || !feeds.is_empty() {
            report.emit(Output::Feeds(feeds)).await?;
        }
        if is_last {
            return Ok(());
        }
        is_first = false;
    }
}

/// Lists the broadcasts by id.
pub(super) async fn broadcasts(context: &JobContext, report: &Report) -> Result<(), JobError> {
    let mut all = Broadcasts::default();
    loop {
        let fetch = || context.store.fetch_feed(FeedName::broadcasts(), all.cursor(), PAGE);
        let Some(page) = report.step(fetch).await? else { break };
        let is_last = page.is_last();
        all.apply(page);
        if is_last {
            break;
        }
    }
    let row = |(id, version): (&FeedKey, &FeedValue)| Broadcast {
        id: id.clone(),
        version: version.clone(),
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    for rows in rows.chunks(BROADCASTS_MAX) {
        report.emit(Output::Broadcasts(rows.to_vec())).await?;
    }
    Ok(())
}

/// Publishes what was written, unless the server of this process does.
async fn publish(feed: &FeedName, context: &JobContext, report: &Report) -> Result<(), JobError> {
    if context.feeds.is_some() {
        return report.note("the server publishes it").await;
    }
    let head = publish_all(feed, context, report).await?;
    report.note(format!("published, the last number of {feed} is {head}")).await
}

/// Gives a number to each key that waits for one; the last number then.
async fn publish_all(
    feed: &FeedName,
    context: &JobContext,
    report: &Report,
) -> Result<FeedSyncId, JobError> {
    let (mut after, mut reached) = (None, FeedSyncId::NONE);
    loop {
        let publish = || context.store.publish(feed.clone(), after.clone(), BATCH_MAX);
        let Some(PublishResult { head, next, .. }) = report.step(publish).await? else {
            return Ok(reached);
        };
        (after, reached) = (next, head);
        if after.is_none() {
            return Ok(reached);
        }
    }
}

fn write(
    context: &JobContext,
    feed: &FeedName,
    key: &FeedKey,
    value: &FeedValue,
) -> StoreFuture<WriteResult> {
    let (feed, key, value) = (feed.clone(), key.clone(), value.clone());
    match context.feeds.clone() {
        Some(feeds) => async move { feeds.write(feed, key, value).await }.boxed(),
        None => {
            let keys_max = context.feed_bounds.of(&feed).keys_max;
            context.store.write_key(feed, key, value, keys_max)
        }
    }
}

fn remove(context: &JobContext, feed: &FeedName, key: &FeedKey) -> StoreFuture<Option<Version>> {
    let (feed, key) = (feed.clone(), key.clone());
    match context.feeds.clone() {
        Some(feeds) => async move { feeds.delete(feed, key).await }.boxed(),
        None => context.store.delete_key(feed, key),
    }
}

fn renumber(context: &JobContext, feed: &FeedName, key: &FeedKey) -> StoreFuture<Option<Version>> {
    let (feed, key) = (feed.clone(), key.clone());
    match context.feeds.clone() {
        Some(feeds) => async move { feeds.republish(feed, key).await }.boxed(),
        None => context.store.republish_key(feed, key),
    }
}
