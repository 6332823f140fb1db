//! Commands that write a feed, and those that say what there is: `feed put`, `feed delete`, `feed republish`,
//! `feed list`, `broadcast list`.

use futures_util::FutureExt;
use state_machine::broadcast::Broadcasts;
use state_machine::feed::{
    FeedKey, FeedName, FeedPage, FeedSyncId, FeedValue, PublishResult, Version, WriteResult,
};
use state_machine::store::PageLimit;
use storage::StoreFuture;

use super::{JobError, Report};
use crate::admin::feed::{BroadcastRow, FeedPut, FeedRow, Key, KeyArgs, Name, Value};
use crate::admin::job_context::{FeedBounds, JobContext};
use crate::admin::output::Output;

/// How much of a feed is read at once.
pub(super) const PAGE: PageLimit = PageLimit { rows: 500, bytes: 1024 * 1024 };

/// Keys that are published in one transaction.
const BATCH_MAX: usize = 100;

/// Feeds on one line: their names are short.
const FEEDS_A_LINE: usize = 1000;

/// Bytes of ids and versions on one line of broadcasts; one broadcast is always on it.
const BROADCASTS_A_LINE_BYTES: usize = 128 * 1024;

/// The settings that bound a feed.
const VALUE: &str = "feed_value_bytes_max";
const KEYS: &str = "feed_keys_max";

/// Sets a key.
pub(super) async fn put(
    put: FeedPut,
    context: &JobContext,
    report: &Report,
) -> Result<(), JobError> {
    let FeedPut { feed: Name(feed), key: Key(key), value: Value(value) } = put;
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

/// Whether a key may be set to a value at all.
fn check(
    feed: &FeedName,
    key: &FeedKey,
    value: &FeedValue,
    bytes_max: usize,
) -> Result<(), JobError> {
    let bytes = value.as_str().len();
    let why = if !feed.may_have(key) {
        format!("no broadcast can be called {key}: agents are told of errors under this name")
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

/// What bounds a feed: a setting, or what it is for.
fn limit_of(feed: &FeedName, setting: &'static str) -> &'static str {
    if *feed == FeedName::broadcasts() { "all servers keep broadcasts in memory" } else { setting }
}

/// Deletes a key.
pub(super) async fn delete(
    of: KeyArgs,
    context: &JobContext,
    report: &Report,
) -> Result<(), JobError> {
    let KeyArgs { feed: Name(feed), key: Key(key) } = of;
    let Some(version) = report.step(|| remove(context, &feed, &key)).await? else {
        return Err(JobError::Refused(format!("there is no {key} in {feed}: nothing to delete")));
    };
    report.note(format!("deleted {key} of {feed}, its version is {version}")).await?;
    publish(&feed, context, report).await
}

/// Publishes a key again as it is.
pub(super) async fn republish(
    of: KeyArgs,
    context: &JobContext,
    report: &Report,
) -> Result<(), JobError> {
    let KeyArgs { feed: Name(feed), key: Key(key) } = of;
    let Some(version) = report.step(|| number_anew(context, &feed, &key)).await? else {
        let why = format!("{key} of {feed} was never written: nothing to publish again");
        return Err(JobError::Refused(why));
    };
    report.note(format!("{key} of {feed} gets a new number, its version is {version}")).await?;
    publish(&feed, context, report).await
}

/// Says which feeds there are.
pub(super) async fn list(context: &JobContext, report: &Report) -> Result<(), JobError> {
    let (mut after, mut is_first) = (None, true);
    loop {
        let feeds = report.step(|| context.store.feeds(after.clone(), FEEDS_A_LINE)).await?;
        let is_last = feeds.len() < FEEDS_A_LINE;
        after = feeds.last().map(|feed| feed.name.clone());
        if is_first || !feeds.is_empty() {
            report.emit(Output::Feeds(feeds.into_iter().map(FeedRow::from).collect())).await?;
        }
        if is_last {
            return Ok(());
        }
        is_first = false;
    }
}

/// Says which broadcasts there are, by id.
pub(super) async fn broadcasts(context: &JobContext, report: &Report) -> Result<(), JobError> {
    let mut all = Broadcasts::default();
    loop {
        let fetch = || context.store.fetch_feed(FeedName::broadcasts(), all.cursor(), PAGE);
        let Some(page) = report.step(fetch).await? else { break };
        let is_last = is_last(&page);
        all.apply(page);
        if is_last {
            break;
        }
    }
    for rows in in_lines(&all) {
        report.emit(Output::Broadcasts(rows)).await?;
    }
    Ok(())
}

/// Whether there was nothing behind a page when it was read.
pub(super) fn is_last(page: &FeedPage) -> bool {
    page.cursor >= page.head
}

/// Where no server does it: what is written is not to wait for one.
async fn publish(feed: &FeedName, context: &JobContext, report: &Report) -> Result<(), JobError> {
    if context.feeds.is_some() {
        return report.note("the server publishes it").await;
    }
    let head = publish_all(feed, context, report).await?;
    report.note(format!("published, {feed} has come to number {head}")).await
}

/// Numbers what waits, until nothing does; how far the feed has come then.
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

fn number_anew(
    context: &JobContext,
    feed: &FeedName,
    key: &FeedKey,
) -> StoreFuture<Option<Version>> {
    let (feed, key) = (feed.clone(), key.clone());
    match context.feeds.clone() {
        Some(feeds) => async move { feeds.republish(feed, key).await }.boxed(),
        None => context.store.republish_key(feed, key),
    }
}

fn in_lines(all: &Broadcasts) -> Vec<Vec<BroadcastRow>> {
    let (mut lines, mut bytes) = (Vec::new(), usize::MAX);
    for (id, version) in all.iter() {
        let row = BroadcastRow { id: id.to_string(), version: version.to_string() };
        bytes = bytes.saturating_add(row.id.len() + row.version.len());
        match lines.last_mut() {
            Some(line) if bytes <= BROADCASTS_A_LINE_BYTES => Vec::push(line, row),
            _ => {
                bytes = row.id.len() + row.version.len();
                lines.push(vec![row]);
            }
        }
    }
    lines
}
