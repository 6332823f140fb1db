//! Feeds, as those who write, publish and follow them on one or more nodes meet them.

mod bounds;
mod engines;
mod following;
mod publishing;
mod sharing;
mod store;
mod tombstones;
mod trouble;

use std::collections::BTreeMap;
use std::sync::Arc;

use actors::{Clock, FeedLimits, FeedSubscription, Feeds};
use futures_util::future::join_all;
use state_machine::feed::{
    ConsumerLimits, FeedKey, FeedName, FeedPage, FeedSyncId, FeedValue, PublisherLimits, Update,
    Version, WriteResult,
};
use state_machine::store::PageLimit;
use state_machine::{Span, Time};
use storage::FeedTables;

use crate::clockwork::settle;
use crate::node::log;
pub(crate) use store::{Call, FeedStore};

pub(crate) const NOW: Time = Time(1_793_700_000_000);

pub(crate) const POLL: Span = Span(1000);
pub(crate) const RETRY: Span = Span(500);
pub(crate) const SWEEP: Span = Span::from_secs(60);

/// A node's limits; few of everything.
pub(crate) fn limits() -> FeedLimits {
    FeedLimits {
        publisher: PublisherLimits { batch_max: 3, retry: RETRY, poll: POLL },
        consumer: ConsumerLimits { page: PageLimit { rows: 4, bytes: 1 << 20 }, retry: RETRY },
        feeds_open_max: 8,
        keys_max: 1000,
        followers_max: 100,
        sweep: SWEEP,
        tombstones_keep: None,
        mailbox_max: 100,
    }
}

/// A node on a store of its own, and the feed that most tests use.
fn fred() -> (FeedStore, FeedName, Feeds) {
    let store = FeedStore::new();
    let feeds = node(&store);
    (store, feed("fred"), feeds)
}

/// The same, with the first value published.
async fn fred_with_bob() -> (FeedStore, FeedName, Feeds) {
    let (store, fred, feeds) = fred();
    put(&feeds, &fred, "name", "bob").await;
    settle().await;
    (store, fred, feeds)
}

/// The same, and a follower that has read it.
async fn fred_with_reader() -> (FeedStore, FeedName, Feeds, Reader) {
    let (store, fred, feeds) = fred_with_bob().await;
    let mut reader = Reader::of(&feeds, &fred);
    assert_eq!(reader.hears().await, "name=bob");
    (store, fred, feeds, reader)
}

/// A node on a store.
pub(crate) fn node(store: &FeedStore) -> Feeds {
    node_within(store, limits())
}

pub(crate) fn node_within(store: &FeedStore, limits: FeedLimits) -> Feeds {
    node_on(Arc::new(store.clone()), limits)
}

pub(crate) fn node_on(store: Arc<dyn FeedTables>, limits: FeedLimits) -> Feeds {
    Feeds::start(store, Clock::starting_at(NOW), limits, log())
}

pub(crate) fn feed(name: &str) -> FeedName {
    FeedName::parse(name).unwrap()
}

/// Sets a key; the version it got.
pub(crate) async fn put(feeds: &Feeds, feed: &FeedName, key: &str, value: &str) -> Version {
    let (key, value) = (FeedKey::parse(key).unwrap(), FeedValue::parse(value).unwrap());
    match feeds.write(feed.clone(), key, value).await.unwrap() {
        WriteResult::Done(version) => version,
        WriteResult::TooManyKeys => panic!("the feed is full"),
    }
}

/// Writes several keys with the same value at once.
async fn put_all(feeds: &Feeds, feed: &FeedName, keys: impl IntoIterator<Item = String>) {
    let keys: Vec<_> = keys.into_iter().collect();
    join_all(keys.iter().map(|key| put(feeds, feed, key, "value"))).await;
}

/// Writes a key of each feed at once.
async fn put_each(feeds: &Feeds, names: &[FeedName]) {
    join_all(names.iter().map(|name| put(feeds, name, "key", "value"))).await;
}

/// One who follows a feed from its first number on, and what it has seen.
pub(crate) struct Reader {
    follower: FeedSubscription,
    /// The last state of each key.
    seen: BTreeMap<FeedKey, Update>,
    last: FeedSyncId,
    pages: usize,
}

impl Reader {
    pub(crate) fn of(feeds: &Feeds, feed: &FeedName) -> Self {
        let follower = feeds.subscribe(feed.clone(), FeedSyncId::NONE).unwrap();
        Self { follower, seen: BTreeMap::new(), last: FeedSyncId::NONE, pages: 0 }
    }

    async fn next(&mut self) -> FeedPage {
        let page = self.follower.next().await.unwrap();
        for update in &page.updates {
            assert!(self.last < update.feed_sync_id, "numbers run backwards");
            self.last = update.feed_sync_id;
            self.seen.insert(update.key.clone(), update.clone());
        }
        assert_eq!(self.follower.cursor(), page.cursor);
        self.pages += 1;
        page
    }

    /// The next update, in a page of its own: `key=value`.
    async fn hears(&mut self) -> String {
        let page = self.next().await;
        let [update] = &page.updates[..] else { panic!("expected one update, got {page:?}") };
        shown(update)
    }

    /// Reads what there is without waiting for time to pass.
    pub(crate) async fn catches_up(&mut self) {
        loop {
            tokio::select! {
                biased;
                _ = self.next() => {}
                () = settle() => return,
            }
        }
    }

    /// It does not look at a deleted key any more.
    fn forgets(&mut self, key: &str) {
        if let Some(update) = self.seen.remove(key) {
            assert_eq!(update.value, None);
        }
    }

    /// It has seen the last version of every key of the feed.
    fn has_seen_all(&self, store: &FeedStore, feed: &FeedName) {
        let table = store.table(feed);
        let rows = table.rows().map(|(key, row)| {
            let (value, version) = (row.value.clone(), row.version);
            let feed_sync_id = row.feed_sync_id.expect("a key is not published");
            (key.clone(), Update { feed_sync_id, key: key.clone(), version, value })
        });
        assert_eq!(self.seen, rows.collect());
    }
}

fn shown(update: &Update) -> String {
    match &update.value {
        Some(value) => format!("{}={value}", update.key),
        None => format!("{} deleted", update.key),
    }
}
