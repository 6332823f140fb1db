//! What cases about feeds start from: names, writing, publishing to the end, reading to the end.

use std::collections::BTreeMap;

use state_machine::feed::{
    FeedKey, FeedName, FeedPage, FeedSyncId, FeedValue, PublishResult, Sequence, Update, Version,
    WriteResult,
};
use storage::{FeedTables, PageLimit, StoreError, StoreFuture};

/// The feed of most cases.
pub(crate) const FEED: &str = "prices";
pub(crate) const KEYS_MAX: u64 = 1000;
pub(crate) const PAGE: PageLimit = PageLimit { rows: 100, bytes: 1_000_000 };

/// Times that a call is repeated for which the store was too busy.
const TRIES_MAX: usize = 1000;

pub(crate) fn feed(name: &str) -> FeedName {
    FeedName::parse(name).unwrap()
}

pub(crate) fn key(text: &str) -> FeedKey {
    FeedKey::parse(text).unwrap()
}

pub(crate) fn value(text: &str) -> FeedValue {
    FeedValue::parse(text).unwrap()
}

/// An update in short: its number, its key, its version and what it holds.
pub(crate) type Seen = (u64, String, u64, Option<String>);

/// An update that a case expects.
pub(crate) fn saw(number: u64, key: &str, version: u64, value: &str) -> Seen {
    (number, key.to_owned(), version, Some(value.to_owned()))
}

/// An update of a deleted key.
pub(crate) fn saw_gone(number: u64, key: &str, version: u64) -> Seen {
    (number, key.to_owned(), version, None)
}

pub(crate) fn seen(update: &Update) -> Seen {
    let value = update.value.as_ref().map(ToString::to_string);
    (update.feed_sync_id.0, update.key.to_string(), update.version.0, value)
}

/// Writes a key, which is allowed. Answers its version.
pub(crate) async fn write(store: &dyn FeedTables, name: &str, at: &str, text: &str) -> u64 {
    match insist(|| store.write_key(feed(name), key(at), value(text), KEYS_MAX)).await {
        WriteResult::Done(version) => version.0,
        WriteResult::TooManyKeys => panic!("there are too many keys for {at}"),
    }
}

/// Writes several keys, each with its own name as its value.
pub(crate) async fn write_all(store: &dyn FeedTables, name: &str, keys: &[&str]) {
    for key in keys {
        write(store, name, key, key).await;
    }
}

/// Has a key that is there published again. Answers its version.
pub(crate) async fn republish(store: &dyn FeedTables, name: &str, at: &str) -> u64 {
    let version = insist(|| store.republish_key(feed(name), key(at))).await;
    version.expect("the key is there").0
}

/// Deletes a key that is there. Answers its version.
pub(crate) async fn delete(store: &dyn FeedTables, name: &str, at: &str) -> u64 {
    let version = insist(|| store.delete_key(feed(name), key(at))).await;
    version.expect("the key is there").0
}

/// Publishes once, at most so many, of a feed that is there.
pub(crate) async fn publish(store: &dyn FeedTables, name: &str, limit: usize) -> PublishResult {
    insist(|| store.publish(feed(name), None, limit)).await.expect("the feed is there")
}

/// Publishes until nothing is left to go on with. Answers how many keys were given a number.
pub(crate) async fn publish_all(store: &dyn FeedTables, name: &str) -> usize {
    let (mut count, mut after) = (0, None);
    loop {
        let published = insist(|| store.publish(feed(name), after.clone(), 100)).await;
        let published = published.expect("the feed is there");
        count += published.count;
        assert!(published.next.is_none() || published.next > after, "it ascends");
        match published.next {
            Some(next) => after = Some(next),
            None => return count,
        }
    }
}

/// One page of a feed that is there.
pub(crate) async fn page(
    store: &dyn FeedTables,
    name: &str,
    after: u64,
    limit: PageLimit,
) -> FeedPage {
    let page = insist(|| store.fetch_feed(feed(name), FeedSyncId(after), limit)).await;
    page.expect("the feed is there")
}

