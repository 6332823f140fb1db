//! Forgets old tombstones, so that deleted keys do not fill a feed for ever.
//!
//! A horizon is one number, and everything up to it is forgotten. So the values below the last old tombstone are
//! published again first, unchanged, and then only tombstones are left below it.
//!
//! The age of an entry is not stored. A feed has a mark, the number that it had reached at some time: everything up to it
//! is at least as old. Any number of nodes may do this at once, as a number is never assigned twice.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use slog::{debug, warn};
use state_machine::Span;
use state_machine::feed::{FeedMark, FeedName, FeedSyncId, Update};
use state_machine::store::PageLimit;
use storage::StoreError;
use storage::feeds::FeedState;
use tokio::time::sleep;

use super::node_feeds::Feeds;
use super::sweep::FEEDS_PER_PAGE;

/// Entries that are read, published again or removed at once.
const STEP: PageLimit = PageLimit { rows: 100, bytes: 1 << 20 };

/// Looks at all feeds once in every `every`, until the node is stopping.
pub(super) async fn run(feeds: Feeds, keep: Span, every: Span) {
    let mut is_failing = false;
    while !feeds.shared.heads.is_closed() {
        let done = pass(&feeds, keep).await;
        if let Err(error) = &done
            && !is_failing
        {
            warn!(feeds.shared.log, "the store failed to forget tombstones, it will be retried"; "error" => %error);
        }
        is_failing = done.is_err();
        sleep(Duration::from_millis(every.0)).await;
    }
}

/// Visits every feed. One that fails does not keep the others; the last error is returned.
async fn pass(feeds: &Feeds, keep: Span) -> Result<(), StoreError> {
    let (mut after, mut done) = (None, Ok(()));
    loop {
        let listed = feeds.store().feeds(after, FEEDS_PER_PAGE).await?;
        let is_last = listed.len() < FEEDS_PER_PAGE;
        after = listed.last().map(|last| last.name.clone());
        for feed in listed {
            if feeds.shared.heads.is_closed() {
                return done;
            }
            done = visit(feeds, feed, keep).await.and(done);
        }
        if is_last {
            return done;
        }
    }
}

/// Forgets what was there at the mark, once the mark is old enough, and sets the next mark.
async fn visit(
    feeds: &Feeds,
    FeedState { name, sequence }: FeedState,
    keep: Span,
) -> Result<(), StoreError> {
    let now = feeds.shared.clock.now();
    if let Some(mark) = sequence.mark {
        if now < mark.at + keep {
            return Ok(());
        }
        if let Some(last) = last_tombstone(feeds, &name, mark.number).await? {
            forget(feeds, &name, last).await?;
        }
    }
    let mark = FeedMark { number: sequence.value, at: now };
    feeds.store().mark_feed(name, mark).await
}

/// The number of the last tombstone up to the mark.
async fn last_tombstone(
    feeds: &Feeds,
    feed: &FeedName,
    mark: FeedSyncId,
) -> Result<Option<FeedSyncId>, StoreError> {
    let (mut last, mut after) = (None, FeedSyncId::NONE);
    while let Some(page) = feeds.store().fetch_feed(feed.clone(), after, STEP).await? {
        if page.is_too_late(after) {
            // Another node is doing this.
            return Ok(None);
        }
        let old = page.updates.iter().filter(|update| update.feed_sync_id <= mark);
        last = old.filter(|update| is_tombstone(update)).map(number).next_back().or(last);
        if page.is_last() || page.cursor >= mark || page.cursor <= after {
            break;
        }
        after = page.cursor;
    }
    Ok(last)
}

/// Publishes the values up to `last` again, and forgets the tombstones, from the first entry on.
async fn forget(feeds: &Feeds, feed: &FeedName, last: FeedSyncId) -> Result<(), StoreError> {
    while let Some(page) = feeds.store().fetch_feed(feed.clone(), FeedSyncId::NONE, STEP).await? {
        // The numbers ascend, so these are all entries up to the greatest of them.
        let old = page.updates.into_iter().filter(|update| update.feed_sync_id <= last);
        let old: Vec<Update> = old.collect();
        let Some(through) = old.last().map(number) else { break };
        for value in old.iter().filter(|update| !is_tombstone(update)) {
            feeds.republish(feed.clone(), value.key.clone()).await?;
        }
        remove(feeds, feed, through).await?;
    }
    debug!(feeds.shared.log, "forgot old tombstones"; "feed" => %feed, "horizon" => last.0);
    Ok(())
}

async fn remove(feeds: &Feeds, feed: &FeedName, through: FeedSyncId) -> Result<(), StoreError> {
    let shared = Arc::clone(&feeds.shared);
    while let Some(forgotten) = shared.store.forget(feed.clone(), through, STEP.rows).await? {
        shared.forgotten.fetch_add(forgotten.count as u64, Ordering::Relaxed);
        if forgotten.is_all {
            break;
        }
    }
    Ok(())
}

fn is_tombstone(update: &Update) -> bool {
    update.value.is_none()
}

fn number(update: &Update) -> FeedSyncId {
    update.feed_sync_id
}
