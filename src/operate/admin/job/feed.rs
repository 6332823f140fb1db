//! `feed put`, `feed delete`, `feed republish`, `feed list` and `broadcast list`.

use futures_util::FutureExt;
use state_machine::broadcast::Broadcasts;
use state_machine::feed::{FeedName, FeedSyncId, Version, WriteResult};
use state_machine::store::PageLimit;
use storage::StoreFuture;

use super::{JobError, Report};
use crate::operate::admin::commands::{FeedPut, KeyArgs};
use crate::operate::admin::output::Output;

/// The size of one page of a feed, which must fit on one line of output.
pub(super) const PAGE: PageLimit = PageLimit { rows: 500, bytes: 128 * 1024 };

/// Keys published in one transaction.
const BATCH_MAX: usize = 100;

/// Feeds in one output.
const FEEDS_MAX: usize = 1000;

/// Broadcasts in one output. An id and a version have at most 1280 bytes.
const BROADCASTS_MAX: usize = 100;

pub(super) async fn put(put: FeedPut, report: &Report) -> Result<(), JobError> {
    let FeedPut { of: KeyArgs { feed, key }, value } = put;
    let keys_max = feed.keys_max(report.context.feed_keys_max);
    let value_bytes_max = feed.value_bytes_max(report.context.feed_value_bytes_max);
    // The origin of a bound: a setting, or the purpose of the feed.
    let origin = |setting| match feed == FeedName::broadcasts() {
        true => "all servers keep broadcasts in memory",
        false => setting,
    };
    let bytes = value.as_str().len();
    if !feed.may_have(&key) {
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
    let write = || -> StoreFuture<WriteResult> {
        let (feed, key, value) = (feed.clone(), key.clone(), value.clone());
        match report.context.feeds.clone() {
            Some(feeds) => async move { feeds.write(feed, key, value).await }.boxed(),
            None => report.context.store.write_key(feed, key, value, keys_max),
        }
    };
    match report.step(write).await? {
        WriteResult::Done(version) => {
            report.note(format!("wrote {key} of {feed}, its version is {version}")).await?;
            publish(&feed, report).await
        }
        WriteResult::TooManyKeys => Err(JobError::Refused(format!(
            "{feed} has {keys_max} keys, with those that were deleted, and takes no other ({})",
            origin("feed_keys_max")
        ))),
    }
}

pub(super) async fn delete(
    KeyArgs { feed, key }: KeyArgs,
    report: &Report,
) -> Result<(), JobError> {
    let delete = || -> StoreFuture<Option<Version>> {
        let (feed, key) = (feed.clone(), key.clone());
        match report.context.feeds.clone() {
            Some(feeds) => async move { feeds.delete(feed, key).await }.boxed(),
            None => report.context.store.delete_key(feed, key),
        }
    };
    let Some(version) = report.step(delete).await? else {
        return Err(JobError::Refused(format!("there is no {key} in {feed}: nothing to delete")));
    };
    report.note(format!("deleted {key} of {feed}, its version is {version}")).await?;
    publish(&feed, report).await
}

pub(super) async fn republish(
    KeyArgs { feed, key }: KeyArgs,
    report: &Report,
) -> Result<(), JobError> {
    let republish = || -> StoreFuture<Option<Version>> {
        let (feed, key) = (feed.clone(), key.clone());
        match report.context.feeds.clone() {
            Some(feeds) => async move { feeds.republish(feed, key).await }.boxed(),
            None => report.context.store.republish_key(feed, key),
        }
    };
    let Some(version) = report.step(republish).await? else {
        let why = format!("{key} of {feed} was never written: nothing to publish again");
        return Err(JobError::Refused(why));
    };
    report.note(format!("{key} of {feed} gets a new number, its version is {version}")).await?;
    publish(&feed, report).await
}

/// Lists the feeds by name. The head of the list is printed without feeds too.
pub(super) async fn list(report: &Report) -> Result<(), JobError> {
    let mut after = None;
    loop {
        let feeds = report.step(|| report.context.store.feeds(after.clone(), FEEDS_MAX)).await?;
        let (is_first, is_last) = (after.is_none(), feeds.len() < FEEDS_MAX);
        after = feeds.last().map(|feed| feed.name.clone());
        let feeds: Vec<_> = feeds.into_iter().filter(|feed| !feed.name.is_reserved()).collect();
        if is_first || !feeds.is_empty() {
            report.emit(Output::Feeds(feeds)).await?;
        }
        if is_last {
            return Ok(());
        }
    }
}

/// Lists the broadcasts by id.
pub(super) async fn broadcasts(report: &Report) -> Result<(), JobError> {
    let mut all = Broadcasts::default();
    loop {
        let fetch = || report.context.store.fetch_feed(FeedName::broadcasts(), all.cursor(), PAGE);
        let Some(page) = report.step(fetch).await? else { break };
        let is_last = page.is_last();
        all.apply(page);
        if is_last {
            break;
        }
    }
    let rows: Vec<_> = all.iter().map(|(id, version)| (id.clone(), version.clone())).collect();
    for rows in rows.chunks(BROADCASTS_MAX) {
        report.emit(Output::Broadcasts(rows.to_vec())).await?;
    }
    Ok(())
}

/// Publishes what was written, unless the server of this process does.
async fn publish(feed: &FeedName, report: &Report) -> Result<(), JobError> {
    if report.context.feeds.is_some() {
        return report.note("the server publishes it").await;
    }
    let last = number_all(feed, report).await?;
    report.note(format!("published, the last number of {feed} is {last}")).await
}

/// Publishes what was written. Returns the last number of the feed.
pub(super) async fn number_all(feed: &FeedName, report: &Report) -> Result<FeedSyncId, JobError> {
    let (mut after, mut last) = (None, FeedSyncId::NONE);
    loop {
        let publish = || report.context.store.publish(feed.clone(), after.clone(), BATCH_MAX);
        let result = report.step(publish).await?;
        last = result.as_ref().map_or(last, |result| result.head);
        after = result.and_then(|result| result.next);
        if after.is_none() {
            return Ok(last);
        }
    }
}