/// All pages after a cursor.
pub(crate) async fn pages(
    store: &dyn FeedTables,
    name: &str,
    mut after: u64,
    limit: PageLimit,
) -> Vec<FeedPage> {
    let mut pages = Vec::new();
    loop {
        let page = page(store, name, after, limit).await;
        let (cursor, head) = (page.cursor.0, page.head.0);
        assert!(cursor > after || head <= after, "{after} {page:?}");
        pages.push(page);
        if cursor >= head {
            return pages;
        }
        after = cursor;
    }
}

/// Every update behind a cursor.
pub(crate) async fn updates(store: &dyn FeedTables, name: &str, after: u64) -> Vec<Seen> {
    let pages = pages(store, name, after, PAGE).await;
    pages.iter().flat_map(|page| &page.updates).map(seen).collect()
}

/// The row of the feed's sequence, of one that is there.
pub(crate) async fn sequence(store: &dyn FeedTables, name: &str) -> Sequence {
    let mut after = None;
    loop {
        let feeds = insist(|| store.feeds(after.clone(), 100)).await;
        let last = feeds.last().map(|state| state.name.clone());
        assert!(last > after, "the list continues, and the feed is in it");
        after = last;
        if let Some(ours) = feeds.into_iter().find(|state| state.name == feed(name)) {
            return ours.sequence;
        }
    }
}

/// A consumer: its cursor, and what it knows of each key.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    pub(crate) cursor: FeedSyncId,
    pub(crate) known: BTreeMap<FeedKey, (Version, Option<FeedValue>)>,
}

impl Follower {
    /// Takes in one page, of which no number and no version may be less than what was seen before.
    pub(crate) async fn poll(&mut self, store: &dyn FeedTables, name: &str, limit: PageLimit) {
        let page = page(store, name, self.cursor.0, limit).await;
        for update in page.updates {
            assert!(update.feed_sync_id > self.cursor, "numbers ran backwards: {update:?}");
            self.cursor = update.feed_sync_id;
            let before = self.known.insert(update.key, (update.version, update.value));
            assert!(before.is_none_or(|(version, _)| version < update.version));
        }
        assert!(page.cursor >= self.cursor && page.cursor <= page.head);
        self.cursor = page.cursor;
    }

    /// Takes in one page, and starts over if its cursor is below the horizon.
    pub(crate) async fn poll_or_restart(
        &mut self,
        store: &dyn FeedTables,
        name: &str,
        restarts: &mut usize,
    ) {
        if page(store, name, self.cursor.0, PAGE).await.is_too_late(self.cursor) {
            *self = Self::default();
            *restarts += 1;
        }
        self.poll(store, name, PAGE).await;
    }

    /// Takes in what is left.
    pub(crate) async fn catch_up(&mut self, store: &dyn FeedTables, name: &str) {
        while self.cursor < sequence(store, name).await.value {
            let before = self.cursor;
            self.poll(store, name, PAGE).await;
            assert!(self.cursor > before, "there is more, and it ascends");
        }
    }

    /// The version and the value of a key, as far as the consumer knows.
    pub(crate) fn of(&self, name: &str) -> Option<(Version, Option<String>)> {
        let (version, value) = self.known.get(name)?;
        Some((*version, value.as_ref().map(ToString::to_string)))
    }

    /// What a consumer knows that begins now.
    pub(crate) async fn of_now(store: &dyn FeedTables, name: &str) -> Self {
        let mut follower = Self::default();
        follower.catch_up(store, name).await;
        follower
    }
}

/// Repeats a call that the store was too busy for: nothing of it was done.
pub(crate) async fn insist<T>(call: impl Fn() -> StoreFuture<T>) -> T {
    for _try in 0..TRIES_MAX {
        match call().await {
            Err(StoreError::Busy) => tokio::task::yield_now().await,
            answer => return answer.unwrap(),
        }
    }
    panic!("the store was busy {TRIES_MAX} times");
}
